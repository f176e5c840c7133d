package ledger

import (
	"slices"
	"sync"
	"time"

	"domicile/regions"
)

// DefaultLimit is how many events a Book takes when it is not told: some hundred
// megabytes.
const DefaultLimit = 1 << 20

// Book notes down a history while it happens. Its zero value is ready. It is safe for
// concurrent use.
type Book struct {
	// Clock stamps the events; nil: the system's. It should be the clock that the
	// entries' Started and Ended come from.
	Clock regions.Clock
	// Limit bounds the events; 0: DefaultLimit. What comes later is counted and dropped.
	Limit int

	mu      sync.Mutex
	origin  time.Time
	events  []Event
	dropped int
}

// now is the clock's time; the first call sets the origin. The caller holds mu.
func (b *Book) now() time.Time {
	if b.Clock == nil {
		b.Clock = regions.NewSteadyClock()
	}
	now := b.Clock.Now()
	if b.origin.IsZero() {
		b.origin = now
	}
	return now
}

// Enter adds a publish attempt that has ended.
func (b *Book) Enter(e Entry) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.now()
	e.Begin, e.End = e.Started.Sub(b.origin), e.Ended.Sub(b.origin)
	b.add(Event{At: e.End, Wall: e.Ended, Entry: &e})
}

// Note adds an event that happens now; At and Wall are set here.
func (b *Book) Note(e Event) {
	b.mu.Lock()
	defer b.mu.Unlock()
	e.Wall = b.now()
	e.At = e.Wall.Sub(b.origin)
	b.add(e)
}

// Counted notes what a region says it has counted; began is when its first node was asked.
func (b *Book) Counted(began time.Time, c Counts) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.now()
	c.From = began.Sub(b.origin)
	b.add(Event{At: now.Sub(b.origin), Wall: now, Counts: &c})
}

// Step notes a step of the schedule.
func (b *Book) Step(s Step) { b.Note(Event{Step: &s}) }

// Point notes a point in time.
func (b *Book) Point(k StepKind) { b.Step(Step{Kind: k, Phase: Point}) }

// During notes the begin of a step and returns what notes its end.
func (b *Book) During(s Step) (end func()) {
	s.Phase = Begin
	b.Step(s)
	s.Phase = End
	return sync.OnceFunc(func() { b.Step(s) })
}

func (b *Book) add(e Event) {
	limit := b.Limit
	if limit == 0 {
		limit = DefaultLimit
	}
	if len(b.events) >= limit {
		b.dropped++
		return
	}
	b.events = append(b.events, e)
}

// Entries is a copy of the publish attempts that have been entered, in that order.
func (b *Book) Entries() []Entry { return b.History().Entries() }

// History is what has been noted so far.
func (b *Book) History() *History {
	b.mu.Lock()
	defer b.mu.Unlock()
	return &History{Origin: b.origin, Events: slices.Clone(b.events), Dropped: b.dropped}
}
