package fabric

import (
	"os"
	"sync"
	"time"
)

// barrier is the region's group commit. A round takes what the broker had answered
// for before the round began, syncs the volume, and releases exactly that.
type barrier struct {
	dir   *os.File // open from the start: syncfs reports errors since then
	sync  func(*os.File) error
	fail  func(error)
	spawn func(func()) bool

	mu      sync.Mutex
	waiting []func() // releases, in order
	running bool
	failed  bool
	since   time.Time // the sync that runs began; zero: none runs
}

// after calls release, in order, when all that is written now is on disk; never if
// that fails.
func (b *barrier) after(release func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.failed {
		return
	}
	b.waiting = append(b.waiting, release)
	if !b.running {
		b.running = b.spawn(b.rounds)
	}
}

func (b *barrier) rounds() {
	for {
		b.mu.Lock()
		round := b.waiting
		b.waiting = nil
		if len(round) == 0 || b.failed {
			b.running = false
			b.mu.Unlock()
			return
		}
		b.since = time.Now()
		b.mu.Unlock()
		err := b.sync(b.dir)
		b.mu.Lock()
		b.since = time.Time{}
		b.mu.Unlock()
		if err != nil {
			b.mu.Lock()
			b.failed, b.running, b.waiting = true, false, nil
			b.mu.Unlock()
			b.fail(err)
			return
		}
		for _, release := range round {
			release()
		}
	}
}

// lasting is how long the sync that runs has lasted; 0: none runs.
func (b *barrier) lasting() time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.since.IsZero() {
		return 0
	}
	return max(time.Since(b.since), time.Nanosecond)
}
