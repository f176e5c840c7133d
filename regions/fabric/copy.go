package fabric

import (
	"context"
	"sync"
	"time"

	"domicile/api"
	"domicile/regions"
)

// mirrored is a copy of a log whose home is elsewhere.
type mirrored struct {
	*store
	apply *sync.Mutex // one batch at a time
}

var _ regions.CopyLog = mirrored{}

// Cursor is the copy's last durable item.
func (l mirrored) Cursor() regions.Cursor {
	l.mu.Lock()
	defer l.mu.Unlock()
	d := &l.durable
	return regions.Cursor{Incarnation: d.Incarnation, Epoch: d.Epoch, Sequence: d.Sequence, Time: d.time, Ledger: d.ledger}
}

// Apply appends items exactly once, in order, and returns when they are durable. After
// OUTCOME_UNKNOWN the cursor, once it is readable again, says what was stored.
func (l mirrored) Apply(ctx context.Context, incarnation string, items []regions.Item) (regions.Cursor, error) {
	l.apply.Lock()
	defer l.apply.Unlock()
	cursor := l.Cursor()
	if len(items) == 0 {
		return cursor, nil
	}
	if err := checkOrder(cursor, incarnation, items); err != nil {
		return cursor, err
	}
	ctx, cancel := context.WithTimeout(ctx, l.f.cfg.Pace.Of(AppendDeadline))
	defer cancel()
	results := make(chan regions.Stored, len(items))
	entries := l.entries(incarnation, items, results)
	if err := l.admit(entries); err != nil {
		return cursor, err
	}
	for range entries {
		select {
		case s := <-results:
			if s.Err != nil {
				return l.Cursor(), s.Err
			}
		case <-ctx.Done():
			return l.Cursor(), unknown("the batch was not decided in time")
		}
	}
	return l.Cursor(), nil
}

func checkOrder(at regions.Cursor, incarnation string, items []regions.Item) error {
	if at.Sequence > 0 && at.Incarnation != incarnation {
		return regions.ErrIncarnation
	}
	next := at.Sequence + 1
	for i := range items {
		from := items[i].Sequence
		if g := items[i].Gap; g != nil {
			if g.To != from || g.From > g.To {
				return regions.ErrOutOfOrder
			}
			from = g.From
		}
		if from != next {
			return regions.ErrOutOfOrder
		}
		next = items[i].Sequence + 1
	}
	return nil
}

func (l mirrored) entries(incarnation string, items []regions.Item, results chan<- regions.Stored) []*entry {
	deadline := time.Now().Add(l.f.cfg.Pace.Of(AppendDeadline))
	entries := make([]*entry, len(items))
	for i := range items {
		e := &entry{item: items[i], size: items[i].Size() + 256, deadline: deadline,
			position: position{Incarnation: incarnation}, done: func(s regions.Stored) { results <- s }}
		e.item.Record.Topic = l.cfg.ID.Topic
		if e.item.Gap != nil {
			e.item.Record = api.Record{}
		} else {
			e.hash = l.f.hash.sum(domainBody, e.item.Record.Body)
		}
		entries[i] = e
	}
	return entries
}

func (l mirrored) admit(entries []*entry) error {
	if err := l.f.storageFailed(); err != nil {
		return err
	}
	size := 0
	for _, e := range entries {
		size += e.size
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.refusal != nil:
		return l.refusal
	case l.f.suspension() != nil:
		return l.f.suspension()
	case l.itemsHeld():
		return &api.Error{Code: api.NotReady, Op: "apply batch", Topic: l.cfg.ID.Topic, Region: l.f.cfg.Region,
			Hint: "an earlier batch is still being read back; ask for the cursor again"}
	case l.count+len(entries) > MaxQueued || !l.room(size):
		return &api.Error{Code: api.Overloaded, Op: "apply batch", Topic: l.cfg.ID.Topic, Region: l.f.cfg.Region,
			RetryAfter: l.f.cfg.Pace.Of(200 * time.Millisecond), Hint: "send smaller batches, or the same one again"}
	}
	if err := l.f.full(l.cfg.ID.Topic, size); err != nil {
		return err
	}
	l.enqueue(entries...)
	return nil
}

// itemsHeld: items of an earlier batch are not decided yet; mu is held.
func (l *store) itemsHeld() bool {
	for _, list := range [][]*entry{l.queue, l.inflight} {
		for _, e := range list {
			if e.sweep == nil && !e.resolved {
				return true
			}
		}
	}
	return false
}
