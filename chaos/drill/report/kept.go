package report

import (
	"fmt"
	"slices"
	"time"

	"domicile/chaos/drill/history"
)

// The names of the checks.
const (
	CheckControl   = "the cut ended by command, within its time"
	CheckSeen      = "both sides saw the cut, and went on seeing it"
	CheckAnswered  = "every region answered its operators throughout"
	CheckKept      = "nothing acknowledged is lost"
	CheckCopied    = "every copy has what has to be in it"
	CheckResident  = "nothing resident was stored or read outside its boundary"
	CheckIntact    = "records were read as they were published, in order"
	CheckLagFloor  = "no lag was said to be smaller than it was"
	CheckLagTruth  = "every lag was as the oracle saw it"
	CheckLagSlope  = "lag grew by one second per second"
	CheckPending   = "no region counted fewer pending records than there were"
	CheckDegraded  = "producers got what was declared"
	CheckLoss      = "moves lost no more than declared, and said what"
	CheckRTO       = "moves took no longer than declared"
	CheckReconcile = "every sequence is accounted for everywhere"
	CheckScan      = "no mark of a resident record in foreign files"
	CheckDecision  = "no move was allowed that the oracle would refuse, and no denial was without its rule"
	CheckExpected  = "the failover engine answered as expected"
)

// check counts how often something was judged, and what was wrong.
type check struct {
	Check
	wrong []string
}

func (c *check) judge(ok bool, format string, args ...any) {
	c.Judged++
	if !ok {
		c.wrong = append(c.wrong, fmt.Sprintf(format, args...))
	}
}

// done is the check as it is reported: fine is said when nothing was wrong.
func (c *check) done(fine string) Check {
	c.OK = len(c.wrong) == 0
	switch {
	case c.Judged == 0:
		c.OK, c.Text = true, "not put to the test"
	case c.OK:
		c.Text = fine
	case len(c.wrong) > 3:
		c.Text = fmt.Sprintf("%s; and %d more", join(c.wrong[:3]), len(c.wrong)-3)
	default:
		c.Text = join(c.wrong)
	}
	return c.Check
}

func join(list []string) string {
	text := ""
	for i, s := range list {
		if i > 0 {
			text += "; "
		}
		text += s
	}
	return text
}

func named(name string) *check { return &check{Check: Check{Name: name}} }

// stored follows every acknowledged record to where it rests by the map.
func (s *scene) stored() []Check {
	kept, copied, resident := named(CheckKept), named(CheckCopied), named(CheckResident)
	lost, missing, unread := map[place]int{}, map[place]int{}, map[place]int{}
	records := 0
	passages := s.passages()
	for _, of := range s.records {
		for _, r := range of {
			a := s.standing(passages, r)
			if a != nil {
				records++
				s.follow(r, a, lost, missing, unread)
				if !s.plan.MayRest(a.told.Residency, a.told.Region) {
					resident.judge(false, "%s acknowledged a record bound to %s", a.told.Region, a.told.Residency)
				}
			}
		}
	}
	kept.Judged, copied.Judged = records, records
	for p, n := range lost {
		text := fmt.Sprintf("%d acknowledged records of %s are not read at their home %s", n, p.of, p.region)
		if k := unread[p]; k > 0 {
			text += fmt.Sprintf(", %d of them beyond what had been read there when the drill ended: nobody knows whether they are lost", k)
		}
		kept.wrong = append(kept.wrong, text)
	}
	for p, n := range missing {
		copied.wrong = append(copied.wrong, fmt.Sprintf("%d records of %s are not read in %s", n, p.of, p.region))
	}
	if !s.waited() {
		copied.Judged, copied.wrong = 0, nil
	}
	slices.Sort(kept.wrong)
	slices.Sort(copied.wrong)
	s.outside(resident)
	return []Check{
		kept.done(fmt.Sprintf("%s acknowledged, all of them read", count(uint64(records), "record"))),
		copied.done("all read wherever the map puts them"),
		resident.done("readers in every region got none"),
	}
}

// waited reports whether copies were given the time to have everything: not by a controller
// that died before.
func (s *scene) waited() bool {
	return s.history.Closed() != nil || slices.ContainsFunc(s.history.Events, func(e history.Event) bool { return e.Step != nil && e.Step.Phase == history.CatchUp && e.Step.End })
}

// standing is the ack that has to hold: the last one, if no move made it void.
func (s *scene) standing(passages []*passage, r *record) *ack {
	for i := len(r.acks) - 1; i >= 0; i-- {
		if !s.void(passages, &r.acks[i]) {
			return &r.acks[i]
		}
	}
	return nil
}

// follow counts a record that is not read where it rests: at home as lost, and as unread too
// if no reader there had come that far in its log.
func (s *scene) follow(r *record, a *ack, lost, missing, unread map[place]int) {
	for _, region := range s.plan.Rests(a.told.Log, a.told.Residency) {
		if _, ok := r.heardIn(region); ok || !s.readers[place{a.told.Topic, region}] {
			continue
		}
		if region == a.told.Region {
			p := place{a.told.Log, region}
			lost[p]++
			if a.row.Sequence > s.readTo[p] {
				unread[p]++
			}
		} else {
			missing[place{a.told.Log, region}]++
		}
	}
}

// outside looks at what readers got of records that may not rest in their region.
func (s *scene) outside(resident *check) {
	for i := range s.history.Events {
		e := &s.history.Events[i]
		if e.Heard == nil {
			continue
		}
		for _, run := range e.Heard.Runs {
			if run.Residency != history.Global {
				resident.judge(s.plan.MayRest(run.Residency, e.Region), "a reader in %s got records %d to %d of %s, bound to %s", e.Region, run.From, run.To, run.Log, run.Residency)
			}
		}
	}
}

// intact looks at how records were read.
func (s *scene) intact() Check {
	c := named(CheckIntact)
	for i := range s.history.Events {
		if e := &s.history.Events[i]; e.Heard != nil {
			c.judge(e.Heard.Altered == 0, "%s got %s with another body", e.Heard.Reader, count(e.Heard.Altered, "record"))
			c.judge(e.Heard.Disordered == 0, "%s got %s out of order", e.Heard.Reader, count(e.Heard.Disordered, "record"))
		}
	}
	for _, of := range s.records {
		for _, r := range of {
			if len(r.acks) > 1 {
				a, b := r.acks[0], r.acks[len(r.acks)-1]
				c.judge(a.told.Epoch != b.told.Epoch || a.told.Log == b.told.Log && a.row.Sequence == b.row.Sequence, "a record was acknowledged at two places of %s", a.told.Log)
			}
		}
	}
	return c.done("byte by byte")
}

// control looks at how the cut ended.
func (s *scene) control() Check {
	c := named(CheckControl)
	if s.cut == nil {
		return c.done("")
	}
	c.judge(!s.cut.Lapsed, "a lease ran out: the controller had lost the cut, at %s", s.cut.Why)
	closed := s.history.Closed()
	c.judge(closed != nil && closed.Outcome != history.Uncontrolled, "the history does not say that the controller ended it")
	healed := s.cut.Gone < s.end || closed != nil
	c.judge(healed, "no region said that it healed")
	return c.done(fmt.Sprintf("cut off for %s", span(s.cut.Held())))
}

func (s *scene) seen(list []Sight) Check {
	c := named(CheckSeen)
	for _, v := range list {
		switch limit := s.plan.Bounds.See; {
		case v.Within == nil && s.cut.Held() < limit: // it had no time to
		case v.Within == nil:
			c.judge(false, "%s never said that %s was cut off", v.Region, v.Peer)
		case limit > 0:
			c.judge(*v.Within <= limit+s.blur(), "%s saw that %s was cut off only after %s", v.Region, v.Peer, span(*v.Within))
		default:
			c.Judged++
		}
		c.judge(v.Flaps == 0, "%s took the link to %s for healed %d times", v.Region, v.Peer, v.Flaps)
	}
	return c.done("each side by itself")
}

// early reports whether the drill was ended before its time. Then it proves nothing as a
// whole, and what it had no time for is open, not failed.
func (s *scene) early() bool {
	c := s.history.Closed()
	return c != nil && c.Outcome == history.Aborted
}

// blur is how long the cut may have taken to begin.
func (s *scene) blur() time.Duration { return s.cut.Surely - s.cut.From }

func (s *scene) answered() Check {
	c := named(CheckAnswered)
	silent := map[string]int{}
	for i := range s.history.Events {
		e := &s.history.Events[i]
		switch {
		case e.Silent != nil:
			silent[e.Region]++
			c.Judged++
		case e.Gauge != nil:
			c.Judged++
		}
	}
	for region, n := range silent {
		c.wrong = append(c.wrong, fmt.Sprintf("%s left %s without an answer", region, count(uint64(n), "question")))
	}
	slices.Sort(c.wrong)
	return c.done("its figures are its own throughout")
}

// lagChecks judges the figures against the oracle.
func (s *scene) lagChecks(lags []Lag, behind []Behind) []Check {
	floor, truth, slope, pending := named(CheckLagFloor), named(CheckLagTruth), named(CheckLagSlope), named(CheckPending)
	worst, late, all := 0.0, 0, 0
	for _, l := range lags {
		if l.Judged == 0 {
			continue
		}
		limit := s.limit(l.Busy)
		worst, late, all = max(worst, l.Under), late+l.Late, all+l.Judged
		floor.judge(l.Under <= s.plan.Bounds.Clock.Seconds(), "%s in %s was up to %.2f s below the oracle", l.Log, l.Target, l.Under)
		truth.judge(l.Over <= limit.Seconds(), "%s in %s was up to %.2f s above the oracle", l.Log, l.Target, l.Over)
		truth.judge(l.Off <= limit.Seconds(), "%s in %s may have been off by %.2f s, more than %s", l.Log, l.Target, l.Off, span(limit))
		truth.judge(2*l.Late <= l.Judged, "%s in %s: %d of %d figures are not known to within %s, so nobody can say", l.Log, l.Target, l.Late, l.Judged, span(limit))
		if l.Slope != nil {
			slope.judge(*l.Slope > 0.9 && *l.Slope < 1.1, "%s in %s: %.3f", l.Log, l.Target, *l.Slope)
		}
	}
	s.pending(pending, behind)
	return []Check{
		floor.done(fmt.Sprintf("at most %.2f s below", worst)), truth.done(fmt.Sprintf("within its bounds; of %d figures %d came too late to say", all, late)), slope.done("every one within a tenth"),
		pending.done("of the drill's own records"),
	}
}

// pending holds each home's word on what waits against what the drill knows that waits.
func (s *scene) pending(c *check, behind []Behind) {
	for _, b := range behind {
		var owed []time.Duration
		for _, id := range b.IDs {
			for n := id.From; n <= id.To; n++ {
				owed = append(owed, s.records[id.Producer][n].first().row.End)
			}
		}
		slices.Sort(owed)
		for i := range s.history.Events {
			e := &s.history.Events[i]
			g := e.Gauge
			if g == nil || e.Region != b.Home || g.Log != b.Log || g.Target != b.Target || g.Records == nil || g.Asked < s.cut.Surely || e.At > s.cut.Until {
				continue
			}
			least, _ := slices.BinarySearch(owed, g.Asked)
			c.judge(*g.Records >= uint64(least), "%s said that %d records of %s wait for %s; there were at least %d", b.Home, *g.Records, b.Log, b.Target, least)
		}
	}
}
