package mirror_test

import (
	"context"
	"fmt"
	"sort"
	"sync"
	"sync/atomic"
	"time"

	"domicile/api"
	"domicile/regions"
)

// memoryLog is a log kept in memory, home or copy, for scenarios that need faults at
// an exact moment and a clock that is set.
type memoryLog struct {
	id          api.LogID
	clock       regions.Clock
	incarnation string

	mu       sync.Mutex
	items    []regions.Item // durable
	pending  []regions.Item // stamped, not released
	last     time.Time
	sequence uint64
	cursor   regions.Cursor
	expired  uint64
	changed  chan struct{}
	full     bool
	race     func()       // runs once, between two looks at the log's end
	deaf     atomic.Bool  // readers give nothing
	broken   atomic.Bool  // no reader can be opened
	denied   atomic.Int64 // readers that could not be opened
	readers  atomic.Int64
}

func newMemoryLog(id api.LogID, incarnation string, clock regions.Clock) *memoryLog {
	return &memoryLog{id: id, clock: clock, incarnation: incarnation, changed: make(chan struct{})}
}

func (l *memoryLog) ID() api.LogID { return l.id }

func (l *memoryLog) epoch() api.Epoch { return api.StaticEpoch("eu-west") }

// raced runs what was to come between two looks.
func (l *memoryLog) raced() {
	l.mu.Lock()
	race := l.race
	l.race = nil
	l.mu.Unlock()
	if race != nil {
		race()
	}
}

func (l *memoryLog) Head() regions.Head {
	defer l.raced()
	l.mu.Lock()
	defer l.mu.Unlock()
	h := regions.Head{Incarnation: l.incarnation, Epoch: l.epoch(), Term: 1, First: l.expired + 1}
	if n := len(l.items); n > 0 {
		h.Sequence, h.Time = l.items[n-1].Sequence, l.items[n-1].Time
	}
	return h
}

func (l *memoryLog) Changed(after uint64) <-chan struct{} {
	head := l.Head().Sequence
	l.mu.Lock()
	defer l.mu.Unlock()
	if head > after {
		c := make(chan struct{})
		close(c)
		return c
	}
	return l.changed
}

func (l *memoryLog) moved() {
	close(l.changed)
	l.changed = make(chan struct{})
}

// stamp begins an append; release makes the n oldest durable.
func (l *memoryLog) stamp(residency string, size int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.clock.Now()
	if now.Before(l.last) {
		now = l.last
	}
	l.last = now
	l.sequence++
	l.pending = append(l.pending, regions.Item{Sequence: l.sequence, Epoch: l.epoch(), Term: 1, Time: now, Revision: "1-a",
		Record: api.Record{ID: fmt.Sprintf("id-%06d", l.sequence), Topic: l.id.Topic, Body: make([]byte, size),
			Tags: []api.Tag{{Name: regions.ResidencyTag, Value: residency}}}})
}

func (l *memoryLog) release(n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	n = min(n, len(l.pending))
	l.items = append(l.items, l.pending[:n]...)
	l.pending = append([]regions.Item(nil), l.pending[n:]...)
	l.moved()
}

func (l *memoryLog) append(residency string, size int) {
	l.stamp(residency, size)
	l.release(1 << 30)
}

func (l *memoryLog) expire(upto uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.expired = upto
}

func (l *memoryLog) ClosedInstant() time.Time {
	defer l.raced()
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.pending) > 0 {
		return l.pending[0].Time
	}
	return l.clock.Now()
}

func (l *memoryLog) Append(regions.Draft, func(regions.Stored)) { panic("not used by the mirror") }

func (l *memoryLog) After(context.Context, time.Time) (uint64, error) { return 0, nil }

func (l *memoryLog) Reader(_ context.Context, after uint64) (regions.Reader, error) {
	if l.broken.Load() {
		l.denied.Add(1)
		return nil, &api.Error{Code: api.NotReady}
	}
	l.readers.Add(1)
	return &memoryReader{log: l, next: after + 1}, nil
}

type memoryReader struct {
	log  *memoryLog
	next uint64
}

func (r *memoryReader) Close() { r.log.readers.Add(-1) }

func (r *memoryReader) Next(_ context.Context, limit regions.ReadLimit) ([]regions.Item, error) {
	l := r.log
	if l.deaf.Load() {
		return nil, nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if r.next <= l.expired {
		last := l.items[l.expired-1]
		gap := regions.Item{Sequence: l.expired, Epoch: l.epoch(), Term: 1, Time: last.Time,
			Gap: &regions.Gap{Kind: regions.Expired, From: r.next, To: l.expired}}
		r.next = l.expired + 1
		return []regions.Item{gap}, nil
	}
	i := sort.Search(len(l.items), func(i int) bool { return l.items[i].Sequence >= r.next })
	var out []regions.Item
	bytes := 0
	for ; i < len(l.items) && len(out) < limit.Records && (len(out) == 0 || bytes < limit.Bytes); i++ {
		out = append(out, l.items[i])
		bytes += l.items[i].Size()
		r.next = l.items[i].Sequence + 1
	}
	return out, nil
}

func (l *memoryLog) Cursor() regions.Cursor {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.cursor
}

func (l *memoryLog) Apply(_ context.Context, incarnation string, items []regions.Item) (regions.Cursor, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.full {
		return l.cursor, &api.Error{Code: api.StorageFull}
	}
	if l.incarnation != "" && incarnation != l.incarnation {
		return l.cursor, regions.ErrIncarnation
	}
	from := items[0].Sequence
	if g := items[0].Gap; g != nil {
		from = g.From
	}
	if from != l.cursor.Sequence+1 {
		return l.cursor, regions.ErrOutOfOrder
	}
	l.incarnation = incarnation
	for i := range items {
		l.cursor.Ledger.Add(&items[i])
	}
	last := items[len(items)-1]
	l.items = append(l.items, items...)
	l.cursor.Incarnation, l.cursor.Epoch, l.cursor.Sequence, l.cursor.Time = incarnation, last.Epoch, last.Sequence, last.Time
	l.moved()
	return l.cursor, nil
}

func (l *memoryLog) setFull(full bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.full = full
}

// records lists the data records and gaps of a copy.
func (l *memoryLog) contents() (ids []uint64, gaps []regions.Gap) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, i := range l.items {
		if i.Gap != nil {
			gaps = append(gaps, *i.Gap)
		} else {
			ids = append(ids, i.Sequence)
		}
	}
	return ids, gaps
}
