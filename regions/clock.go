package regions

import (
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// Clock tells the node's own time. Implementations are safe for concurrent use.
type Clock interface {
	// Now is wall time at start plus monotonic time since: it never steps.
	Now() time.Time
}

// SteadyClock is the wall clock read once and then carried on by the monotonic
// clock. A step of the wall clock is reported by Step and never applied.
type SteadyClock struct {
	wall         func() time.Time
	start, began time.Time // by the wall, and by the system's clock, whose monotonic part counts
	kernel       bool      // the wall is the kernel's, which is asked whether it is synchronised
}

// NewSteadyClock reads the system's wall clock now.
func NewSteadyClock() *SteadyClock {
	c := NewSteadyClockOn(time.Now)
	c.kernel = true
	return c
}

// NewSteadyClockOn reads another wall clock now, for tests that set it.
func NewSteadyClockOn(wall func() time.Time) *SteadyClock {
	return &SteadyClock{wall: wall, start: wall(), began: time.Now()}
}

// Now is the steady time.
func (c *SteadyClock) Now() time.Time { return c.start.Add(time.Since(c.began)) }

// Step is how far the wall clock has moved away from the steady one.
func (c *SteadyClock) Step() time.Duration {
	return c.wall().Round(0).Sub(c.Now().Round(0))
}

// Machine is the machine's own clock now, and whether the kernel calls it synchronised.
func (c *SteadyClock) Machine() (now time.Time, synced bool) {
	var t unix.Timex
	if !c.kernel {
		return c.wall(), false
	}
	state, err := unix.Adjtimex(&t)
	if err != nil {
		return c.wall(), false // not permitted in this container
	}
	nanos := int64(t.Time.Usec)
	if t.Status&unix.STA_NANO == 0 {
		nanos *= 1000
	}
	return time.Unix(int64(t.Time.Sec), nanos), state != unix.TIME_ERROR && t.Status&unix.STA_UNSYNC == 0
}

// ManualClock is a clock that tests set. The zero value starts at the zero time.
type ManualClock struct{ now atomic.Pointer[time.Time] }

// NewManualClock starts at t.
func NewManualClock(t time.Time) *ManualClock {
	c := &ManualClock{}
	c.Set(t)
	return c
}

// Now is the time that was set last.
func (c *ManualClock) Now() time.Time {
	if p := c.now.Load(); p != nil {
		return *p
	}
	return time.Time{}
}

// Set moves the clock to t.
func (c *ManualClock) Set(t time.Time) { c.now.Store(&t) }

// Advance moves the clock on by d.
func (c *ManualClock) Advance(d time.Duration) { c.Set(c.Now().Add(d)) }

// BootClock is time since the machine booted, suspended time included. Leases and
// fences are counted on it.
type BootClock func() time.Duration

// SystemBootClock reads CLOCK_BOOTTIME.
func SystemBootClock() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		// Linux has had this clock since 2.6.39; without it no lease can be counted.
		panic("clock_gettime(CLOCK_BOOTTIME): " + err.Error())
	}
	return time.Duration(ts.Nano())
}

// Pace scales the node's intervals and deadlines, so that a test runs the same
// code in less time. 1 is real time; a quarter is the fastest that is supported.
type Pace float64

// Of is d at this pace. The zero Pace is real time.
func (p Pace) Of(d time.Duration) time.Duration {
	if p == 0 || p == 1 {
		return d
	}
	return time.Duration(float64(d) * float64(p))
}
