package link

import "time"

// missed is how many heartbeats in a row may stay away before a direction counts as
// lost.
const missed = 3

// health is what the heartbeats of one link prove. It is a plain value: every method
// is told the time. A link is up only while our heartbeats are answered, the peer's
// reach us, and the peer says the same of its side, so that a one-way cut is seen by
// both ends and not by one.
type health struct {
	beat     time.Duration
	answered time.Time // last answer to one of ours; zero: none, or its session ended
	heard    time.Time // last of the peer's; zero: none, or its stream ended
	hearsUs  bool      // the peer's last word on whether it hears us both ways
}

func (h *health) fresh(last, now time.Time) bool {
	return !last.IsZero() && !over(last, now, h.beat, missed)
}

// over reports whether last is so many beats ago. A time to come is no proof of
// anything: the clock was set back, which a steady one never is, and what was proven
// by it would hold for as long as it was set back. A little is the race of two readers.
func over(last, now time.Time, beat time.Duration, beats int) bool {
	age := now.Sub(last)
	return age >= time.Duration(beats)*beat || age < -beat
}

// out: our heartbeats are answered.
func (h *health) out(now time.Time) bool { return h.fresh(h.answered, now) }

// in: the peer's heartbeats reach us.
func (h *health) in(now time.Time) bool { return h.fresh(h.heard, now) }

// hearsPeer is what our own heartbeats tell the peer. It leaves the peer's word out:
// two sides that each waited for the other's would never come up.
func (h *health) hearsPeer(now time.Time) bool { return h.out(now) && h.in(now) }

func (h *health) up(now time.Time) bool { return h.hearsPeer(now) && h.hearsUs }
