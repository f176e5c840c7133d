package link

import (
	"context"
	"net"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
)

// above is a connection whose hands are shaken, with what a hook puts around it.
func (h Hooks) above(peer string, plane Plane, c net.Conn) net.Conn {
	if h.Above == nil {
		return c
	}
	return h.Above(peer, plane, c)
}

// hooked is what the hooks ask of gRPC, for both sides of a link; nothing without one.
func hooked(h Hooks) ([]grpc.ServerOption, []grpc.DialOption) {
	if h.Sending == nil {
		return nil, nil
	}
	sending := func(m any) {
		if m, ok := m.(proto.Message); ok {
			h.Sending(m)
		}
	}
	return []grpc.ServerOption{
			grpc.UnaryInterceptor(func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
				answer, err := next(ctx, req)
				if err == nil {
					sending(answer)
				}
				return answer, err
			}),
			grpc.StreamInterceptor(func(srv any, s grpc.ServerStream, _ *grpc.StreamServerInfo, next grpc.StreamHandler) error {
				return next(srv, serverStream{s, sending})
			}),
		}, []grpc.DialOption{
			grpc.WithUnaryInterceptor(func(ctx context.Context, method string, req, answer any, cc *grpc.ClientConn, next grpc.UnaryInvoker, opts ...grpc.CallOption) error {
				sending(req)
				return next(ctx, method, req, answer, cc, opts...)
			}),
			grpc.WithStreamInterceptor(func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, next grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
				s, err := next(ctx, desc, cc, method, opts...)
				return clientStream{s, sending}, err
			}),
		}
}

type serverStream struct {
	grpc.ServerStream
	sending func(any)
}

func (s serverStream) SendMsg(m any) error {
	s.sending(m)
	return s.ServerStream.SendMsg(m)
}

type clientStream struct {
	grpc.ClientStream
	sending func(any)
}

func (s clientStream) SendMsg(m any) error {
	s.sending(m)
	return s.ClientStream.SendMsg(m)
}
