package fabric

import (
	"context"
	"fmt"
	"slices"
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
	items, under, err := l.checkEpochs(items)
	if err != nil {
		return cursor, err
	}
	ctx, cancel := context.WithTimeout(ctx, l.f.cfg.Pace.Of(AppendDeadline))
	defer cancel()
	results := make(chan regions.Stored, len(items))
	entries := l.entries(incarnation, items, results)
	if err := l.admit(entries, under); err != nil {
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

// checkEpochs holds a batch that starts where the copy ends against what is known of the
// log's epochs: one that has ended takes nothing more, and a later one may begin only where
// a history says that the present one ended. A gap comes with the epoch of what follows
// it, and leaves with that of its last sequence. What it says stands only as long as the
// log's tenure is under.
func (l mirrored) checkEpochs(items []regions.Item) (_ []regions.Item, under *Tenure, err error) {
	at := l.durableEnd()
	var known Tenure
	if at.owner != nil {
		known = *at.owner
	}
	epoch, last := at.Epoch, at.Sequence
	if len(known.History) > 0 {
		items = slices.Clone(items)
	}
	for i := range items {
		it := &items[i]
		upTo := last
		if it.Gap != nil {
			upTo = it.Sequence
			if of, ok := known.History.At(upTo); ok && of.Compare(it.Epoch) < 0 {
				it.Epoch = of
			}
		}
		stale := it.Epoch.Compare(epoch) < 0 || known.History.Judge(it.Epoch, it.Sequence) == regions.Beyond ||
			known.State == stateFenced && it.Epoch.Compare(known.Fenced) <= 0
		switch {
		case stale:
			return nil, nil, l.epochRefused(api.StaleEpoch, it.Epoch, "the epoch has ended before this record: what it holds beyond its end is void")
		case it.Epoch != epoch && epoch != (api.Epoch{}) && !known.History.Leads(epoch, last, it.Epoch, upTo):
			return nil, nil, l.epochRefused(api.HistoryNeeded, it.Epoch, fmt.Sprintf("the copy ends at %d of epoch %s: learn from the authority where that ended, then ask for the cursor again", last, epoch))
		}
		epoch, last = it.Epoch, it.Sequence
	}
	return items, at.owner, nil
}

func (l mirrored) epochRefused(code api.Code, epoch api.Epoch, hint string) error {
	return &api.Error{Code: code, Op: "apply batch", Topic: l.cfg.ID.Topic, Region: l.f.cfg.Region, Field: "epoch", Value: epoch.String(), Hint: hint}
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

func (l mirrored) admit(entries []*entry, under *Tenure) error {
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
	case l.durable.owner != under:
		return &api.Error{Code: api.NotReady, Op: "apply batch", Topic: l.cfg.ID.Topic, Region: l.f.cfg.Region,
			Hint: "the log's epochs have changed meanwhile; ask for the cursor again"}
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

// itemsHeld: items of an earlier batch, or a marker behind which the log goes on elsewhere,
// are not decided yet; mu is held.
func (l *store) itemsHeld() bool {
	return l.holds(func(e *entry) bool { return !e.control() || e.mark != nil && !e.mark.stays })
}

// holds: an entry that is one of those is not decided yet; mu is held.
func (l *store) holds(one func(*entry) bool) bool {
	for _, list := range [][]*entry{l.queue, l.inflight} {
		for _, e := range list {
			if !e.resolved && one(e) {
				return true
			}
		}
	}
	return false
}
