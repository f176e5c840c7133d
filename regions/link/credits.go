package link

import (
	"context"
	"sync"
	"time"

	"domicile/regions"
)

// Bounds of mirror data in flight on one link, in bytes.
const (
	minWindow = 1 << 20
	maxWindow = 32 << 20
	windowFor = 500 * time.Millisecond // the window is what the link moves in this time
	rateOver  = 100 * time.Millisecond // one measurement of the rate
)

// credits bounds the mirror bytes in flight on one link, over all its flows. The
// window follows the measured rate. A flow may hold at most twice what is still free,
// so that however many flows are stuck, some of the window stays for the others; and
// a flow that has nothing in flight may go beyond the window, but never beyond the
// hard bound.
type credits struct {
	clock regions.Clock

	mu      sync.Mutex
	window  int
	used    int
	changed chan struct{} // closed and replaced when bytes come back

	// The rate is counted over the time in which something was in flight, so that a
	// flow with one batch at a time is measured too.
	busy  time.Duration // of this measurement
	since time.Time     // busy is counted up to here; meaningful while used > 0
	moved int           // bytes answered in this measurement
	rate  float64       // bytes per second, smoothed; 0: not measured
}

func newCredits(clock regions.Clock) *credits {
	return &credits{clock: clock, window: minWindow, changed: make(chan struct{})}
}

// fits reports whether a flow that holds held may send n more.
func (c *credits) fits(n, held int) bool {
	switch {
	case c.used == 0:
		return true // one batch always moves, whatever its size
	case held == 0:
		return c.used+n <= maxWindow
	}
	return c.used+n <= c.window && held < 2*(c.window-c.used)
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
				c.since = c.clock.Now()
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
	now := c.clock.Now()
	if c.used > 0 {
		c.busy += now.Sub(c.since)
	}
	c.since = now
	c.used -= n
	if answered {
		c.moved += n
	}
	if c.busy >= rateOver {
		measured := float64(c.moved) / c.busy.Seconds()
		if c.rate == 0 {
			c.rate = measured
		}
		c.rate += (measured - c.rate) / 2
		c.busy, c.moved = 0, 0
		c.window = min(max(int(c.rate*windowFor.Seconds()), minWindow), maxWindow)
	}
	close(c.changed)
	c.changed = make(chan struct{})
}

func (c *credits) inFlight() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.used
}
