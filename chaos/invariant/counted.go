package invariant

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"domicile/api"
	"domicile/chaos/ledger"
	"domicile/policy"
	"domicile/regions"
)

// counted judges 19: each judgement is counted, at each point where policy is asked, and none
// twice; each outcome of a publish is counted once. What a region says is held against the
// clients' history over the longest stretches in which all its processes went on: what was
// asked and answered within one is at least what was counted in it, and what was asked at any
// time up to its end at most. Where a process was killed counts may be lost, so that only the
// upper bound goes beyond. Egress has kept back exactly what may not rest in a copy.
func counted(e *evidence) {
	for region, readings := range e.readings() {
		for _, s := range unbroken(readings) {
			e.rising(region, s)
			if len(s) > 1 {
				c := &counting{evidence: e, region: region, first: s[0], last: s[len(s)-1], ever: readings[0]}
				c.outcomes()
				c.admits()
				c.copies()
				c.readers()
			}
		}
	}
	e.withheld()
}

// reading is one look at a region's counts.
type reading struct {
	from, to time.Duration
	*ledger.Counts
	cells map[question]uint64
}

// question is what the history knows of a policy.Question: not who asked it.
type question struct {
	point                            policy.Point
	topic, residency, origin, target string
}

func (q question) String() string {
	return fmt.Sprintf("%s of %s, %s, from %s to %s", q.point, q.topic, q.residency, q.origin, q.target)
}

func (e *evidence) readings() map[string][]reading {
	out := map[string][]reading{}
	for i := range e.history.Events {
		ev := &e.history.Events[i]
		if ev.Counts == nil {
			continue
		}
		r := reading{from: ev.Counts.From, to: ev.At, Counts: ev.Counts, cells: map[question]uint64{}}
		for text, n := range ev.Counts.Asked {
			q, err := policy.ParseQuestion(text)
			if err != nil {
				e.broken(Violation{Number: Counted, Region: ev.Counts.Region, At: ev.At, Text: "a question is counted that none can read"})
				continue
			}
			r.cells[question{q.Point, q.Topic, (&api.Record{Tags: q.Tags}).Tag(regions.ResidencyTag), q.Origin, q.Target}] += n
		}
		out[ev.Counts.Region] = append(out[ev.Counts.Region], r)
	}
	return out
}

// unbroken cuts a region's readings where one of its processes was started anew.
func unbroken(all []reading) (out [][]reading) {
	for i, r := range all {
		if i == 0 || r.Run != all[i-1].Run {
			out = append(out, nil)
		}
		out[len(out)-1] = append(out[len(out)-1], r)
	}
	return out
}

// rising: while a process goes on no count falls.
func (e *evidence) rising(region string, s []reading) {
	for i := 1; i < len(s); i++ {
		e.judged(Counted)
		fell := func(what string) {
			e.broken(Violation{Number: Counted, Region: region, At: s[i].to, Text: "a count fell: " + what})
		}
		for q, n := range s[i-1].cells {
			if s[i].cells[q] < n {
				fell(q.String())
			}
		}
		for key, n := range s[i-1].Told {
			if s[i].Told[key] < n {
				fell(key)
			}
		}
	}
}

// counting is one stretch in which all processes of a region went on.
type counting struct {
	*evidence
	region            string
	first, last, ever reading // ever: the region's first of the run
}

// within: it was asked and answered in the stretch, so it was counted in it.
func (c *counting) within(a *ledger.Entry) bool { return a.Begin >= c.first.to && a.End <= c.last.from }

// maybe: it may have been counted after a reading and by the stretch's end. What nobody could
// answer may be judged long after its producer gave up.
func (c *counting) maybe(a *ledger.Entry, since reading) bool {
	return a.Begin <= c.last.to && (a.End >= since.from || a.Outcome == ledger.Unknown)
}

// between holds a count against its bounds; most < 0: there is no upper one.
func (c *counting) between(what string, n uint64, least, most int) {
	if least == 0 && most < 0 {
		return
	}
	c.judged(Counted)
	if n < uint64(least) || most >= 0 && n > uint64(most) {
		text := fmt.Sprintf("%s: counted %d times, at least %d", what, n, least)
		if most >= 0 {
			text += fmt.Sprintf(" and at most %d", most)
		}
		c.broken(Violation{Number: Counted, Region: c.region, At: c.last.to, Text: text + " happened"})
	}
}

// afterDoor reports whether a refusal is one that only the gateway behind a door gives: it
// has counted it, and the record was past every quota.
func afterDoor(code api.Code) bool {
	return slices.Contains([]api.Code{api.ResidencyDenied, api.TransitDenied, api.HomeUnreachable, api.UnknownTag, api.MissingTag,
		api.UnknownTopic, api.CombinationNotAllowed}, code)
}

// outcomes: what producers were told at the region's doors.
func (c *counting) outcomes() {
	least, most, open := map[string]int{}, map[string]int{}, 0
	for i := range c.entries {
		a := &c.entries[i]
		if a.Asked != c.region {
			continue
		}
		key := ledger.Told(a.Topic, a.Code)
		if a.Code == api.UnknownTopic {
			key = ledger.Told("", a.Code)
		}
		switch {
		case a.Outcome == ledger.Unknown && c.maybe(a, c.first):
			open++
		case a.Outcome == ledger.Unknown:
		case c.maybe(a, c.first):
			most[key]++
		}
		if c.within(a) && (a.Outcome == ledger.Acked || a.Outcome == ledger.Refused && afterDoor(a.Code)) {
			least[key]++
		}
	}
	for _, key := range slices.Sorted(maps.Keys(most)) {
		bound := most[key] + open
		if c.last.Nodes > 1 {
			bound = -1 // a record whose node lost the seat meanwhile is handed over to another one
		}
		c.between("told "+key, c.last.Told[key]-c.first.Told[key], least[key], bound)
	}
}

// admits: what the policy was asked when a record came in, here or as another region's home.
func (c *counting) admits() {
	least, most := map[question]int{}, map[question]int{}
	for i := range c.entries {
		a := &c.entries[i]
		admit := question{policy.Admit, a.Topic, a.Residency, a.Asked, policy.None}
		here := a.Asked == c.region
		if here && c.maybe(a, c.ever) {
			most[admit]++
		}
		if !c.within(a) {
			continue
		}
		judged := a.Outcome == ledger.Acked || slices.Contains([]api.Code{api.ResidencyDenied, api.TransitDenied, api.HomeUnreachable}, a.Code)
		if here && judged || a.Outcome == ledger.Acked && a.Region == c.region {
			least[admit]++
		}
		if here && (a.Outcome == ledger.Acked && a.Forwarded || a.Code == api.TransitDenied) {
			least[question{policy.Transit, a.Topic, a.Residency, a.Asked, a.Asked}]++
		}
	}
	for q, n := range least {
		c.between(q.String(), c.last.cells[q]-c.first.cells[q], n, -1)
	}
	if c.last.Nodes > 1 || c.flips() {
		return // a record is judged again by another node, or under another revision
	}
	for q, n := range most {
		if c.last.cells[q] > c.ever.cells[q] {
			c.between(q.String(), c.last.cells[q]-c.ever.cells[q], 0, n)
		}
	}
}

// flips reports whether the region may have put another policy in force.
func (c *counting) flips() bool {
	return slices.ContainsFunc(c.during(ledger.PolicyFlip), func(s ledger.Span) bool { return s.Region == c.region })
}

// copies: when all is copied, each record was judged on leaving for each copy, and on
// arriving at each that has it.
func (c *counting) copies() {
	done, ok := c.reached()
	if !ok || done > c.last.from {
		return
	}
	least := map[question]int{}
	for i := range c.entries {
		a := &c.entries[i]
		if a.Outcome != ledger.Acked || a.Duplicate || a.Begin < c.first.to || a.End > done {
			continue
		}
		for n := range c.final {
			s := &c.final[n]
			switch {
			case s.Log != a.Log || s.Region == a.Region:
			case a.Region == c.region:
				least[question{policy.MirrorEgress, a.Topic, a.Residency, a.Region, s.Region}]++
			case s.Region == c.region && slices.Contains(a.Rests, s.Region):
				least[question{policy.MirrorIngress, a.Topic, a.Residency, a.Region, s.Region}]++
			}
		}
	}
	for q, n := range least {
		c.between(q.String(), c.last.cells[q]-c.first.cells[q], n, -1)
	}
}

// readers: what was handed to a reader was judged for him.
func (c *counting) readers() {
	least := map[[2]string]int{}
	for i := range c.history.Events {
		ev := &c.history.Events[i]
		if ev.Batch == nil || ev.Batch.Region != c.region || ev.At < c.first.to+c.limits.Slack || ev.At > c.last.from {
			continue
		}
		for _, got := range ev.Batch.Items {
			if tries := c.records[got.ID]; len(tries) > 0 {
				least[[2]string{tries[0].Topic, tries[0].Residency}]++
			}
		}
	}
	total := func(r reading, key [2]string) (n uint64) {
		for q, k := range r.cells {
			if q.point == policy.Consume && q.topic == key[0] && q.residency == key[1] {
				n += k
			}
		}
		return n
	}
	for key, n := range least {
		c.between("consume of "+key[0]+", "+key[1], total(c.last, key)-total(c.first, key), n, -1)
	}
}

// withheld: of what its home holds, a copy says that policy kept back as many records as may
// not rest there, all of them on leaving. A home that has given up records can't be asked.
func (e *evidence) withheld() {
	for i := range e.final {
		s := &e.final[i]
		home := e.homes[s.Log]
		if s.Home || home == nil || len(home.Gaps) > 0 {
			continue
		}
		must := uint64(0)
		for n := range home.Items {
			it := &home.Items[n]
			if tries := e.records[ledger.Mark(it.ID)]; it.Sequence <= s.End && len(tries) > 0 && !slices.Contains(tries[0].Rests, s.Region) {
				must++
			}
		}
		e.judged(Counted)
		if s.Ledger.Withheld != must {
			e.broken(Violation{Number: Counted, Log: s.Log, Region: s.Region, Text: fmt.Sprintf("the copy counts %d records as withheld, its home holds %d that may not rest here", s.Ledger.Withheld, must)})
		}
		for _, g := range s.Gaps {
			if g.Kind == regions.Withheld && g.Side == "ingress" {
				e.broken(Violation{Number: Counted, Log: s.Log, Region: s.Region, Sequence: g.From, Text: "refused on arrival: it had left its home"})
			}
		}
	}
}
