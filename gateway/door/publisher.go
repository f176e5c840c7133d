package door

import (
	"context"

	"domicile/api"
	pb "domicile/api/domicile/v1"
	"domicile/api/wire"
)

// publisher is PublisherService.
type publisher struct {
	pb.UnimplementedPublisherServiceServer
	server *Server
}

// Publish waits for the outcome of one record.
func (p *publisher) Publish(ctx context.Context, req *pb.PublishRequest) (*pb.PublishResponse, error) {
	type outcome struct {
		ack api.Ack
		err error
	}
	out := make(chan outcome, 1)
	r := wire.RecordFromProto(req.GetRecord())
	r.Retry = wire.RetryFromProto(req.GetRetry())
	p.server.config.Gateway.Publish(ctx, r, principalOf(ctx), nil, func(ack api.Ack, err error) {
		out <- outcome{ack, err}
	})
	select {
	case o := <-out:
		if o.err != nil {
			return nil, wire.GRPCError(o.err)
		}
		return &pb.PublishResponse{Ack: wire.AckToProto(o.ack)}, nil
	case <-ctx.Done():
		return nil, wire.GRPCError(&api.Error{Code: api.OutcomeUnknown, Op: "publish", Err: ctx.Err(), Hint: "send it again with the same id"})
	}
}

// PublishStream pipelines: a goroutine receives and hands over, this one sends
// outcomes and credit.
func (p *publisher) PublishStream(ss pb.PublisherService_PublishStreamServer) error {
	s := p.server
	pipe := newPipe(s.config.Gateway)
	s.workers.Go(func() { pipe.receive(ss, principalOf(ss.Context()), s.draining.Done()) })
	return pipe.send(ss, s.draining.Done())
}
