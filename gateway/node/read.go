package node

import (
	"context"
	"errors"

	"domicile/api"
	pb "domicile/api/domicile/v1"
	"domicile/api/wire"
	"domicile/gateway"
	"domicile/gateway/door"
	"domicile/gateway/handover"
	"domicile/regions"
)

// read reads from the turn's logs until the turn ends; then the reader is told to go on
// from where it is.
func (t *turn) read(ctx context.Context, q gateway.ReadRequest, who regions.Principal, send func(gateway.Batch) error) error {
	reading, end := context.WithCancelCause(ctx)
	defer end(nil)
	defer context.AfterFunc(t.over, func() { end(context.Cause(t.over)) })()
	err := t.gateway.Read(reading, q, who, send)
	if err != nil && ctx.Err() == nil && t.over.Err() != nil {
		return context.Cause(t.over) // whatever the reader met in logs that are closing
	}
	return err
}

// readOver reads at the holder of the seat. Its policy judges what leaves it, and this
// node's judges again: a policy in force here holds for every reader at this door.
func (n *Node) readOver(ctx context.Context, q gateway.ReadRequest, who regions.Principal, send func(gateway.Batch) error) error {
	kept := map[api.LogID]uint64{}
	return n.out.Read(ctx, door.RequestToProto(q), who, func(m *pb.ReadResponse) error {
		return gateway.SendAgain(n.gate, n.seams.Pace, door.BatchFromProto(m), who, kept, send)
	})
}

// takeRead gives a sister's reader one batch of the turn that is open.
func (n *Node) takeRead(ctx context.Context, _ string, body []byte) ([]byte, error) {
	ask, err := wire.DecodeReadOver(body)
	if err != nil {
		return nil, err
	}
	t := n.turn.Load()
	if t == nil || t.seat.Term != ask.Term {
		return nil, n.notHere("read")
	}
	p := &part{wait: ask.Wait}
	q := door.RequestFromProto(ask.Request)
	if q.Bytes == 0 || q.Bytes > handover.MaxPartBytes && q.Bytes <= gateway.MaxReadBytes {
		q.Bytes = handover.MaxPartBytes
	}
	if p.wait {
		q.Bytes = min(q.Bytes, handover.MaxWaitBytes)
	}
	p.follow = q.Follow
	switch err := t.read(ctx, q, ask.Principal, p.take); {
	case errors.Is(err, errPartFull):
		return wire.EncodeReadPart(p.batch, false)
	case err != nil:
		return nil, err
	}
	return wire.EncodeReadPart(p.batch, true)
}

// errPartFull ends a read that has what one call is to bring.
var errPartFull = errors.New("the part is full")

// part is what one call of a sister's reader brings.
type part struct {
	wait, follow bool
	batches      int
	batch        *pb.ReadResponse // nil: more than a waiting call brings
}

// take ends the read with the first batch that holds records. Without any, a read that
// follows ends at once or, if it waits, when a batch is due; another goes on to its end.
func (p *part) take(b gateway.Batch) error {
	p.batches++
	size := 0
	for i := range b.Records {
		size += b.Records[i].Item.Size()
	}
	if p.wait && size > handover.MaxWaitBytes {
		p.batch = nil
		return errPartFull
	}
	p.batch = door.BatchToProto(b)
	if len(b.Records) > 0 || p.follow && (!p.wait || p.batches > 1) {
		return errPartFull
	}
	return nil
}
