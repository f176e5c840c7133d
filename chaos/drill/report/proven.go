package report

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"domicile/chaos/drill/history"
)

// figures lays what was predicted beside what was measured: by others, noted in the
// history, or by this report.
func (s *scene) figures(r *Report) []Figure {
	type key struct{ name, topic, log, target string }
	rows := map[key]*Figure{}
	row := func(f history.Figure) *Figure {
		k := key{f.Name, f.Topic, f.Log, f.Target}
		if rows[k] == nil {
			rows[k] = &Figure{Name: f.Name, Topic: f.Topic, Log: f.Log, Target: f.Target, Unit: f.Unit}
		}
		return rows[k]
	}
	for i := range s.history.Events {
		e := &s.history.Events[i]
		if p := e.Prediction; p != nil {
			f := row(*p)
			f.Predicted, f.Basis = &p.Value, p.Basis
		}
		if m := e.Measured; m != nil {
			f := row(*m)
			f.Measured, f.Basis = &m.Value, strings.Trim(f.Basis+"; "+m.Basis, "; ")
		}
	}
	for _, m := range s.measured(r) {
		if f := row(m); f.Measured == nil {
			f.Measured = &m.Value
		}
	}
	var out []Figure
	for _, f := range rows {
		out = append(out, *f)
	}
	slices.SortFunc(out, func(a, b Figure) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Log, b.Log), cmp.Compare(a.Target, b.Target))
	})
	return out
}

// measured is what the report measures itself.
func (s *scene) measured(r *Report) []history.Figure {
	var out []history.Figure
	for _, l := range r.Lags {
		if l.Most != nil {
			out = append(out, history.Figure{Name: history.LagAtHeal, Log: l.Log, Target: l.Target, Value: *l.Most, Unit: "s"})
		}
	}
	for _, b := range r.Behind {
		out = append(out, history.Figure{Name: history.PendingAtHeal, Log: b.Log, Target: b.Target, Value: float64(b.Records), Unit: "records"})
	}
	refused := map[string]float64{}
	for _, d := range r.Degraded {
		refused[d.Topic] += float64(d.Refused)
	}
	for topic, n := range refused {
		out = append(out, history.Figure{Name: history.RefusedOwn, Topic: topic, Value: n, Unit: "records"})
	}
	for _, p := range r.Phases {
		if p.Name == history.CatchUp && p.Took != nil && p.OK && r.Cut != nil {
			out = append(out, history.Figure{Name: history.CatchUpTime, Value: (p.Began + *p.Took - r.Cut.Until).Seconds(), Unit: "s"})
		}
	}
	return out
}

// unproven lists what this drill does not show, so that nobody reads it into it.
func (s *scene) unproven(r *Report) []string {
	out := []string{}
	add := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	r.forecast(add)
	if !r.Source.Whole() {
		add("The history is not whole: %s.", r.Source.lack())
	}
	for _, c := range r.Checks {
		if c.Judged == 0 {
			add("Not put to the test: %s.", c.Name)
		}
	}
	s.unmoved(r, add)
	if r.Cut != nil {
		add("Cuts longer than %s: retention, room on disks and catch-up after hours are not shown.", span(r.Cut.Held().Round(time.Second)))
		by := "the nodes' own gates, which lose no packets,"
		if s.plan.Gate == "nftables" {
			by = "the packet filters of the nodes' own kernels"
		}
		add("Loss of a region's disk, machine or power: nodes ran on behind the cut. A cut by %s is not a network's: routers, names and balancers were not part of it.", by)
	}
	unknown := 0
	for _, l := range r.Lags {
		if l.Parted && l.Judged == 0 {
			unknown++
		}
	}
	if unknown > 0 {
		add("The lag of %d of the copies that the cut parted: no figure of theirs could be judged.", unknown)
	}
	if len(r.Scans) > 0 {
		add("Resident bytes in memory, in dumps, in what other programs keep of the nodes' logs, in deleted blocks, or compressed or encrypted: what was searched is named above.")
	}
	s.unsearched(r, add)
	s.unread(add)
	add("What other producers published: the loss set and the lag are judged by the drill's own records; of others only counts and sequences are known.")
	add("Who wrote the history: its chain shows that nothing was changed since the hash above was noted, and is no signature.")
	return out
}

// unsearched names what the nodes that searched could not look through.
func (s *scene) unsearched(r *Report, add func(string, ...any)) {
	said := map[string]bool{}
	for _, v := range r.Scans {
		for _, what := range v.Beyond {
			if line := v.Where + ": " + what; !said[line] {
				said[line] = true
				add("The log of a process: %s.", line)
			}
		}
	}
}

// unmoved names topics that may move and were not moved.
func (s *scene) unmoved(r *Report, add func(string, ...any)) {
	var asked []string
	for _, t := range s.plan.Topics {
		if t.Mode == "manual" && !slices.ContainsFunc(r.Moves, func(m Move) bool { return m.Topic == t.Name && m.RTO != nil }) {
			asked = append(asked, t.Name)
		}
	}
	if len(asked) > 0 {
		add("RTO and loss of %s: moves were asked about, none was carried out.", strings.Join(asked, ", "))
	}
}

// unread names the topics of which the drill published or read nothing.
func (s *scene) unread(add func(string, ...any)) {
	fed := map[string]bool{}
	for _, of := range s.records {
		for _, r := range of {
			fed[r.producer.Topic] = true
			break
		}
	}
	var none []string
	for _, t := range s.plan.Topics {
		if !fed[t.Name] {
			none = append(none, t.Name)
		}
	}
	if len(none) > 0 {
		add("What producers and readers of %s get: the drill published nothing there.", strings.Join(none, ", "))
	}
}

func (s *Source) lack() string {
	var parts []string
	if s.Torn {
		parts = append(parts, "it ends in the middle of a line")
	}
	if !s.Closed {
		parts = append(parts, "nobody closed it")
	}
	if s.Dropped > 0 {
		parts = append(parts, count(s.Dropped, "event")+" had no room")
	}
	return strings.Join(parts, ", ")
}
