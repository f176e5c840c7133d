package link

import (
	"context"
	"errors"
	"slices"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"domicile/api"
	pb "domicile/api/domicile/v1"
	"domicile/regions"
)

// lied counts what the peer said on a lane if our refusal of it means that no correct node
// says it. What passes by itself (a version, a restart, a busy peer) does not.
func (p *peerLink) lied(lane regions.Lane, refusal error) {
	if why := wrong(refusal); why != "" {
		p.mesh.cfg.Refused.Add(p.name, lane, why)
	}
}

func wrong(refusal error) regions.Refusal {
	var e *api.Error
	if !errors.As(refusal, &e) {
		return ""
	}
	switch e.Code {
	case api.BadRequest:
		return regions.Malformed
	case api.PermissionDenied:
		switch e.Field {
		case "region":
			return regions.NotTheirs
		case "fabric_id":
			return regions.Impossible
		}
	}
	return ""
}

// garbled counts a stream of the peer that ended because a message of it could not be read.
func (p *peerLink) garbled(lane regions.Lane, received error) {
	switch status.Code(received) {
	case codes.Internal: // gRPC's own, of what can't be decoded
		p.mesh.cfg.Refused.Add(p.name, lane, regions.Malformed)
	case codes.ResourceExhausted:
		p.mesh.cfg.Refused.Add(p.name, lane, regions.TooLarge)
	}
}

// unary are the lanes of the calls that are one message.
func unary() map[string]regions.Lane {
	return map[string]regions.Lane{"Hello": regions.LaneHello, "Policy": regions.LanePolicy}
}

// described is the service as it is, but that a call whose message can't be read is counted, too:
// gRPC answers that before anything of the service's is called.
func (s *service) described() *grpc.ServiceDesc {
	d := pb.PeerService_ServiceDesc
	d.Methods = slices.Clone(d.Methods)
	for i := range d.Methods {
		handle, lane := d.Methods[i].Handler, unary()[d.Methods[i].MethodName]
		d.Methods[i].Handler = func(srv any, ctx context.Context, decode func(any) error, between grpc.UnaryServerInterceptor) (any, error) {
			return handle(srv, ctx, func(m any) error {
				err := decode(m)
				if err != nil {
					if _, p, unknown := s.caller(ctx, "read message"); unknown == nil {
						p.garbled(lane, err)
					}
				}
				return err
			}, between)
		}
	}
	return &d
}
