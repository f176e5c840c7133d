package fabric

import (
	"context"
	"maps"
	"sync"
	"time"

	"domicile/api"
)

// Seat says which node of the region writes its logs, as this node knows it. A region
// has one seat. Whoever holds it opens the logs, feeds the mirrors and speaks for the
// region on its links; the region's other nodes hand records to it.
type Seat struct {
	Node   string    // who holds it; "": not known, or nobody
	Mine   bool      // this node holds it, and may open logs
	Term   uint64    // of the holder: grows with every taking of the seat; 0: not known
	Since  time.Time // of what is said here
	Reason string    // why it is not held here, when it is not; no record content
}

// seat keeps the present Seat and tells whoever waits for the next one.
type seat struct {
	mu      sync.Mutex
	now     Seat
	changed chan struct{}
}

func newSeat() *seat { return &seat{changed: make(chan struct{})} }

func (s *seat) set(to Seat) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.now = to
	close(s.changed)
	s.changed = make(chan struct{})
}

// Seat is the present state, and a channel that is closed when it is another one. It is
// safe for concurrent use. What was opened under a seat that is no longer Mine with the
// same Term takes nothing more; its holder calls Vacate and waits for the next seat.
func (f *Fabric) Seat() (Seat, <-chan struct{}) {
	f.seat.mu.Lock()
	defer f.seat.mu.Unlock()
	return f.seat.now, f.seat.changed
}

// Vacate ends the writers of all logs that are open, waits until what they hold is
// decided, at the latest until ctx ends or the append deadline has passed, and forgets
// the logs, so that they can be opened again under the next seat. What is undecided
// then is told OUTCOME_UNKNOWN. Readers of the forgotten logs fail.
func (f *Fabric) Vacate(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, f.cfg.Pace.Of(AppendDeadline))
	defer cancel()
	f.mu.Lock()
	logs := maps.Clone(f.logs)
	f.mu.Unlock()
	for _, l := range logs {
		l.refuse(f.writingMoves())
	}
	drained := true
	for _, l := range logs {
		drained = l.drain(ctx) && drained
	}
	for _, l := range logs {
		l.leave()
	}
	f.mu.Lock()
	for stream, l := range logs {
		d := l.durableEnd()
		f.clean[stream], f.ended[l.endKey(d)] = d.broker, d.Sequence
		f.indexes.remove(l.index)
		delete(f.logs, stream)
	}
	f.mu.Unlock()
	f.tellEmptied()
	if !drained {
		return &api.Error{Code: api.OutcomeUnknown, Op: "vacate seat", Hint: "some appends were undecided; the next opening reads them back"}
	}
	return nil
}

func (f *Fabric) writingMoves() *api.Error {
	return &api.Error{Code: api.NotReady, Op: "append", Region: f.cfg.Region, RetryAfter: f.cfg.Pace.Of(time.Second),
		Hint: "the writing of this log moves; retry with the same id"}
}
