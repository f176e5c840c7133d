package fabric

import (
	"context"
	"errors"
	"io/fs"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"domicile/api"
)

// Range is a row of a log's sequences, both ends included.
type Range struct{ From, To uint64 }

// maxRanges is how many ranges of damage a log keeps apart. A further one is joined with
// its nearest neighbour: what lies between then counts as damaged too, so that the count
// may be too high and is never too low.
const maxRanges = 1000

// damage is what was found to be lost of a log, in this run.
type damage struct {
	mu     sync.Mutex
	ranges []Range // by sequence, apart from each other
	count  uint64  // sequences in them
}

// note adds a range and says by how many sequences the count rose.
func (d *damage) note(r Range) (added uint64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	at, touches := slices.BinarySearchFunc(d.ranges, r, func(a, b Range) int {
		switch {
		case a.To < b.From:
			return -1
		case a.From > b.To:
			return 1
		}
		return 0
	})
	if !touches && len(d.ranges) >= maxRanges {
		r = d.reach(r, at)
		at = max(0, at-1) // the neighbour before, if that was nearer
		if d.ranges[at].To < r.From {
			at++
		}
	}
	whole, before, end := r, uint64(0), at
	for ; end < len(d.ranges) && d.ranges[end].From <= r.To; end++ {
		whole.From, whole.To = min(whole.From, d.ranges[end].From), max(whole.To, d.ranges[end].To)
		before += d.ranges[end].To - d.ranges[end].From + 1
	}
	d.ranges = slices.Replace(d.ranges, at, end, whole)
	added = whole.To - whole.From + 1 - before
	d.count += added
	return added
}

// reach is a range that lies before the one at index at, stretched to its nearest
// neighbour.
func (d *damage) reach(r Range, at int) Range {
	if at == len(d.ranges) || at > 0 && r.From-d.ranges[at-1].To <= d.ranges[at].From-r.To {
		return Range{d.ranges[at-1].To, r.To}
	}
	return Range{r.From, d.ranges[at].From}
}

func (d *damage) get() (ranges []Range, count uint64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.ranges), d.count
}

// lose records that a range of the log's sequences is lost.
func (l *store) lose(r Range) {
	if added := l.damage.note(r); added > 0 {
		l.log.Error("records are damaged or missing on this disk; readers and mirrors get a gap", "from", r.From, "to", r.To)
	}
}

// unread is the last failure to read a log's files.
type unread struct {
	at     uint64 // the broker's sequence from which on nothing was read
	reason string
}

// unreadable says that a file of the log can't be read, which is no loss: the disk may give
// it out later. A file that the broker took away meanwhile is asked for again.
func (l *store) unreadable(from uint64, err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return l.readFailed(err)
	}
	if was := l.unread.Swap(&unread{from, err.Error()}); was == nil {
		l.log.Error("records can't be read from this disk", "error", err)
	}
	return &api.Error{Code: api.StorageFailed, Op: "read log", Topic: l.cfg.ID.Topic, Region: l.f.cfg.Region,
		RetryAfter: l.f.cfg.Pace.Of(5 * time.Second), Hint: "a file of the log can't be read: check the disk; nothing is taken for lost", Err: err}
}

// wasRead ends the word of a failure to read what has now been read.
func (l *store) wasRead(from uint64, got []*message) {
	u := l.unread.Load()
	if u != nil && len(got) > 0 && from <= u.at && u.at <= got[len(got)-1].broker {
		l.unread.CompareAndSwap(u, nil)
	}
}

// complete puts into what was read from the broker, from its sequence from on, what it
// holds and did not give out: records that are good in its files, and one message that
// stands for each row that is not. What the broker counts as deleted stays out.
func (l *store) complete(ctx context.Context, got []*message, from, to uint64, count, maxBytes int) ([]*message, error) {
	from = max(from, l.front.Load())
	holes := holesIn(got, from, to)
	if len(holes) == 0 {
		return got, nil
	}
	info, err := l.admin.Info(ctx, jetstream.WithDeletedDetails(true))
	if err != nil {
		return nil, l.readFailed(err)
	}
	var out []*message
	for _, h := range holes {
		for len(got) > 0 && got[0].broker < h.From {
			out, got = append(out, got[0]), got[1:]
		}
		for _, kept := range undeleted(h, info.State.FirstSeq, info.State.LastSeq, info.State.Deleted) {
			found, err := l.fromBlocks(ctx, kept.From, kept.To, count, maxBytes)
			if err != nil {
				return nil, err
			}
			out = append(out, found...)
			if n := len(found); n > 0 && found[n-1].broker < kept.To {
				return out, nil // the bounds are reached
			}
		}
	}
	return append(out, got...), nil
}

// holesIn is the rows of the broker's sequences that are missing before, between and,
// if there is nothing, instead of messages.
func holesIn(got []*message, from, to uint64) []Range {
	var holes []Range
	next := from
	for _, m := range got {
		if m.broker > next && next <= to {
			holes = append(holes, Range{next, min(m.broker-1, to)})
		}
		next = m.broker + 1
	}
	if len(got) == 0 && from <= to {
		holes = append(holes, Range{from, to})
	}
	return holes
}

// undeleted is the rows of a range that lie between first and last and are not deleted.
func undeleted(r Range, first, last uint64, deleted []uint64) []Range {
	var out []Range
	next, end := max(r.From, first, 1), min(r.To, last)
	at, _ := slices.BinarySearch(deleted, next)
	for _, gone := range append(slices.Clone(deleted[at:]), math.MaxUint64) {
		if next > end {
			break
		}
		if gone > next {
			out = append(out, Range{next, min(gone-1, end)})
		}
		if gone == math.MaxUint64 {
			break
		}
		next = gone + 1
	}
	return out
}

// readIntact reads in a quorum region, where two other disks hold what this one lost: no gap
// is made of what is missing here. The read fails, and if this node has no excuse, as one
// that only lags behind has, the seat goes to another.
func (l *store) readIntact(ctx context.Context, from, to uint64, count, maxBytes int) ([]*message, error) {
	for again := false; ; again = true {
		got, err := l.f.readFrom(ctx, l, from, count, maxBytes)
		if err != nil {
			return nil, err
		}
		whole, err := l.intact(ctx, got, from, to)
		if err != nil || whole {
			return got, err
		}
		leads := l.f.leads(l.stream) && l.f.current(l.stream)
		if again && leads {
			if err := l.f.noteSpoilt(l.stream); err != nil {
				l.log.Error("damage of this log is not on record for the next start", "error", err)
			}
			l.log.Error("records are damaged or missing on this disk: another node has to hold the seat", "from", from, "to", to)
		}
		if again || !leads {
			return nil, l.readFailed(errNotHere)
		}
	}
}

// intact reports whether what was read is all that the region holds there.
func (l *store) intact(ctx context.Context, got []*message, from, to uint64) (bool, error) {
	if slices.ContainsFunc(got, func(m *message) bool { return m.control == controlDamaged }) {
		return false, nil
	}
	holes := holesIn(got, max(from, l.front.Load()), to)
	if len(holes) == 0 {
		return true, nil
	}
	info, err := l.admin.Info(ctx, jetstream.WithDeletedDetails(true))
	if err != nil {
		return false, l.readFailed(err)
	}
	return !slices.ContainsFunc(holes, func(h Range) bool {
		return len(undeleted(h, info.State.FirstSeq, info.State.LastSeq, info.State.Deleted)) > 0
	}), nil
}

var errNotHere = errors.New("this node's disk does not give out what the region holds")
