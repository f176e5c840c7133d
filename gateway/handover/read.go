package handover

import (
	"context"
	"errors"
	"time"

	"domicile/api"
	pb "domicile/api/domicile/v1"
	"domicile/api/wire"
	"domicile/regions"
)

// Reads asks the holder of the seat for a batch of a read.
const Reads = "read"

// The bounds of reads at the holder's.
const (
	MaxReaders   = 256       // of one node; over it: OVERLOADED
	MaxPartBytes = 512 << 10 // of one batch; one record may exceed it
	MaxWaitBytes = 64 << 10  // of what a waiting call brings: all of them may be answered at once

	fetches = 8 // calls that bring more, under way at once
)

// At pace 1.
const (
	partIn    = 5 * time.Second // a batch is answered
	partWaits = 2 * time.Second // longer, when it may wait: a batch is due every second
)

// Read reads at the holder's, batch by batch, until the end or, if q follows, until ctx
// ends. It ends with NOT_READY when the holder changes or does not answer: whoever reads
// goes on from the last batch's position. q is Read's own. send runs on this goroutine.
func (o *Out) Read(ctx context.Context, q *pb.ReadRequest, who regions.Principal, send func(*pb.ReadResponse) error) error {
	h, held, err := o.enterRead()
	if err != nil {
		return err
	}
	defer o.readers.Add(-1)
	reading, end := context.WithCancelCause(ctx)
	defer end(nil)
	defer context.AfterFunc(held, func() { end(context.Cause(held)) })()
	err = o.read(reading, h, wire.ReadOver{Term: h.Term, Request: q, Principal: who}, send)
	if err != nil && ctx.Err() == nil && held.Err() != nil {
		return context.Cause(held) // whatever was met at a holder that holds no more
	}
	return err
}

func (o *Out) read(ctx context.Context, h Holder, ask wire.ReadOver, send func(*pb.ReadResponse) error) error {
	sums := map[api.LogID]*pb.LogState{}
	for {
		batch, ended, err := o.part(ctx, h, &ask)
		switch {
		case err != nil:
			return err
		case batch == nil && !ask.Wait:
			return o.unreadPart(h, errors.New("an answer without a batch"))
		case batch == nil:
			ask.Wait = false
			continue
		}
		ask.Request.From = &pb.ReadRequest_Position{Position: batch.GetPosition()}
		ask.Wait = ask.Request.GetFollow() && len(batch.GetRecords()) == 0
		sum(sums, batch.GetLogs())
		if err := send(batch); err != nil || ended {
			return err
		}
	}
}

// sum counts over all batches of a stream what each of them counts for itself.
func sum(sums map[api.LogID]*pb.LogState, states []*pb.LogState) {
	for _, s := range states {
		log := wire.LogFromProto(s.GetLog())
		if before := sums[log]; before != nil {
			s.WithheldFromReader += before.GetWithheldFromReader()
			s.Expired += before.GetExpired()
			s.Diverged += before.GetDiverged()
		}
		sums[log] = &pb.LogState{WithheldFromReader: s.GetWithheldFromReader(), Expired: s.GetExpired(), Diverged: s.GetDiverged()}
	}
}

// part asks for one batch. What may be large has to find a free place first: the
// answers cross the routes that publishes need.
func (o *Out) part(ctx context.Context, h Holder, ask *wire.ReadOver) (*pb.ReadResponse, bool, error) {
	limit := o.cfg.Pace.Of(partIn)
	if ask.Wait {
		limit += o.cfg.Pace.Of(partWaits)
	} else {
		select {
		case o.fetches <- struct{}{}:
			defer func() { <-o.fetches }()
		case <-ctx.Done():
			return nil, false, ctx.Err()
		}
	}
	body, err := wire.EncodeReadOver(ask)
	if err != nil {
		return nil, false, &api.Error{Code: api.BadRequest, Op: "read", Field: "topic", Hint: "it is no valid UTF-8 where text is expected"}
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	answer, err := o.cfg.Call(ctx, h.Node, Reads, body)
	if err != nil {
		return nil, false, o.unreadPart(h, err)
	}
	return wire.DecodeReadPart(answer)
}

// unreadPart is the holder's own error, or, if it gave none, the one that says to read
// on: a read that failed leaves nothing in doubt.
func (o *Out) unreadPart(h Holder, err error) error {
	var e *api.Error
	if errors.As(err, &e) && e.Op != "call node" {
		return e
	}
	return &api.Error{Code: api.NotReady, Op: "read", Region: o.cfg.Region, RetryAfter: o.cfg.Pace.Of(200 * time.Millisecond), Err: err,
		Hint: "gateway " + h.Node + " holds the region's seat and did not answer; read on from the last position"}
}

// enterRead counts a reader in. The context ends when the holder does not hold any more.
func (o *Out) enterRead() (Holder, context.Context, error) {
	o.mu.Lock()
	h, held := o.holder, o.held
	o.mu.Unlock()
	refused := &api.Error{Code: api.NotReady, Op: "read", Region: o.cfg.Region, RetryAfter: o.cfg.Pace.Of(time.Second)}
	switch {
	case held.Err() != nil:
		return h, nil, context.Cause(held)
	case h.Node == "":
		refused.Hint = h.Reason + "; read on from the last position"
		return h, nil, refused
	case o.readers.Add(1) > MaxReaders:
		o.readers.Add(-1)
		refused.Code, refused.Hint = api.Overloaded, "too many readers are at this node, which hands reads to the holder of the region's seat; read at another address of the region"
		return h, nil, refused
	}
	return h, held, nil
}

// seatMoves is what readers are told when the holder changes.
func (o *Out) seatMoves() error {
	return &api.Error{Code: api.NotReady, Op: "read", Region: o.cfg.Region, RetryAfter: o.cfg.Pace.Of(200 * time.Millisecond),
		Hint: "the region's seat moves; read on from the last position"}
}
