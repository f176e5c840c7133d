package regions

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Failover is the written rule by which a topic's logs move. Absent means never. After the
// manifest is loaded Accept is set or FenceAfter is above zero where the mode is manual.
type Failover struct {
	Mode       string        `yaml:"mode"`        // "never" or FailoverManual
	Targets    []string      `yaml:"targets"`     // regions a log may move to, besides back to its own
	RPO        time.Duration `yaml:"rpo"`         // the most that a forced move may lose, in time
	RTO        time.Duration `yaml:"rto"`         // within which a forced move is done, once people said so
	FenceAfter time.Duration `yaml:"fence_after"` // a home that is cut off this long takes no record any more
	Accept     bool          `yaml:"accept"`      // it goes on; what it then writes may turn out void
	Approvals  int           `yaml:"approvals"`   // people, besides the one who asks, that a move needs
}

// FailoverManual lets people move a topic's logs to another region.
const FailoverManual = "manual"

const (
	failoverNever = "never"
	maxApprovals  = 16
	minRPO        = 2 * time.Second // marks come once a second; nobody could tell less
)

// Movable reports whether the topic's logs may ever have another home.
func (t *Topic) Movable() bool { return t.Failover.Mode == FailoverManual }

// completeFailover refuses a rule that could not be kept, with the reason. What the policy
// makes of it is refused when the policy is loaded.
func (t *Topic) completeFailover(f *state, field func(string) string) error {
	r := &t.Failover
	switch r.Mode {
	case "", failoverNever:
		r.Mode = failoverNever
		return r.none(field)
	case FailoverManual:
	case "automatic":
		return notYet(field("failover.mode"), r.Mode, "only people move a log in this version: write manual or never")
	default:
		return bad(field("failover.mode"), r.Mode, "the modes are never, manual and automatic")
	}
	if len(f.voters) == 0 {
		return bad(field("failover.mode"), r.Mode, "nobody could decide where the log is: name voters under authority, or write never")
	}
	if len(r.Targets) == 0 {
		return bad(field("failover.targets"), "", "name the regions that a log may move to, or write mode: never")
	}
	if err := t.checkRegionList(f, field("failover.targets"), r.Targets); err != nil {
		return err
	}
	for _, home := range t.Regions {
		if err := t.checkTargets(f, field, home); err != nil {
			return err
		}
	}
	if err := r.checkIsolation(field); err != nil {
		return err
	}
	return t.checkPromises(f, field)
}

// none refuses settings that say nothing without a mode that moves logs.
func (r *Failover) none(field func(string) string) error {
	for _, s := range []struct {
		name string
		set  bool
	}{
		{"targets", len(r.Targets) > 0}, {"rpo", r.RPO != 0}, {"rto", r.RTO != 0}, {"fence_after", r.FenceAfter != 0},
		{"accept", r.Accept}, {"approvals", r.Approvals != 0},
	} {
		if s.set {
			return bad(field("failover."+s.name), "", "it needs mode: manual; a log that never moves has none of it")
		}
	}
	return nil
}

// TargetsOf lists the regions to which a log that the manifest puts in first may move from
// there, by name. What the policy allows may be less.
func (t *Topic) TargetsOf(first string) []string {
	return slices.DeleteFunc(slices.Clone(t.Failover.Targets), func(r string) bool { return r == first })
}

// checkTargets refuses targets that could not take the log of one region, or could not
// serve it from there as it is declared.
func (t *Topic) checkTargets(f *state, field func(string) string, first string) error {
	at := field("failover.targets")
	targets := t.TargetsOf(first)
	if len(targets) == 0 {
		return bad(at, first, "the log in "+first+" has no other region to go to: name one")
	}
	holders := t.holders(first)
	for _, target := range targets {
		switch {
		case !slices.Contains(holders, target):
			return bad(at, target, "it gets no copy of the log in "+first+", so it would begin with nothing: name it under mirror")
		case !slices.Contains(f.links[first], target):
			return bad(at, target, "it has no link with "+first+", so it gets no copy of the log there")
		}
		for _, other := range append(slices.Clone(holders), first) {
			if other != target && slices.Contains(f.links[first], other) && !slices.Contains(f.links[target], other) {
				return bad(at, target, "from there "+other+" would get no copy: link the two, or leave one of them out")
			}
		}
		if s := t.Sync; s != nil && !slices.Contains(f.boundaries[s.Within].Regions, target) {
			return bad(at, target, "sync keeps the records within "+s.Within+", and it lies outside")
		} else if s != nil && len(t.members(f, target, first)) < s.Copies {
			return bad(at, target, fmt.Sprintf("from there sync finds no %d copies within %s: link more of its regions with it", s.Copies, s.Within))
		}
	}
	return nil
}

// checkIsolation settles what a home does that cannot reach the authority.
func (r *Failover) checkIsolation(field func(string) string) error {
	switch {
	case r.FenceAfter != 0 && r.Accept:
		return bad(field("failover.accept"), "true", "a home that is cut off either stops, fence_after, or goes on, accept: write one of the two")
	case r.FenceAfter == 0:
		r.Accept = true
	case r.FenceAfter < MinFenceAfter || r.FenceAfter > MaxFenceAfter:
		return bad(field("failover.fence_after"), r.FenceAfter.String(), fmt.Sprintf("%s to %s: shorter, and a region would stop whenever the voters elect a leader", MinFenceAfter, Span(MaxFenceAfter)))
	}
	if r.Approvals < 0 || r.Approvals > maxApprovals {
		return bad(field("failover.approvals"), fmt.Sprint(r.Approvals), fmt.Sprintf("0 to %d", maxApprovals))
	}
	return nil
}

// checkPromises refuses times that no move could keep.
func (t *Topic) checkPromises(f *state, field func(string) string) error {
	r := &t.Failover
	least := DecideWithin
	if r.FenceAfter > 0 {
		least += LeaseWait(r.FenceAfter)
	}
	switch {
	case r.RTO == 0:
		return bad(field("failover.rto"), "", "say how long a forced move may take: at least "+least.Round(time.Second).String())
	case r.RTO < least:
		return bad(field("failover.rto"), r.RTO.String(), fmt.Sprintf("it can take %s: %s", least.Round(time.Second), r.whyLeast()))
	case r.RPO < 0 || r.RPO > 0 && r.RPO < minRPO:
		return bad(field("failover.rpo"), r.RPO.String(), fmt.Sprintf("at least %s: how far a copy is behind is known by marks that come once a second", minRPO))
	case r.RPO > 0:
		return nil
	}
	for _, first := range t.Regions {
		for _, target := range t.TargetsOf(first) {
			if t.Sync == nil || !slices.Contains(t.members(f, first, first), target) {
				return bad(field("failover.rpo"), "0s", "a copy that is made later than the ack can always lose something, and "+target+" has one: say how much, or have acks wait for it with sync")
			}
		}
	}
	return nil
}

func (r *Failover) whyLeast() string {
	if r.FenceAfter > 0 {
		return "the old home is known to have stopped only " + LeaseWait(r.FenceAfter).Round(100*time.Millisecond).String() + " after it was last heard, and the voters may have to elect a leader first"
	}
	return "the voters may have to elect a leader first"
}

// texts adds the rule to a declaration's fields.
func (r *Failover) texts(fields map[string]string) {
	fields["failover.mode"] = r.Mode
	if r.Mode != FailoverManual {
		return
	}
	fields["failover.targets"] = strings.Join(r.Targets, ",")
	fields["failover.rpo"], fields["failover.rto"] = r.RPO.String(), r.RTO.String()
	fields["failover.isolation"] = "accept"
	if r.FenceAfter > 0 {
		fields["failover.isolation"] = "fence_after " + r.FenceAfter.String()
	}
	fields["failover.approvals"] = fmt.Sprint(r.Approvals)
}

// Cautions names what the manifest promises less than it seems to, and is no error.
func (f *Federation) Cautions() []string {
	now := f.now.Load()
	var out []string
	for _, name := range now.topicNames {
		t := now.topics[name]
		if t.Failover.FenceAfter > 0 && len(now.voters) < 3 {
			out = append(out, fmt.Sprintf("topics.%s.failover.fence_after: with %d voters, whichever region is cut off, both stop after %s and neither can take the log over: a third voter, or accept, says otherwise",
				name, len(now.voters), t.Failover.FenceAfter))
		}
	}
	if len(now.voters) == 2 {
		out = append(out, "authority.voters: with two, a log moves only while both are up; when one is lost nothing can be decided until it is back or the authority is founded anew")
	}
	return out
}
