package invariant

import (
	"fmt"

	"domicile/regions"
)

// idle judges 13: a target that is cut off from a log's home never says less than the
// time since the cut, nor that it has caught up, whether anything was written or not;
// and one that is not, and whose log nobody writes, is at most a few beats old.
func idle(e *evidence) {
	for p, samples := range e.lags(true) {
		for _, m := range samples {
			e.judgeCutOff(p, m)
			e.judgeIdle(p, m)
		}
	}
}

func (e *evidence) judgeCutOff(p place, m sample) {
	for _, s := range e.severed(m.Home, p.region) {
		if !e.held(s, m.at) || e.upset(p.region, s.From, m.at) {
			continue
		}
		e.judged(Idle)
		v := Violation{Number: Idle, Log: p.log, Region: p.region, At: m.at}
		if least := m.at - s.From - e.limits.Slack - m.StalenessError; m.StalenessKnown && m.Staleness < least {
			v.Text = fmt.Sprintf("staleness is said to be %s, %s after the cut", m.Staleness, m.at-s.From)
			e.broken(v)
		}
		if m.State == regions.LagCaughtUp {
			v.Text = "says that it has caught up while it is cut off"
			e.broken(v)
		}
	}
}

func (e *evidence) judgeIdle(p place, m sample) {
	if !e.settled(p, m) {
		return
	}
	e.judged(Idle)
	if !m.StalenessKnown || m.Staleness > max(e.limits.Young, e.limits.Settle)+m.StalenessError {
		e.broken(Violation{Number: Idle, Log: p.log, Region: p.region, At: m.at,
			Text: fmt.Sprintf("an idle log whose link is up is said to be %s old (known: %v)", m.Staleness, m.StalenessKnown)})
	}
}
