package door

import (
	"context"

	pb "domicile/api/domicile/v1"
	"domicile/api/wire"
	"domicile/gateway"
)

// reader is ReaderService.
type reader struct {
	pb.UnimplementedReaderServiceServer
	server *Server
}

// Read streams a topic from the copies of this region.
func (r *reader) Read(req *pb.ReadRequest, ss pb.ReaderService_ReadServer) error {
	ctx := ss.Context()
	err := r.server.config.Gateway.Read(ctx, RequestFromProto(req), principalOf(ctx), func(b gateway.Batch) error {
		return ss.Send(BatchToProto(b))
	})
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return wire.GRPCError(err)
}
