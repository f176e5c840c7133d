package node

import (
	"context"
	"errors"

	"domicile/api"
	pb "domicile/api/domicile/v1"
	"domicile/api/wire"
)

// asks is the kind of call by which operators' questions reach the node that knows.
const asks = "ask"

// maxAsks bounds the questions that this node has under way to others: answers may be
// large, and cross the routes that publishes need.
const maxAsks = 8

// serveAsks answers what operators ask at the region's other nodes.
func (n *Node) serveAsks() {
	n.fabric.Serve(asks, func(ctx context.Context, _ string, body []byte) ([]byte, error) {
		q, err := wire.DecodeAsk(body)
		if err != nil {
			return nil, err
		}
		a, err := n.admin.Answer(ctx, q)
		if err != nil {
			return nil, err
		}
		return wire.EncodeAnswer(a)
	})
	n.onClose("questions", func(context.Context) error { n.fabric.Serve(asks, nil); return nil })
}

// ask asks another node of the region, until ctx ends.
func (n *Node) ask(ctx context.Context, node string, q *pb.AskOver) (*pb.AskAnswer, error) {
	unanswered := func(err error) error {
		return &api.Error{Code: api.NotReady, Op: "ask node", Region: n.cfg.Region, Err: err,
			Hint: "gateway " + node + " did not answer; ask again, or ask it"}
	}
	select {
	case n.asking <- struct{}{}:
		defer func() { <-n.asking }()
	case <-ctx.Done():
		return nil, unanswered(ctx.Err())
	}
	body, err := wire.EncodeAsk(q)
	if err != nil {
		return nil, err
	}
	answer, err := n.fabric.Call(ctx, node, asks, body)
	var e *api.Error
	switch {
	case errors.As(err, &e) && e.Op != "call node":
		return nil, e // its own words
	case err != nil:
		return nil, unanswered(err)
	}
	return wire.DecodeAnswer(answer)
}
