package node

import (
	"context"

	"domicile/api"
	"domicile/gateway/handover"
	"domicile/regions"
	"domicile/regions/fabric"
)

// openHandover makes this node's ways to and from the holder of the region's seat. In a
// region of one node there is nobody to hand anything to.
func (n *Node) openHandover(context.Context) error {
	if n.cfg.Node == "" {
		return nil
	}
	n.out = handover.NewOut(handover.OutConfig{Region: n.cfg.Region, Call: n.fabric.Call, Clock: n.seams.Clock, Pace: n.seams.Pace, Logger: n.logger})
	n.onClose("hand-over to the holder", n.out.Close)
	n.fabric.Serve(handover.Outcomes, n.out.Settle)
	n.fabric.Serve(handover.Records, n.takeHandover)
	n.fabric.Serve(handover.Reads, n.takeRead)
	n.onClose("hand-over from others", func(context.Context) error {
		n.fabric.Serve(handover.Records, nil)
		n.fabric.Serve(handover.Reads, nil)
		return nil
	})
	return nil
}

// takeHandover gives a sister's records to the turn that is open.
func (n *Node) takeHandover(ctx context.Context, from string, body []byte) ([]byte, error) {
	if t := n.turn.Load(); t != nil {
		return t.in.Take(ctx, from, body)
	}
	return nil, n.notHere("publish")
}

// followHolder tells the hand-over who holds the seat, until ctx ends.
func (n *Node) followHolder(ctx context.Context) {
	for {
		seat, changed := n.seats()
		n.out.SetHolder(n.holderOf(seat))
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}

func (n *Node) holderOf(s fabric.Seat) handover.Holder {
	switch {
	case s.Mine:
		return handover.Holder{Reason: "this node is opening the region's logs"}
	case s.Node == n.cfg.Node: // it starts its broker again
		return handover.Holder{Reason: s.Reason}
	case s.Node == "" && s.Reason == "":
		return handover.Holder{Reason: "no gateway holds the region's seat"}
	}
	return handover.Holder{Node: s.Node, Term: s.Term, Reason: s.Reason}
}

// openHandover takes what the region's other nodes hand over, under this turn's term.
func (t *turn) openHandover(context.Context) error {
	if t.cfg.Node == "" {
		return nil
	}
	t.in = handover.NewIn(handover.InConfig{
		Region: t.cfg.Region, Term: t.seat.Term, Call: t.fabric.Call, Refused: t.refused, Clock: t.seams.Clock, Pace: t.seams.Pace, Logger: t.logger,
		Publish: func(ctx context.Context, r api.Record, who regions.Principal, away func(), done func(api.Ack, error)) {
			if err := t.quotas.Take(&r, who); err != nil {
				done(api.Ack{}, err)
				return
			}
			t.gateway.Publish(ctx, r, who, away, done)
		},
	})
	t.onClose("hand-over", t.in.Close)
	return nil
}
