package syncset

import (
	"container/heap"
	"slices"
	"sync"
	"time"

	"domicile/api"
	"domicile/regions"
)

const inDoubt = "it is stored at its home, and a copy of the sync set may have a gap in its place"

// The bounds of what waits for other regions.
const (
	MaxOpen = 16_384          // appends without an outcome; over it: OVERLOADED
	Within  = 3 * time.Second // at pace 1: what is durable at home and not common by then is unknown
)

// Config is what a Home works with. All of it is required.
type Config struct {
	Log     regions.HomeLog
	Members []string // the other regions of the set
	// Missing says why a member takes nothing now; "" while it does. It is asked for
	// each append, and must not block.
	Missing func(member string) string
	Clock   regions.Clock
	Pace    regions.Pace
}

// Home is a log at its home whose appends are acknowledged when every region of the set
// has them on disk. It shows what is common. Close it before the log is.
type Home struct {
	*View
	cfg   Config
	mark  *Mark
	floor uint64 // where the log ended when it was opened: all of it may have been shown before

	mu      sync.Mutex
	closed  bool
	open    int
	cursors map[string]regions.Cursor // what each member has confirmed in this run
	waiting waiting
	doubts  doubts      // where a member's copy may have gaps
	sweeper *time.Timer // nil: nothing waits
	instant time.Time   // the last closed instant
}

// NewHome wraps a log. What is common is not known until every member has confirmed all
// that the log held then: all of it may have been shown before.
func NewHome(cfg Config) *Home {
	m := &Mark{}
	return &Home{View: NewView(cfg.Log, m), cfg: cfg, mark: m, floor: cfg.Log.Head().Sequence, cursors: map[string]regions.Cursor{}}
}

// Append hands a draft to the log's writer, unless a member of the set is missing. done
// is called exactly once: with success when the record is common; with OutcomeUnknown when
// it is durable here and was not confirmed in time.
func (h *Home) Append(d regions.Draft, done func(regions.Stored)) {
	if err := h.enter(); err != nil {
		done(regions.Stored{Err: err})
		return
	}
	h.cfg.Log.Append(d, func(s regions.Stored) {
		if s, over := h.stored(s, done); over {
			done(s)
		}
	})
}

func (h *Home) enter() error {
	id := h.ID()
	for _, m := range h.cfg.Members {
		if why := h.cfg.Missing(m); why != "" {
			return h.tooShort(m, why)
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	lacking := h.lacking()
	switch {
	case h.closed:
		return &api.Error{Code: api.NotReady, Op: "append", Topic: id.Topic, Hint: "the log is being closed; send it again with the same id"}
	case lacking != "":
		return h.tooShort(lacking, "its copy still lacks records of before")
	case h.open >= MaxOpen:
		return &api.Error{Code: api.Overloaded, Op: "append", Topic: id.Topic, RetryAfter: h.cfg.Pace.Of(100 * time.Millisecond),
			Hint: "too many records wait for the other regions of the sync set; send it again with the same id"}
	}
	h.open++
	return nil
}

func (h *Home) tooShort(member, why string) error {
	id := h.ID()
	return &api.Error{Code: api.SyncShort, Op: "append", Topic: id.Topic, Region: member, RetryAfter: h.cfg.Pace.Of(time.Second),
		Hint: id.String() + " is acknowledged only when " + member + " has it too: " + why + "; nothing was stored; send it again with the same id"}
}

// lacking is the first member whose copy has not come to where the log ended when it was
// opened, or to what was common since, as one that is made anew; "": none. h.mu is held.
func (h *Home) lacking() string {
	common, _, _ := h.mark.Get()
	for _, m := range h.cfg.Members {
		if h.cursors[m].Sequence < max(h.floor, common) {
			return m
		}
	}
	return ""
}

// stored takes in what the writer did with an append: it is over, or waits.
func (h *Home) stored(s regions.Stored, done func(regions.Stored)) (_ regions.Stored, over bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	least, known := h.least()
	switch {
	case s.Err != nil:
		h.open--
		return s, true
	case known && s.Position.Sequence <= least.Sequence:
		h.open--
		switch {
		case !h.doubts.hold(s.Position.Sequence):
			s.Copies = h.cfg.Members
		case !s.Duplicate: // the members were faster than the writer's word
			return unknown(s, inDoubt), true
		}
		return s, true
	case h.closed:
		h.open--
		return unknown(s, "the log was closed before the other regions of the sync set confirmed it"), true
	}
	heap.Push(&h.waiting, waiter{Stored: s, done: done, late: h.cfg.Clock.Now().Add(h.cfg.Pace.Of(Within))})
	if h.sweeper == nil {
		h.sweeper = time.AfterFunc(h.cfg.Pace.Of(Within)/8, h.sweep)
	}
	return s, false
}

// least is what every member has; false until all were heard. h.mu is held.
func (h *Home) least() (least regions.Cursor, known bool) {
	for i, m := range h.cfg.Members {
		c, heard := h.cursors[m]
		if !heard {
			return regions.Cursor{}, false
		}
		if i == 0 || c.Sequence < least.Sequence {
			least = c
		}
	}
	return least, true
}

// Confirmed takes in where a member's copy ends, durably. Calls for one member come in
// order; others are not listened to. What the member's copy has a gap for is shown, and its append is told unknown.
func (h *Home) Confirmed(member string, c regions.Cursor) {
	if !slices.Contains(h.cfg.Members, member) {
		return
	}
	h.mu.Lock()
	before := h.cursors[member] // none in this run: it may have gaps anywhere
	h.cursors[member] = c
	if missing(c) > missing(before) {
		h.doubts.add(span{before.Sequence, c.Sequence})
	}
	least, known := h.least()
	var out []waiter
	if known {
		if least.Sequence >= h.floor {
			h.mark.Raise(least.Sequence, least.Time)
		}
		out = h.settled(least.Sequence)
		h.open -= len(out)
	}
	h.mu.Unlock()
	for _, w := range out {
		w.done(w.Stored)
	}
}

// settled takes out what is common and says what became of it. h.mu is held.
func (h *Home) settled(to uint64) []waiter {
	out := h.waiting.upTo(to)
	for i := range out {
		if w := &out[i]; h.doubts.hold(w.Position.Sequence) {
			w.Stored = unknown(w.Stored, inDoubt)
		} else {
			w.Copies = h.cfg.Members
		}
	}
	return out
}

// missing counts the sequences that a copy has no record for.
func missing(c regions.Cursor) uint64 { return c.Ledger.Sum() - c.Ledger.Mirrored }

// sweep tells what has waited too long that nobody knows.
func (h *Home) sweep() {
	h.mu.Lock()
	late := h.waiting.overdue(h.cfg.Clock.Now())
	h.open -= len(late)
	h.sweeper = nil
	if len(h.waiting) > 0 && !h.closed {
		h.sweeper = time.AfterFunc(h.cfg.Pace.Of(Within)/8, h.sweep)
	}
	h.mu.Unlock()
	for _, w := range late {
		w.done(unknown(w.Stored, "it is stored at its home, and the other regions of the sync set did not confirm it in time"))
	}
}

// Close refuses what comes from now on, and tells what waits that nobody knows.
func (h *Home) Close() {
	h.mu.Lock()
	h.closed = true
	left := h.waiting
	h.waiting = nil
	h.open -= len(left)
	if h.sweeper != nil {
		h.sweeper.Stop()
		h.sweeper = nil
	}
	h.mu.Unlock()
	for _, w := range left {
		w.done(unknown(w.Stored, "the log was closed before the other regions of the sync set confirmed it"))
	}
}

// ClosedInstant is the instant up to which what is shown is complete. It never goes back.
func (h *Home) ClosedInstant() time.Time {
	closed := h.cfg.Log.ClosedInstant()
	head := h.cfg.Log.Head().Sequence
	seq, at, known := h.mark.Get()
	if !known {
		return time.Time{}
	}
	if seq < head && at.Before(closed) {
		closed = at // stamps never go back: what is hidden was stamped at this or later
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if closed.After(h.instant) {
		h.instant = closed
	}
	return h.instant
}

// State says how far the log is common, or why appends are refused.
func (h *Home) State() string {
	return state(h.cfg.Log.Head().Sequence, h.mark, h.short())
}

// short is the first member that is missing, and why; "" when none is.
func (h *Home) short() string {
	for _, m := range h.cfg.Members {
		if why := h.cfg.Missing(m); why != "" {
			return m + ": " + why
		}
	}
	return ""
}
