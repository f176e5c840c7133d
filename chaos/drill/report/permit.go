package report

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"domicile/chaos/drill/history"
)

// matrix is every answer of the failover engine, by log, target and moment.
func (s *scene) matrix() ([]Moment, []Row) {
	moments := s.moments()
	rows := map[flow]*Row{}
	for i := range s.history.Events {
		p := s.history.Events[i].Probe
		if p == nil {
			continue
		}
		f := flow{p.Log, p.Home, p.Target}
		if rows[f] == nil {
			t := s.topicOf(p.Topic)
			rows[f] = &Row{Topic: p.Topic, Log: p.Log, Home: p.Home, Target: p.Target, Resident: t != nil && len(t.Resident) > 0, Cells: make([]Cell, len(moments))}
		}
		at := slices.IndexFunc(moments, func(m Moment) bool { return m.Name == p.Moment })
		rows[f].Cells[at] = Cell{true, p.Since, p.Allowed, p.Kind, p.Why, p.Rule, p.Text, p.Span}
	}
	var out []Row
	for _, r := range rows {
		out = append(out, *r)
	}
	slices.SortFunc(out, func(a, b Row) int {
		return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Log, b.Log), cmp.Compare(a.Home, b.Home), cmp.Compare(a.Target, b.Target))
	})
	return moments, out
}

// moments lists when permissions were asked, in order.
func (s *scene) moments() []Moment {
	var out []Moment
	for i := range s.history.Events {
		if p := s.history.Events[i].Probe; p != nil && !slices.ContainsFunc(out, func(m Moment) bool { return m.Name == p.Moment }) {
			out = append(out, Moment{p.Moment, p.Since})
		}
	}
	return out
}

// expected holds every expectation against every answer that it speaks of. One that
// nothing was asked about has failed: it was not shown.
func (s *scene) expected() []Expected {
	var out []Expected
	for _, want := range s.plan.Expect {
		found := map[Expected]int{}
		for i := range s.history.Events {
			p := s.history.Events[i].Probe
			if p == nil || p.Topic != want.Topic || want.Log != "" && p.Log != want.Log || want.Target != "" && p.Target != want.Target ||
				want.Moment != history.Always && p.Moment != want.Moment || s.elsewhere(p) {
				continue
			}
			e := Expected{Topic: want.Topic, Log: p.Log, Target: p.Target, Moment: want.Moment, Want: want.Want, Why: want.Why}
			e.Got, e.OK = meets(want, p)
			found[e]++
		}
		if len(found) == 0 {
			e := Expected{Topic: want.Topic, Log: want.Log, Target: want.Target, Moment: want.Moment, Want: want.Want, Why: want.Why, Got: "nobody asked"}
			if slices.ContainsFunc(s.passages(), func(p *passage) bool { return p.Topic == want.Topic && p.decided != nil }) {
				e.OK, e.Moot, e.Got = true, true, "not asked: the drill had moved the log"
			} else if s.early() {
				e.OK, e.Moot, e.Got = true, true, "not asked: the drill ended early"
			}
			out = append(out, e)
		}
		for e, n := range found {
			e.Asked = n
			out = append(out, e)
		}
	}
	slices.SortStableFunc(out, func(a, b Expected) int {
		return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Log, b.Log), cmp.Compare(a.Target, b.Target), cmp.Compare(order(a.Moment), order(b.Moment)), cmp.Compare(a.Moment, b.Moment), cmp.Compare(a.Got, b.Got))
	})
	return out
}

// elsewhere reports whether a log was no longer where the plan found it when it was asked
// about: what may become of it then is another question.
func (s *scene) elsewhere(p *history.Probe) bool {
	t := s.topicOf(p.Topic)
	return t != nil && slices.ContainsFunc(t.Logs, func(l history.Log) bool { return l.Log == p.Log && l.Home != p.Home })
}

// order is a moment's place in time.
func order(moment string) int {
	return slices.Index([]string{history.Before, history.AtCut, history.HalfRPO, history.AtRPO, history.TwiceRPO, history.AfterHeal}, moment)
}

// decisions holds each answer against the oracle: a forced move may be allowed only while
// the copy is certainly no older than the topic's RPO, and a denial names a rule.
func (s *scene) decisions() Check {
	c := named(CheckDecision)
	for i := range s.history.Events {
		e := &s.history.Events[i]
		p := e.Probe
		if p == nil {
			continue
		}
		if !p.Allowed {
			c.judge(p.Rule != "" || p.Code != "", "%s towards %s was denied without a rule", p.Log, p.Target)
			continue
		}
		c.judge(p.Why == "", "%s towards %s was allowed, and yet: %s", p.Log, p.Target, p.Why)
		t, f := s.topicOf(p.Topic), flow{p.Log, p.Home, p.Target}
		if t == nil || t.RPO == 0 || p.Kind != "forced" || s.cut == nil || !s.parted(p.Home, p.Target) || !s.marksCut(f) || e.At < s.cut.Surely || e.At > s.cut.Until {
			continue
		}
		// The answer was given at some moment before it came; how long before is not noted.
		truth := s.truth(f)
		least := (e.At - truth.young).Seconds() - answerWithin.Seconds()
		c.judge(least <= t.RPO.Seconds(), "%s towards %s was allowed %s after the cut: the copy was at least %.1f s old, the topic accepts %s", p.Log, p.Target, span(e.At-s.cut.From), least, span(t.RPO))
	}
	return c.done("each of them")
}

// answerWithin is how old an answer may be when it is noted.
const answerWithin = time.Second

// meets says what was answered, in words, and whether that is what was wanted.
func meets(want history.Expectation, p *history.Probe) (string, bool) {
	if p.Allowed {
		return history.Allowed, want.Want == history.Allowed
	}
	got := history.Denied
	if p.Why != "" {
		got += ": " + p.Why
	}
	if p.Rule != "" {
		got += fmt.Sprintf(" (%s)", p.Rule)
	}
	return got, want.Want == history.Denied && (want.Why == "" || want.Why == p.Why)
}
