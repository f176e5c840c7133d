package fabric

import (
	"sync"
	"time"
)

// What may be on its way to the disk at a time is what the store brings there in windowTime,
// within these bounds.
const (
	windowTime  = 100 * time.Millisecond
	leastWindow = 2 << 20
	mostWindow  = 64 << 20
	firstWindow = 16 << 20 // until something was measured
	// leastShare is what a log may always have on its way, however much others have.
	leastShare = 64 << 10
)

// share divides among a region's logs what is on its way to the disk: handed to the broker
// and not durable. Whatever comes behind that waits for it, so that without a bound a log
// that floods has its neighbours wait for all that it may hold. A log with few records never
// waits for its turn; one that floods gets twice what is still free, so several divide the
// window among them. It is safe for concurrent use.
type share struct {
	mu      sync.Mutex
	window  int64 // bytes
	afloat  int64 // bytes on their way, of all logs
	moved   int64 // bytes that became durable since began
	began   time.Time
	pressed bool          // somebody had to wait since began
	changed chan struct{} // closed when it is worth asking again
}

func newShare() *share {
	return &share{window: firstWindow, began: time.Now(), changed: make(chan struct{})}
}

// grant is how many more bytes a log may hand over that has own on their way. 0: it has to
// wait until again is closed.
func (s *share) grant(own int64) (more int64, again <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	// After it has taken more, the log holds at most twice what is free then.
	more = (2*(s.window-s.afloat) - own) / 3
	if own == 0 {
		more = max(more, leastShare)
	}
	if more < leastShare {
		s.pressed = true
		return 0, s.changed
	}
	return more, nil
}

// take counts bytes that are handed over.
func (s *share) take(n int64) {
	if n == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.afloat == 0 {
		s.began, s.moved, s.pressed = time.Now(), 0, false // idle time is no measure of the disk
	}
	s.afloat += n
}

// back counts bytes of which the outcome is known.
func (s *share) back(n int64) {
	if n == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.afloat -= n
	s.moved += n
	if took := time.Since(s.began); took >= windowTime/2 || s.afloat == 0 {
		s.window = windowAfter(s.window, s.moved, took, s.pressed)
		s.began, s.moved, s.pressed = time.Now(), 0, false
	}
	s.wake()
}

// windowAfter is the window after a time in which so many bytes became durable. What moved
// while nobody had to wait says how much there was to do, and not what the disk can.
func windowAfter(window, moved int64, took time.Duration, pressed bool) int64 {
	fits := int64(float64(moved) * float64(windowTime) / float64(max(took, time.Microsecond)))
	switch {
	case fits > window:
		window = min(fits, 2*window)
	case pressed:
		window = max(fits, window/2)
	}
	return min(max(window, leastWindow), mostWindow)
}

// wake has those who wait ask again; mu is held.
func (s *share) wake() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// rouse has those who wait look whether they are to stop.
func (s *share) rouse() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.wake()
}

// await waits until the log may hand over what is queued, or has to stop.
func (l *store) await() {
	for {
		l.mu.Lock()
		more, again := l.f.share.grant(l.afloat)
		idle := l.dead || len(l.queue) == 0
		l.mu.Unlock()
		if more > 0 || idle {
			return
		}
		l.f.barrier.kick() // what of its own can wait for a round does no more
		select {
		case <-again:
		case <-l.f.ctx.Done():
			return
		}
	}
}
