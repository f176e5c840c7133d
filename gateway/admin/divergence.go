package admin

import (
	"context"

	"google.golang.org/grpc"

	pb "domicile/api/domicile/v1"
	"domicile/api/wire"
)

// DivergenceDesk is the node's side of what operators do about void records. Errors are
// *api.Error. It is safe for concurrent use.
type DivergenceDesk interface {
	List(ctx context.Context, req *pb.ListDivergencesRequest) (*pb.ListDivergencesResponse, error)
	Read(ctx context.Context, req *pb.ReadDivergenceRequest, send func(*pb.ReadDivergenceResponse) error) error
	Republish(ctx context.Context, req *pb.RepublishDivergenceRequest, send func(*pb.RepublishDivergenceResponse) error) error
	Discard(ctx context.Context, req *pb.DiscardDivergenceRequest) (*pb.DiscardDivergenceResponse, error)
	Report(ctx context.Context, req *pb.ReportLossRequest, send func(*pb.ReportLossResponse) error) error
}

// Divergences serves what the desk does.
type Divergences struct {
	pb.UnimplementedDivergenceServiceServer
	Desk DivergenceDesk
}

// ListDivergences hands the request to the desk.
func (s *Divergences) ListDivergences(ctx context.Context, req *pb.ListDivergencesRequest) (*pb.ListDivergencesResponse, error) {
	m, err := s.Desk.List(ctx, req)
	return m, wire.GRPCError(err)
}

// ReadDivergence hands the request to the desk.
func (s *Divergences) ReadDivergence(req *pb.ReadDivergenceRequest, out grpc.ServerStreamingServer[pb.ReadDivergenceResponse]) error {
	return wire.GRPCError(s.Desk.Read(out.Context(), req, out.Send))
}

// RepublishDivergence hands the request to the desk.
func (s *Divergences) RepublishDivergence(req *pb.RepublishDivergenceRequest, out grpc.ServerStreamingServer[pb.RepublishDivergenceResponse]) error {
	return wire.GRPCError(s.Desk.Republish(out.Context(), req, out.Send))
}

// DiscardDivergence hands the request to the desk.
func (s *Divergences) DiscardDivergence(ctx context.Context, req *pb.DiscardDivergenceRequest) (*pb.DiscardDivergenceResponse, error) {
	m, err := s.Desk.Discard(ctx, req)
	return m, wire.GRPCError(err)
}

// ReportLoss hands the request to the desk.
func (s *Divergences) ReportLoss(req *pb.ReportLossRequest, out grpc.ServerStreamingServer[pb.ReportLossResponse]) error {
	return wire.GRPCError(s.Desk.Report(out.Context(), req, out.Send))
}
