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
	lazy  time.Duration // how long what can wait waits for a round

	mu      sync.Mutex
	waiting []func() // releases, in order
	eager   bool     // one of them can't wait
	armed   bool     // a round is due for those that can
	running bool
	failed  bool
	since   time.Time // the sync that runs began; zero: none runs
	good    time.Time // the last that went well began
}

// after calls release, in order, when all that is written now is on disk; never if
// that fails.
func (b *barrier) after(release func()) { b.add(release, true) }

// later is after for what can wait: it takes part in the next round there is, and makes
// one of its own within lazy.
func (b *barrier) later(release func()) { b.add(release, false) }

func (b *barrier) add(release func(), now bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.failed {
		return
	}
	b.waiting = append(b.waiting, release)
	b.eager = b.eager || now
	b.wake()
}

// kick makes a round for all that wait.
func (b *barrier) kick() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.eager = b.eager || len(b.waiting) > 0
	b.wake()
}

// wake sees to it that there is a round, now or in time; mu is held.
func (b *barrier) wake() {
	switch {
	case b.running || b.failed || len(b.waiting) == 0:
	case b.eager:
		b.running = b.spawn(b.rounds)
	case !b.armed:
		b.armed = true
		time.AfterFunc(b.lazy, func() {
			b.mu.Lock()
			b.armed = false
			b.mu.Unlock()
			b.kick()
		})
	}
}

func (b *barrier) rounds() {
	for {
		b.mu.Lock()
		if !b.eager || b.failed {
			b.running = false
			b.wake()
			b.mu.Unlock()
			return
		}
		round := b.waiting
		b.waiting, b.eager = nil, false
		b.since = time.Now()
		b.mu.Unlock()
		err := b.sync(b.dir)
		b.mu.Lock()
		if err == nil {
			b.good = b.since
		}
		b.since = time.Time{}
		if err != nil {
			b.failed, b.running, b.waiting = true, false, nil
		}
		b.mu.Unlock()
		if err != nil {
			b.fail(err)
			return
		}
		for _, release := range round {
			release()
		}
	}
}

func (b *barrier) lastGood() time.Time {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.good
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
