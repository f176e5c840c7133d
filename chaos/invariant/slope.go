package invariant

import (
	"fmt"
	"time"
)

// fewest is how many samples a line is fitted through at least, and shortest over how
// long a time.
const (
	fewest   = 8
	shortest = 2 * time.Second
)

// slope judges 11: while nothing can come from the home, the target's staleness grows
// by one second per second, and never falls.
func slope(e *evidence) {
	for p, samples := range e.lags(true) {
		home := samples[0].Home
		for _, s := range e.severed(home, p.region) {
			if e.upset(p.region, s.From, s.To) {
				continue
			}
			var line []sample
			for _, m := range samples {
				if e.held(s, m.at) && m.StalenessKnown {
					line = append(line, m)
				}
			}
			e.judgeLine(p, line)
		}
	}
}

// upset reports whether a region forgot or mistook its measurements in a time.
func (e *evidence) upset(region string, from, to time.Duration) bool {
	for _, s := range e.spans {
		if forgets(s.Kind) && (s.Region == region || s.Region == "") && s.To+e.limits.Settle >= from && s.From <= to {
			return true
		}
	}
	return false
}

func (e *evidence) judgeLine(p place, line []sample) {
	if len(line) < fewest || line[len(line)-1].at-line[0].at < shortest {
		return
	}
	e.judged(Slope)
	for i := 1; i < len(line); i++ {
		if fell := line[i-1].Staleness - line[i].Staleness; fell > e.limits.Slack {
			e.broken(Violation{Number: Slope, Log: p.log, Region: p.region, At: line[i].at, Text: fmt.Sprintf("the lag fell by %s although nothing can have arrived", fell)})
		}
	}
	if got := fit(line); got < 1-e.limits.SlopeOff || got > 1+e.limits.SlopeOff {
		e.broken(Violation{Number: Slope, Log: p.log, Region: p.region, At: line[0].at, Text: fmt.Sprintf("the lag grew by %.2f seconds per second", got)})
	}
}

// fit is the slope of the least squares line.
func fit(line []sample) float64 {
	var x, y, xx, xy float64
	n := float64(len(line))
	for _, m := range line {
		a, b := m.at.Seconds(), m.Staleness.Seconds()
		x, y, xx, xy = x+a, y+b, xx+a*a, xy+a*b
	}
	return (n*xy - x*y) / (n*xx - x*x)
}
