package link

import (
	"time"

	"domicile/regions"
)

const (
	firstWait    = 200 * time.Millisecond
	longestWait  = 5 * time.Second
	eagerWait    = time.Second      // longest wait while the outage is young or the peer is heard
	eagerFor     = 10 * time.Second // an outage is young
	provenAfter  = 10 * time.Second // a link that held this long starts over
	jitterSpread = 0.5              // a wait lies between half of its step and all of it
)

// backoff spaces the attempts to reach a peer. It is a plain value. A link that was
// up only shortly does not start over: that would let a flapping pair storm.
type backoff struct {
	pace   regions.Pace
	step   time.Duration
	outage time.Time // when this row of failures began; zero: none
}

// next is how long to wait after an attempt or a session ended at now. upFor is how
// long the link was up in it, heard whether the peer reaches us, random in [0,1).
func (b *backoff) next(now time.Time, upFor time.Duration, heard bool, random float64) time.Duration {
	if upFor >= b.pace.Of(provenAfter) || b.outage.IsZero() {
		*b = backoff{pace: b.pace, outage: now}
	}
	limit := longestWait
	if heard || now.Sub(b.outage) < b.pace.Of(eagerFor) {
		limit = eagerWait
	}
	b.step = min(max(2*b.step, firstWait), longestWait)
	wait := b.pace.Of(min(b.step, limit))
	return wait - time.Duration(random*jitterSpread*float64(wait))
}
