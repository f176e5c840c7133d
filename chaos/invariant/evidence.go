package invariant

import (
	"slices"
	"time"

	"domicile/chaos/ledger"
)

// place is one log in one region.
type place struct{ log, region string }

// evidence is the history and the shelves, in the order in which judges ask.
type evidence struct {
	history *ledger.History
	limits  Limits
	final   []ledger.Shelf
	entries []ledger.Entry
	records map[string][]*ledger.Entry // by the mark of their id
	homes   map[string]*ledger.Shelf   // by log
	spans   []ledger.Span
	verdict *Verdict
}

func newEvidence(h *ledger.History, final []ledger.Shelf, limits Limits) *evidence {
	e := &evidence{
		history: h, limits: limits, final: final, entries: h.Entries(), records: map[string][]*ledger.Entry{}, homes: map[string]*ledger.Shelf{},
		spans: h.Spans(), verdict: &Verdict{Broken: map[int]int{}, Judged: map[int]int{}},
	}
	for i := range e.entries {
		id := ledger.Mark(e.entries[i].ID)
		e.records[id] = append(e.records[id], &e.entries[i])
	}
	for i := range final {
		if final[i].Home {
			e.homes[final[i].Log] = &final[i]
		}
	}
	return e
}

func (e *evidence) broken(v Violation) {
	if e.verdict.Broken[v.Number]++; e.verdict.Broken[v.Number] <= maxEach {
		e.verdict.Violations = append(e.verdict.Violations, v)
	}
}

func (e *evidence) judged(number int) { e.verdict.Judged[number]++ }

// during lists when steps of some kinds were on.
func (e *evidence) during(kinds ...ledger.StepKind) []ledger.Span {
	return slices.DeleteFunc(slices.Clone(e.spans), func(s ledger.Span) bool { return !slices.Contains(kinds, s.Kind) })
}

// reached is when the run said for the first time that all is healed and copied.
func (e *evidence) reached() (time.Duration, bool) {
	if points := e.during(ledger.Converged); len(points) > 0 {
		return points[0].From, true
	}
	return 0, false
}

// calm reports whether no fault, but for a loss of gossip, touched any of the regions, or a link between them,
// between the two times, a settling time after each included. Kinds to overlook may be
// named.
func (e *evidence) calm(from, to time.Duration, overlook []ledger.StepKind, names ...string) bool {
	for _, s := range e.spans {
		if s.Phase == ledger.Point || s.Kind == ledger.Load || s.Kind == ledger.GossipCut || slices.Contains(overlook, s.Kind) || s.To+e.limits.Settle < from || s.From > to {
			continue
		}
		if s.Region == "" || slices.Contains(names, s.Region) && (s.Peer == "" || slices.Contains(names, s.Peer)) {
			return false
		}
	}
	return true
}

// held reports whether a fault was on at a time and everybody had had time to notice.
func (e *evidence) held(s ledger.Span, at time.Duration) bool {
	return at >= s.From+e.limits.Settle && at < s.To
}

// forgets reports whether a step makes a region forget or mistake what it measured.
func forgets(k ledger.StepKind) bool {
	return slices.Contains([]ledger.StepKind{ledger.Kill, ledger.Stop, ledger.PowerCut, ledger.Pause, ledger.ClockStep, ledger.Isolation}, k)
}

// between reports whether a cut holds between two regions.
func between(s *ledger.Span, a, b string) bool {
	one := func(x, y string) bool { return s.Region == x && (s.Peer == "" || s.Peer == y) }
	return s.Region == "" || one(a, b) || one(b, a)
}

// severed lists when certainly nothing of a log can have come from its home to a
// target: both ways cut, or the home not running.
func (e *evidence) severed(home, target string) []ledger.Span {
	var list []ledger.Span
	for _, s := range e.spans {
		cut := s.Kind == ledger.Cut && between(&s, home, target)
		dead := slices.Contains([]ledger.StepKind{ledger.Kill, ledger.Stop, ledger.PowerCut}, s.Kind) && s.Node == "" && (s.Region == home || s.Region == "")
		if cut || dead {
			list = append(list, s)
		}
	}
	return list
}

// sample is a lag sample and when it was noted.
type sample struct {
	at time.Duration
	*ledger.LagSample
}

// lags groups the lag samples by log and by the target they are about, as said by one
// side: the target itself, or the home.
func (e *evidence) lags(byTarget bool) map[place][]sample {
	groups := map[place][]sample{}
	for i := range e.history.Events {
		ev := &e.history.Events[i]
		if ev.Lag == nil || ev.Lag.Home == ev.Lag.Target {
			continue
		}
		if byTarget && ev.Lag.Region == ev.Lag.Target || !byTarget && ev.Lag.Region == ev.Lag.Home {
			p := place{ev.Lag.Log.String(), ev.Lag.Target}
			groups[p] = append(groups[p], sample{ev.At, ev.Lag})
		}
	}
	return groups
}
