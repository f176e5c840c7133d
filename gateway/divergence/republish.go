package divergence

import (
	"context"
	"errors"
	"fmt"
	"time"

	"domicile/api"
	"domicile/regions"
	"domicile/regions/loss"
)

// ReconciledFrom is the header that a record carries that was published anew from beyond
// the end of an epoch: that epoch and its sequence there.
const ReconciledFrom = "reconciled-from"

const (
	atOnce     = 64 // records on their way at one time
	atOnceSize = 4 << 20
	tries      = 8 // of a record whose state passes, before the command gives up
	tryFirst   = 200 * time.Millisecond
	tryMost    = 5 * time.Second
)

// Publish hands a record to the publish path; done is called once.
type Publish func(ctx context.Context, r api.Record, done func(api.Ack, error))

// Republish publishes what is nowhere else yet of a tail of that hash, in order, as any
// record is published and under its own id, and says after each part how far it is. A record
// that a rule refuses stays where it is and does not hold up the others; with one whose
// state passes it tries again for a while, and then gives up with the error. It can be
// called again at any time, and asks for nothing twice that is decided. When all of it is
// elsewhere it is settled.
func (d *Desk) Republish(ctx context.Context, id api.LogID, epoch api.Epoch, hash string, by Decision, publish Publish, progress func(Tail) error) (Tail, error) {
	if !d.one.TryLock() {
		return Tail{}, d.busy(id)
	}
	defer d.one.Unlock()
	t, err := d.open(id, epoch, hash)
	if err != nil {
		return t, err
	}
	o, err := d.outcomes(&t)
	if err != nil {
		return t, err
	}
	r := &run{desk: d, tail: t, outcomes: o, publish: publish}
	for it, err := range d.cfg.Store.Void(ctx, t.Log, t.Epoch) {
		if err != nil {
			return t, err
		}
		if it.Gap != nil || r.outcomes.of(it.Sequence).decided() {
			continue
		}
		if r.add(it); !r.full() {
			continue
		}
		if err := r.flush(ctx, progress); err != nil {
			return r.tail, err
		}
	}
	if err := r.flush(ctx, progress); err != nil {
		return r.tail, err
	}
	if left := r.left(); left > 0 {
		return r.tail, nil
	}
	by.How = Republished
	return d.settle(ctx, r.tail, by)
}

func (d *Desk) busy(id api.LogID) error {
	return &api.Error{Code: api.NotReady, Op: "decide about divergence", Topic: id.Topic, Region: d.cfg.Self, RetryAfter: d.cfg.Pace.Of(time.Second),
		Hint: "somebody else decides about one just now; nothing was done, look at it again"}
}

// open is a tail that is not settled yet, if it is the one that was looked at.
func (d *Desk) open(id api.LogID, epoch api.Epoch, hash string) (Tail, error) {
	t, err := d.Find(id, epoch)
	refused := func(field, value, hint string) (Tail, error) {
		return t, &api.Error{Code: api.Conflict, Op: "decide about divergence", Topic: id.Topic, Region: d.cfg.Self, Field: field, Value: value, Hint: hint}
	}
	switch {
	case err != nil:
		return t, err
	case t.Hash != hash:
		return refused("hash", hash, "what is void here has another hash: look at it again, and pass the hash of what you mean")
	case t.discarded():
		return refused("settled", t.Decision.How, "it was decided by "+t.Decision.Who+", which stands")
	}
	return t, nil
}

// run is one call of Republish.
type run struct {
	desk     *Desk
	tail     Tail
	outcomes outcomes
	publish  Publish
	batch    []regions.Item
	size     int
}

func (r *run) add(it regions.Item) {
	r.batch, r.size = append(r.batch, it), r.size+it.Record.Size()
}

func (r *run) full() bool { return len(r.batch) >= atOnce || r.size >= atOnceSize }

func (r *run) left() uint64 {
	c := r.outcomes.count(r.tail.Records, false)
	return c[loss.Open] + c[loss.Kept] + c[loss.Refused]
}

// flush publishes the batch, tries again what may pass, and notes what became of it.
func (r *run) flush(ctx context.Context, progress func(Tail) error) error {
	wait := r.desk.cfg.Pace.Of(tryFirst)
	var err error
	for try := 0; len(r.batch) > 0; try++ {
		if r.batch, err = r.send(ctx); err == nil || try == tries {
			break
		}
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return errors.Join(ctx.Err(), r.note(progress))
		case <-timer.C:
		}
		wait = min(2*wait, r.desk.cfg.Pace.Of(tryMost))
	}
	r.batch, r.size = r.batch[:0], 0
	return errors.Join(err, r.note(progress))
}

func (r *run) note(progress func(Tail) error) error {
	if err := r.outcomes.save(r.desk.journal(&r.tail)); err != nil {
		return &api.Error{Code: api.StorageFailed, Op: "write journal", Topic: r.tail.Log.Topic, Region: r.desk.cfg.Self, Err: err,
			Hint: "what was published stays published; call again when the disk has room: ids are known"}
	}
	r.tail.Fates = r.outcomes.count(r.tail.Records, false)
	return progress(r.tail)
}

type answer struct {
	item int
	ack  api.Ack
	err  error
}

// send publishes the batch once. It answers what has to be tried again, and why.
func (r *run) send(ctx context.Context) (again []regions.Item, why error) {
	answers := make(chan answer, len(r.batch))
	for i := range r.batch {
		r.publish(ctx, r.record(&r.batch[i]), func(ack api.Ack, err error) { answers <- answer{i, ack, err} })
	}
	got := make([]answer, len(r.batch))
	for range r.batch {
		a := <-answers // every publish has a deadline of its own
		got[a.item] = a
	}
	for i, a := range got {
		it := &r.batch[i]
		if out, ok := r.outcome(it, a); ok {
			r.outcomes.set(out)
			continue
		}
		again = append(again, *it)
		if why == nil {
			why = a.err
		}
	}
	return again, why
}

// record is what is published: as it was stored, and where it comes from.
func (r *run) record(it *regions.Item) api.Record {
	rec := it.Record
	from := api.Header{Name: ReconciledFrom, Value: fmt.Sprintf("%s/%d", r.tail.Epoch, it.Sequence)}
	rec.Headers = append(append([]api.Header(nil), rec.Headers...), from)
	if rec.Check() != nil {
		rec.Headers = it.Record.Headers // it has no room for another one
	}
	return rec
}

// outcome is what an answer says of a record; false: it has to be asked again.
func (r *run) outcome(it *regions.Item, a answer) (Outcome, bool) {
	out := Outcome{From: it.Sequence, To: it.Sequence, Code: api.CodeOf(a.err)}
	switch {
	case a.err == nil && a.ack.Log != r.tail.Log:
		out.Fate, out.Code = loss.Refused, api.NotHome // stored, but in another log: the policy has changed
	case a.err == nil && a.ack.Duplicate && a.ack.Epoch == r.tail.Epoch && a.ack.Sequence > r.tail.End:
		out.Fate, out.Code = loss.Refused, api.OutcomeUnknown // the void record itself was taken for it
	case a.err == nil && a.ack.Duplicate:
		out.Fate = loss.Present
	case a.err == nil:
		out.Fate = loss.Republished
	case out.Code.Retryable(), out.Code.Stored() == api.StoredUnknown:
		return out, false
	case out.Code == api.TransitDenied, out.Code == api.HomeOutsideBoundary:
		out.Fate = loss.Kept
	default:
		out.Fate = loss.Refused
	}
	if a.err == nil {
		out.Epoch, out.At = a.ack.Epoch.String(), a.ack.Sequence
	}
	return out, true
}

// Discard puts on record that what is nowhere else of a tail is not wanted. It stays until
// retention takes it in its turn.
func (d *Desk) Discard(ctx context.Context, id api.LogID, epoch api.Epoch, hash string, by Decision) (Tail, error) {
	if !d.one.TryLock() {
		return Tail{}, d.busy(id)
	}
	defer d.one.Unlock()
	t, err := d.Find(id, epoch)
	if err == nil && !t.discarded() {
		t, err = d.open(id, epoch, hash)
	}
	if err != nil {
		return t, err
	}
	by.How = Discarded
	return d.settle(ctx, t, by)
}

// settle puts the decision on record here and with the authority. A decision that stands
// is told again: the authority may not have heard it.
func (d *Desk) settle(ctx context.Context, t Tail, by Decision) (Tail, error) {
	if t.Decision == nil {
		if err := d.cfg.Store.Settle(ctx, t.Log, t.Epoch, t.Hash, by); err != nil {
			return t, err
		}
	} else if t.Decision.How != by.How {
		return t, &api.Error{Code: api.Conflict, Op: "decide about divergence", Topic: t.Log.Topic, Region: d.cfg.Self, Field: "settled", Value: t.Decision.How,
			Hint: "it was decided by " + t.Decision.Who + ", which stands"}
	}
	t, err := d.Find(t.Log, t.Epoch)
	if err != nil {
		return t, err
	}
	return t, d.cfg.Closed(ctx, t, by.How)
}
