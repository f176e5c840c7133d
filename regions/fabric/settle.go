package fabric

import (
	"context"
	"iter"
	"slices"
	"time"

	"domicile/api"
	"domicile/regions"
)

// What became of void records.
const (
	Republished = "republished" // those that were wanted went through the publish path again
	Discarded   = "discarded"
)

// Settlement is an operator's decision about a divergence.
type Settlement struct {
	How    string    `json:"how"` // Republished or Discarded
	Who    string    `json:"who"`
	Reason string    `json:"reason"`
	At     time.Time `json:"at"`
}

// Settle puts on record, durably, what an operator decided about a divergence of an open
// log; hash is the divergence's, so that what is decided about is what was looked at. From
// then on retention may take its records in their turn; the figures and the decision stay
// as long as they do. One decision is taken once: another one is refused with CONFLICT.
func (f *Fabric) Settle(ctx context.Context, id api.LogID, epoch api.Epoch, hash string, s Settlement) error {
	refused := func(code api.Code, field, hint string) error {
		return &api.Error{Code: code, Op: "settle divergence", Topic: id.Topic, Region: f.cfg.Region, Field: field, Hint: hint}
	}
	if s.How != Republished && s.How != Discarded || s.Who == "" || s.Reason == "" {
		return refused(api.BadRequest, "settlement", "say how (republished or discarded), who decided it, and why")
	}
	l, _, err := f.divergence(id, epoch, "settle divergence")
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, f.cfg.Pace.Of(AppendDeadline))
	defer cancel()
	l.sweeping.Lock()
	defer l.sweeping.Unlock()
	l.mu.Lock()
	undecided := l.holds(func(e *entry) bool { return e.mark != nil })
	l.mu.Unlock()
	if undecided {
		return refused(api.NotReady, "settlement", "an earlier decision is on its way to the disk: call again")
	}
	at := l.durableEnd()
	t := l.nextTenure(at)
	t.Role = at.owner.Role
	t.Diverged = slices.Clone(t.Diverged)
	i := slices.IndexFunc(t.Diverged, func(d Divergence) bool { return d.Epoch == epoch })
	if i < 0 { // it was found before the lock was
		return refused(api.BadRequest, "epoch", "retention has taken what was void of this epoch")
	}
	d := &t.Diverged[i]
	s.At = f.cfg.Clock.Now().Round(0).UTC()
	switch was := d.Settled; {
	case d.Hash != hash:
		return refused(api.Conflict, "hash", "the void records are others than those that were looked at: look again")
	case was != nil && was.How == s.How && was.Who == s.Who && was.Reason == s.Reason:
		return l.enroll()
	case was != nil:
		return refused(api.Conflict, "settlement", "it is settled already: "+was.How+" by "+was.Who)
	}
	d.Settled = &s
	at.owner = &t
	if err := l.put(ctx, &marked{control: controlSettle, from: at, stays: true}); err != nil {
		return err
	}
	f.step("settled")
	l.log.Info("void records were settled", "epoch", epoch.String(), "how", s.How, "who", s.Who, "records", d.Records, "hash", d.Hash)
	f.kickSweep()
	return l.enroll()
}

// unsettledEpoch names the first epoch whose void records hold retention up; "": none does.
func (l *store) unsettledEpoch() string {
	if all := l.voids.Load(); all != nil {
		for i := range *all {
			if (*all)[i].Settled == nil {
				return (*all)[i].Epoch.String()
			}
		}
	}
	return ""
}

// Diverged lists what an open log holds that is void, oldest first, with what operators
// decided about it. Those are forgotten, after a while, whose records retention took.
func (f *Fabric) Diverged(id api.LogID) ([]Divergence, error) {
	t, _, err := f.Tenure(id)
	return slices.Clone(t.Diverged), err
}

// Void reads, in order, what an open log holds of an epoch beyond its end: for an operator
// of this region, and for publishing it anew. It ends with the first error. What a gap
// stands for has no record.
func (f *Fabric) Void(ctx context.Context, id api.LogID, epoch api.Epoch) iter.Seq2[regions.Item, error] {
	return func(yield func(regions.Item, error) bool) {
		err := f.readVoid(ctx, id, epoch, func(it regions.Item) bool { return yield(it, nil) })
		if err != nil {
			yield(regions.Item{}, err)
		}
	}
}

func (f *Fabric) readVoid(ctx context.Context, id api.LogID, epoch api.Epoch, on func(regions.Item) bool) error {
	l, d, err := f.divergence(id, epoch, "read void records")
	if err != nil {
		return err
	}
	at := l.durableEnd()
	from, _, err := l.find(ctx, at, func(m *message) bool {
		return m.position.Sequence > d.Back.Sequence || m.void && m.position.Sequence == d.Back.Sequence
	})
	if err != nil {
		return err
	}
	seen := uint64(0)
	for next := from; next <= at.broker && seen < d.Count; {
		got, err := l.readUpTo(ctx, next, at.broker, readMessages, readBytes)
		if err != nil || len(got) == 0 {
			return err
		}
		for _, m := range got {
			next = m.broker + 1
			switch item := m.control == "" || m.control == controlGap; {
			case item && d.holds(m.position):
			case item && !l.isVoid(m) && m.position.Sequence > d.Back.Sequence:
				return nil // of what could be read that was all
			default:
				continue
			}
			it := m.item
			if it.Gap != nil {
				it.Record = api.Record{}
			}
			seen += it.Sequence - m.firstSequence() + 1
			if !on(it) {
				return nil
			}
		}
	}
	return nil
}

// divergence finds an open log's divergence by its epoch.
func (f *Fabric) divergence(id api.LogID, epoch api.Epoch, op string) (*store, Divergence, error) {
	l, err := f.opened(id, op)
	if err != nil {
		return nil, Divergence{}, err
	}
	if t := l.durableEnd().owner; t != nil {
		for _, d := range t.Diverged {
			if d.Epoch == epoch {
				return l, d, nil
			}
		}
	}
	return nil, Divergence{}, &api.Error{Code: api.BadRequest, Op: op, Topic: id.Topic, Region: f.cfg.Region, Field: "epoch", Value: epoch.String(),
		Hint: "the log holds nothing void of this epoch: see what diverged"}
}
