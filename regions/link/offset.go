package link

import "time"

const (
	offsetSamples = 64
	// driftPPM bounds how fast two steady clocks run apart: crystals are within
	// 100 ppm each.
	driftPPM = 200
	// stepped is how far a measurement must lie outside of both errors to be another
	// clock's: far below what makes seconds untrusted.
	stepped = 100 * time.Millisecond
)

// offsetEstimator measures how far the peer's clock is ahead of ours from heartbeat
// answers, by the formula of NTP. Of the last 64 samples the one with the smallest
// error stands: half its delay, plus what the clocks may have drifted since.
type offsetEstimator struct {
	samples [offsetSamples]offsetSample
	count   int // ever taken in this run of the peer
}

type offsetSample struct {
	offset, delay time.Duration
	at            time.Time // sending: the clocks drift while the answer travels, too
}

// add takes one answer: t0 our sending, t1 and t2 the peer's receiving and answering,
// t3 our receiving.
func (e *offsetEstimator) add(t0, t1, t2, t3 time.Time) {
	delay := t3.Sub(t0) - t2.Sub(t1)
	if delay < 0 || t2.Before(t1) {
		return // the peer's figures make no sense
	}
	offset := (t1.Sub(t0) + t2.Sub(t3)) / 2
	if best, plusMinus, _, ok := e.best(t3); ok && (offset-best).Abs() > delay/2+plusMinus+stepped {
		e.reset() // a clock was set, or its machine was suspended: what was measured before is of no use
	}
	e.samples[e.count%offsetSamples] = offsetSample{offset, delay, t0}
	e.count++
}

// reset forgets everything: a restarted peer has another steady clock.
func (e *offsetEstimator) reset() { *e = offsetEstimator{} }

// best is the offset and its error at now, and the newest round trip.
func (e *offsetEstimator) best(now time.Time) (offset, plusMinus, rtt time.Duration, ok bool) {
	if e.count == 0 {
		return 0, 0, 0, false
	}
	for _, s := range e.samples[:min(e.count, offsetSamples)] {
		err := s.delay/2 + now.Sub(s.at)*driftPPM/1_000_000
		if !ok || err < plusMinus {
			offset, plusMinus, ok = s.offset, err, true
		}
	}
	return offset, plusMinus, e.samples[(e.count-1)%offsetSamples].delay, true
}
