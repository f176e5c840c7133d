package node

import (
	"cmp"
	"context"
	"errors"

	"domicile/api"
	"domicile/gateway"
	"domicile/regions"
)

// entrance is the node as its door sees it: what comes in goes to the turn that is
// open. Without one, it goes to the node of the region that holds the seat, if there
// is one; whatever cannot is refused with the reason and when to try again. Connections
// stay.
type entrance Node

// Publish hands a record to the turn's gateway, or to another node's.
func (e *entrance) Publish(ctx context.Context, r api.Record, who regions.Principal, away func(), done func(api.Ack, error)) {
	done = e.duringDrill(done)
	if t := e.turn.Load(); t != nil {
		t.gateway.Publish(ctx, r, who, away, done)
		return
	}
	if e.out == nil {
		done(api.Ack{}, (*Node)(e).notHere("publish"))
		return
	}
	e.out.Publish(ctx, r, who, away, func(ack api.Ack, err error) {
		e.admin.HandedOver(api.CodeOf(err))
		done(ack, err)
	})
}

// duringDrill has answers say which drill held links of this region when the record came
// in, or holds them now.
func (e *entrance) duringDrill(done func(api.Ack, error)) func(api.Ack, error) {
	before := e.drills.Active()
	return func(ack api.Ack, err error) {
		id := cmp.Or(e.drills.Active(), before)
		if id == "" {
			done(ack, err)
			return
		}
		ack.Drill = id
		var refusal *api.Error
		if errors.As(err, &refusal) {
			told := *refusal // it may be anybody's
			told.Drill, err = id, &told
		}
		done(ack, err)
	}
}

// Read reads from the turn's logs, or at the node of the region that holds the seat. When
// the turn ends the reader is told to go on from where it is.
func (e *entrance) Read(ctx context.Context, q gateway.ReadRequest, who regions.Principal, send func(gateway.Batch) error) error {
	if t := e.turn.Load(); t != nil {
		return t.read(ctx, q, who, send)
	}
	n := (*Node)(e)
	if n.out == nil {
		return n.notHere("read")
	}
	return n.readOver(ctx, q, who, send)
}
