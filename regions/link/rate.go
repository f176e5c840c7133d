package link

import "time"

const (
	rateOver    = 100 * time.Millisecond // the shortest measurement of a rate
	rateWithin  = 2 * time.Second        // and the longest
	fastestRise = 2                      // per measurement: answers that come in a bunch are no faster line
)

// rate measures how fast bytes move. It counts only the time in which something was
// in flight, so that neither idle time nor one batch at a time makes a line look slow.
// It is a plain value.
type rate struct {
	busy      time.Duration // of this measurement
	since     time.Time     // busy is counted up to here; meaningful while something is in flight
	moved     int           // in this measurement
	perSecond float64       // smoothed; 0: not measured
}

// begin: from now on something is in flight.
func (r *rate) begin(now time.Time) { r.since = now }

// add books n bytes that have moved by now. inFlight: something was in flight until
// now. A measurement takes as long as enough bytes need to move, which with a window of
// that size is a round trip. It answers whether a measurement has ended; while limited
// is false the sender may have had less to send than the line carries, and the rate
// only rises.
func (r *rate) add(n int, inFlight, limited bool, enough int, now time.Time) bool {
	if inFlight {
		r.busy += now.Sub(r.since)
	}
	r.since = now
	r.moved += n
	if r.busy < rateOver || r.moved < enough && r.busy < rateWithin {
		return false
	}
	measured := float64(r.moved) / r.busy.Seconds()
	r.busy, r.moved = 0, 0
	switch {
	case r.perSecond == 0:
		r.perSecond = measured
	case measured > r.perSecond:
		r.perSecond = min((r.perSecond+measured)/2, fastestRise*r.perSecond)
	case limited:
		r.perSecond = (r.perSecond + measured) / 2
	}
	return true
}

// window is how many bytes move in a time.
func (r *rate) window(t time.Duration, least, most int) int {
	return min(max(int(r.perSecond*t.Seconds()), least), most)
}
