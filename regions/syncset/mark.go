package syncset

import (
	"sync"
	"time"
)

// Mark is how far a log is on the disks of its whole sync set, as one region knows it. At
// first nothing is known. It never goes back. Safe for concurrent use.
type Mark struct {
	mu      sync.Mutex
	known   bool
	seq     uint64
	at      time.Time
	changed chan struct{} // closed at the next change; nil while nobody waits
}

// Raise takes in that the log is common up to a sequence, whose record was stamped at.
func (m *Mark) Raise(seq uint64, at time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.known && seq <= m.seq {
		return
	}
	m.known, m.seq, m.at = true, seq, at
	if m.changed != nil {
		close(m.changed)
		m.changed = nil
	}
}

// Get is the last common sequence and its stamp. known is false before the first Raise.
func (m *Mark) Get() (seq uint64, at time.Time, known bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.seq, m.at, m.known
}

// Within is what of a log that ends at seq, stamped at, is common: nothing while that is
// not known.
func (m *Mark) Within(seq uint64, at time.Time) (uint64, time.Time) {
	common, then, known := m.Get()
	switch {
	case !known:
		return 0, time.Time{}
	case common < seq:
		return common, then
	}
	return seq, at
}

// changes is closed at the next change.
func (m *Mark) changes() <-chan struct{} {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.changed == nil {
		m.changed = make(chan struct{})
	}
	return m.changed
}
