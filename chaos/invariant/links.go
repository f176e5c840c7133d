package invariant

import (
	"fmt"
	"time"

	"domicile/chaos/ledger"
)

// link is one side of a link.
type link struct{ region, peer string }

// view is one word of a region on a link.
type view struct {
	at time.Duration
	*ledger.LinkSample
}

func (e *evidence) views() map[link][]view {
	views := map[link][]view{}
	for i := range e.history.Events {
		if l := e.history.Events[i].Link; l != nil {
			k := link{l.Region, l.Peer}
			views[k] = append(views[k], view{e.history.Events[i].At, l})
		}
	}
	return views
}

// oneWay judges 28: both sides of a link that is cut, be it in one direction only, say
// so in time, and go on saying so until it is healed.
func oneWay(e *evidence) {
	views := e.views()
	for _, s := range e.during(ledger.CutOneWay, ledger.Cut) {
		for k, list := range views {
			if !between(&s, k.region, k.peer) {
				continue
			}
			for _, v := range list {
				if !e.held(s, v.at) {
					continue
				}
				e.judged(OneWay)
				if v.Up {
					e.broken(Violation{Number: OneWay, Region: k.region, At: v.at, Text: fmt.Sprintf("says that its link to %s is up, %.3f s after the %s", k.peer, (v.at - s.From).Seconds(), s.Kind)})
				}
			}
		}
	}
}

// heartbeat judges 23: on a line that is only slow the peer is heard all the time, and
// the link stays up.
func heartbeat(e *evidence) {
	if e.limits.Silence == 0 {
		return
	}
	views := e.views()
	for _, s := range e.during(ledger.SlowLine) {
		for k, list := range views {
			if !between(&s, k.region, k.peer) {
				continue
			}
			for _, v := range list {
				if !e.held(s, v.at) || !e.calm(s.From, v.at, []ledger.StepKind{ledger.SlowLine}, k.region, k.peer) {
					continue
				}
				e.judged(Heartbeat)
				if !v.Up || !v.Heard || v.Silence > e.limits.Silence {
					e.broken(Violation{Number: Heartbeat, Region: k.region, At: v.at,
						Text: fmt.Sprintf("on a slow line %s was last heard %s ago (up: %v)", k.peer, v.Silence, v.Up)})
				}
			}
		}
	}
}
