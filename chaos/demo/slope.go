package demo

import "time"

// sample is one reading of an exported gauge.
type sample struct {
	at    time.Time // when it was read
	value float64   // seconds
}

// minSamples is how many readings a slope is fitted to at least.
const minSamples = 10

// slope is the least-squares slope of the samples, in seconds of lag per second.
// ok is false for too few samples: no slope is shown then.
func slope(samples []sample) (float64, bool) {
	if len(samples) < minSamples {
		return 0, false
	}
	var sx, sy float64
	for _, s := range samples {
		sx += s.at.Sub(samples[0].at).Seconds()
		sy += s.value
	}
	n := float64(len(samples))
	mx, my := sx/n, sy/n
	var xy, xx float64
	for _, s := range samples {
		dx := s.at.Sub(samples[0].at).Seconds() - mx
		xy += dx * (s.value - my)
		xx += dx * dx
	}
	if xx == 0 {
		return 0, false
	}
	return xy / xx, true
}
