package fabric

import (
	"context"
	"fmt"
	"sort"
	"time"

	"domicile/api"
	"domicile/regions"
)

// reader walks a log by reads of its own; between them it holds nothing at the broker.
type reader struct {
	l      *store
	after  uint64 // sequence of the last item given out
	broker uint64 // the broker's next sequence to read
	closed bool
	turns  uint64 // how often the log had gone back when it was opened or last read
}

// Reader opens a reader whose first item follows sequence after.
func (l *store) Reader(ctx context.Context, after uint64) (regions.Reader, error) {
	l.mu.Lock()
	d := l.durable
	r := &reader{l: l, after: after, turns: l.rewound}
	l.mu.Unlock()
	if after >= d.Sequence {
		if after > d.Sequence {
			return nil, &api.Error{Code: api.CursorAhead, Op: "open reader", Topic: l.cfg.ID.Topic, Region: l.f.cfg.Region,
				Hint: "the position lies beyond the log's durable end: it is from another log, or this one lost data; ask the operator"}
		}
		r.broker = d.broker + 1
		return r, nil
	}
	at, _, err := l.find(ctx, d, func(m *message) bool { return m.position.Sequence > after })
	r.broker = at
	return r, err
}

// Next returns what follows, in order, none beyond the durable end.
func (r *reader) Next(ctx context.Context, limit regions.ReadLimit) ([]regions.Item, error) {
	if r.closed {
		return nil, &api.Error{Code: api.BadRequest, Op: "read log", Hint: "the reader was closed"}
	}
	ctx, cancel := context.WithTimeout(ctx, r.l.f.cfg.Pace.Of(AppendDeadline))
	defer cancel()
	count := min(max(limit.Records, 1), readMessages)
	size := min(max(limit.Bytes, 1), readBytes)
	for {
		d, err := r.end()
		if err != nil {
			return nil, err
		}
		if r.broker > d.broker {
			if r.after >= d.Sequence {
				return nil, nil
			}
			// What the log ends with could not be believed.
			lost := r.missing(d.Sequence, regions.Item{Epoch: d.Epoch, Term: d.Term, Time: d.time})
			r.after = d.Sequence
			return lost, nil
		}
		got, err := r.l.readUpTo(ctx, r.broker, d.broker, count, size)
		if err != nil {
			return nil, err
		}
		if len(got) == 0 {
			r.broker = d.broker + 1
			continue
		}
		if items := r.take(got, d.broker, count, size); len(items) > 0 {
			return items, nil
		}
	}
}

// end is the log's durable end. A reader that has come further than where the log went
// back to since can't go on: the sequences it would miss are another epoch's.
func (r *reader) end() (end, error) {
	l := r.l
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.gone {
		return end{}, &api.Error{Code: api.NotReady, Op: "read log", Topic: l.cfg.ID.Topic, Region: l.f.cfg.Region,
			RetryAfter: l.f.cfg.Pace.Of(time.Second), Hint: "the log was closed here: open a reader anew"}
	}
	if r.turns != l.rewound && r.after > l.lowest {
		return end{}, &api.Error{Code: api.CursorAhead, Op: "read log", Topic: l.cfg.ID.Topic, Region: l.f.cfg.Region,
			Hint: fmt.Sprintf("the log's epoch ended at sequence %d and what was read beyond it is void: open a reader there", l.lowest)}
	}
	r.turns = l.rewound
	return l.durable, nil
}

// take turns messages into items and moves on past what it gave out.
func (r *reader) take(got []*message, to uint64, count, size int) []regions.Item {
	var items []regions.Item
	bytes := 0
	for _, m := range got {
		if m.broker > to {
			r.broker = to + 1
			break
		}
		step := r.items(m)
		more := 0
		for i := range step {
			more += step[i].Size()
		}
		if len(items) > 0 && (len(items)+len(step) > count || bytes+more > size) {
			break
		}
		bytes += more
		items = append(items, step...)
		r.broker = m.broker + 1
		if n := len(step); n > 0 {
			r.after = step[n-1].Sequence
		}
	}
	return items
}

// items is what one message shows a reader that has come as far as after: nothing,
// an item, or what is missing before it and the item.
func (r *reader) items(m *message) []regions.Item {
	void := r.l.voidIn(m)
	if m.control == controlSweep {
		to := m.to
		if void != nil {
			to = min(to, void.Back.Sequence)
		}
		if to > r.after {
			return r.gaps(regions.Expired, to, m.item)
		}
		return nil
	}
	if void != nil {
		return nil
	}
	if m.control != "" && m.control != controlGap || m.position.Sequence <= r.after || m.position.Sequence <= r.l.purgedTo() {
		return nil // of a purge that is under way, too: it is decided
	}
	it := m.item
	from := it.Sequence
	if it.Gap != nil {
		it.Record = api.Record{}
		it.Gap.From = max(it.Gap.From, r.after+1)
		from = it.Gap.From
	}
	if from == r.after+1 {
		return []regions.Item{it}
	}
	return append(r.missing(from-1, m.item), it)
}

// missing is what stands for the sequences up to to. Retention takes from the front; a
// hole further in is what the disk lost, whether anyone was told that it was stored or
// not.
func (r *reader) missing(to uint64, like regions.Item) []regions.Item {
	purged := r.l.purgedTo()
	r.l.mu.Lock()
	front := r.after+1 < max(r.l.first, purged+1)
	r.l.mu.Unlock()
	if front {
		return r.gaps(regions.Expired, to, like)
	}
	r.l.lose(Range{r.after + 1, to})
	return r.gaps(regions.Damaged, to, like)
}

// gaps types what is missing: purged where an operator took it, of the kind given
// elsewhere.
func (r *reader) gaps(kind regions.GapKind, to uint64, like regions.Item) []regions.Item {
	r.l.mu.Lock()
	gaps := split(r.l.purged, r.after+1, to, kind)
	r.l.mu.Unlock()
	items := make([]regions.Item, len(gaps))
	for i := range gaps {
		items[i] = regions.Item{Sequence: gaps[i].To, Epoch: like.Epoch, Term: like.Term, Time: like.Time, Gap: &gaps[i]}
	}
	return items
}

// Close makes the reader unusable.
func (r *reader) Close() { r.closed = true }

// After is the last sequence whose ingest time is before t.
func (l *store) After(ctx context.Context, t time.Time) (uint64, error) {
	l.mu.Lock()
	d, first := l.durable, l.first
	l.mu.Unlock()
	if d.Sequence == 0 || d.time.Before(t) {
		return d.Sequence, nil
	}
	_, m, err := l.find(ctx, d, func(m *message) bool { return !m.item.Time.Before(t) })
	switch {
	case err != nil:
		return 0, err
	case m == nil:
		return d.Sequence, nil
	}
	return max(m.firstSequence(), first) - 1, nil
}

// find is the broker's sequence of the first item, up to the durable end, for which
// reached holds; reached must hold for all items after it. Without one it is the
// sequence after the end, and no message. Markers carry no place and are stepped over.
func (l *store) find(ctx context.Context, d end, reached func(*message) bool) (uint64, *message, error) {
	info, err := l.info(ctx)
	if err != nil {
		return 0, nil, l.readFailed(err)
	}
	low := max(info.State.FirstSeq, 1)
	if low > d.broker {
		return d.broker + 1, nil, nil
	}
	var failed error
	var at *message
	n := sort.Search(int(d.broker-low+1), func(i int) bool {
		if failed != nil {
			return true
		}
		m, _, err := l.itemPast(ctx, low+uint64(i), d.broker, true)
		if err != nil {
			failed = err
			return true
		}
		if m != nil {
			m = l.counted(m)
		}
		if m == nil || reached(m) {
			if m != nil {
				at = m
			}
			return true
		}
		return false
	})
	if failed != nil {
		return 0, nil, failed
	}
	// at is the message of the last probe that held; the search ends on the least.
	return low + uint64(n), at, nil
}

// itemPast is the first item at or after a broker's sequence, nil if there is none up to
// the end, and how many damaged messages lie before it. Void ones are stepped over, unless
// they are asked for.
func (l *store) itemPast(ctx context.Context, from, to uint64, void bool) (m *message, lost uint64, err error) {
	for count := 1; from <= to; count = 64 {
		got, err := l.readUpTo(ctx, from, to, count, readBytes)
		if err != nil || len(got) == 0 {
			return nil, lost, err
		}
		for _, m := range got {
			if m.broker <= to && (m.control == "" || m.control == controlGap) && (void || !l.isVoid(m)) {
				return m, lost, nil
			}
			lost += m.lost
		}
		from = got[len(got)-1].broker + 1
	}
	return nil, lost, nil
}
