package link

import (
	"context"
	"sync"
	"time"

	"domicile/regions"
)

// Bounds of mirror data in flight on one link, in bytes.
const (
	slowWindow = 8 << 10 // the least on a slow line, where more would only make forwards wait
	minWindow  = 1 << 20 // the least on any other
	maxWindow  = 32 << 20
	// linesInFlight times what the line holds keeps it busy: one on it, one that waits,
	// one that is being answered.
	linesInFlight = 3
	windowFor     = 500 * time.Millisecond // the window is what the link moves in this time, the target's disk included
)

// credits bounds the mirror bytes in flight on one link, over all its flows. The
// window follows the measured rate. A flow may hold at most twice what is still free,
// so that however many flows are stuck, some of the window stays for the others; and
// a flow that has nothing in flight may go beyond the window, but never beyond the
// hard bound.
type credits struct {
	clock regions.Clock
	line  func() int // how many bytes the line itself holds: what is measured here is the target's disk, too

	mu      sync.Mutex
	window  int // by the rate
	used    int
	changed chan struct{} // closed and replaced when bytes come back
	rate    rate          // of bytes that were answered
}

func newCredits(clock regions.Clock, line func() int) *credits {
	return &credits{clock: clock, line: line, changed: make(chan struct{})}
}

// fits reports whether a flow that holds held may send n more.
func (c *credits) fits(n, held int) bool {
	switch {
	case c.used == 0:
		return true // one batch always moves, whatever its size
	case held == 0:
		return c.used+n <= maxWindow
	}
	window := max(c.window, min(max(linesInFlight*c.line(), slowWindow), minWindow))
	return c.used+n <= window && held < 2*(window-c.used)
}

// take waits until a flow may send n more bytes. held is what the flow has in flight;
// only that flow's own sender adds to it.
func (c *credits) take(ctx context.Context, n int, held func() int) error {
	for {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		c.mu.Lock()
		if c.fits(n, held()) {
			if c.used == 0 {
				c.rate.begin(c.clock.Now())
			}
			c.used += n
			c.mu.Unlock()
			return nil
		}
		changed := c.changed
		c.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// put gives n bytes back. answered: the target has them, so they count for the rate.
func (c *credits) put(n int, answered bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	moved := 0
	if answered {
		moved = n
	}
	if c.rate.add(moved, c.used > 0, true, 0, c.clock.Now()) {
		c.window = c.rate.window(windowFor, 0, maxWindow)
	}
	c.used -= n
	close(c.changed)
	c.changed = make(chan struct{})
}

func (c *credits) inFlight() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.used
}
