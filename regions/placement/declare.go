package placement

import (
	"fmt"
	"slices"

	"domicile/api"
)

func (s *State) noteVoters(c *Command) (Result, error) {
	if !sortedSet(c.Regions) || len(c.Regions) > MaxRegions {
		return Result{}, bad("regions", "name the voters in order, each once")
	}
	s.voters = slices.Clone(c.Regions)
	s.version++
	return Result{}, nil
}

// declare takes a log in where it is: in its present epoch at its present home.
func (s *State) declare(c *Command) (Result, error) {
	switch {
	case s.logs[c.Log] != nil:
		return Result{}, conflict("log", "", "the log is placed already; alter its terms instead")
	case s.retired[c.Log] != (Gone{}):
		return Result{}, broken(RuleNoReopen, "the log was retired; its incarnation never comes back")
	case len(s.logs) >= MaxLogs:
		return Result{}, &api.Error{Code: api.Overloaded, Op: "place log", Field: "logs", Value: fmt.Sprint(MaxLogs), Hint: "retire logs that are gone"}
	case c.Expect.Counter == 0 || c.Expect.Issuer == "" || c.Expect.Term > s.generation:
		return Result{}, bad("expected_epoch", "give the epoch that the log has at its home")
	}
	if err := c.Terms.check(); err != nil {
		return Result{}, err
	}
	if err := s.alone(c.Log, c.Terms.Address); err != nil {
		return Result{}, err
	}
	if !slices.Contains(c.Terms.Allowed, c.Home) {
		return Result{}, outside(c.Home)
	}
	return s.store(Log{Incarnation: c.Log, Terms: *c.Terms, Home: c.Home, Epoch: c.Expect, Status: Active}.Clone(), c), nil
}

// alone refuses a second incarnation of one address: a home that lost its disk would begin
// the log anew beside the one that lives on elsewhere.
func (s *State) alone(incarnation, address string) error {
	if address == "" {
		return nil
	}
	for name, l := range s.logs {
		if name != incarnation && l.Terms.Address == address {
			return conflict(FieldAddress, l.Home, "another incarnation of the log is placed there; it goes on, or is deleted there first")
		}
	}
	return nil
}

// FieldAddress is what a conflict names when another incarnation of the log is placed; its
// value is that one's home.
const FieldAddress = "address"

// check refuses terms that could not be kept.
func (t *Terms) check() error {
	switch {
	case len(t.Allowed) == 0 || len(t.Allowed) > MaxRegions || !sortedSet(t.Allowed):
		return bad("allowed", "name the regions in order, each once")
	case !sortedSet(t.Targets):
		return bad("targets", "name the regions in order, each once")
	case t.Mode != Never && t.Mode != Manual:
		return bad("mode", "never or manual")
	case t.Mode == Never && len(t.Targets) > 0:
		return bad("targets", "a log that never moves has none")
	case t.Mode == Manual && len(t.Targets) == 0:
		return bad("targets", "a log that may be moved needs one")
	case t.Isolation == Accept && t.FenceAfter != 0:
		return bad("fence_after", "a log whose home goes on while cut off has no lease")
	case t.Isolation == FenceAfter && (t.FenceAfter < MinFenceAfter || t.FenceAfter > MaxFenceAfter):
		return bad("fence_after", fmt.Sprintf("%s to %s", MinFenceAfter, MaxFenceAfter))
	case t.Isolation != Accept && t.Isolation != FenceAfter:
		return bad("isolation", "fence_after or accept")
	case t.Mode == Never && t.Isolation == FenceAfter:
		return bad("isolation", "a log that never moves depends on no lease")
	case t.RPO < 0 || t.Approvals < 0 || t.Approvals > maxApprovals:
		return bad("approvals", fmt.Sprintf("0 to %d", maxApprovals))
	case !plain(t.Address):
		return bad("address", "a hash, or nothing")
	case t.Digest == "" || !plain(t.Digest):
		return bad("digest", "it is required")
	}
	for _, target := range t.Targets {
		if !slices.Contains(t.Allowed, target) {
			return outside(target)
		}
	}
	return nil
}

// alter changes the terms of a log at rest. What lets a log go further than before is a
// change of compliance and needs two people for it.
func (s *State) alter(l *Log, c *Command) error {
	if err := c.Terms.check(); err != nil {
		return err
	}
	if l.Op != nil {
		return broken(RuleOneOp, "a move is under way; let it end or abort it")
	}
	if err := s.alone(l.Incarnation, c.Terms.Address); err != nil {
		return err
	}
	if !slices.Contains(c.Terms.Allowed, l.Home) {
		return outside(l.Home)
	}
	wider := slices.ContainsFunc(c.Terms.Allowed, func(r string) bool { return !slices.Contains(l.Terms.Allowed, r) })
	freed := l.Terms.Mode == Never && c.Terms.Mode == Manual
	if wider || freed {
		if l.openTail() {
			return broken(RulePinned, "republish or discard the divergent tail first")
		}
		if distinct(c.Approvals, c.Actor, roleCompliance) < 2 {
			return broken(RulePinned, "two people of compliance, neither of them the one who asks, have to approve")
		}
	}
	if (Tenure{c.Terms.Isolation, c.Terms.FenceAfter}) != (Tenure{l.Terms.Isolation, l.Terms.FenceAfter}) {
		if err := s.changeTenure(l); err != nil {
			return err
		}
	}
	l.Terms = *c.Terms
	*l = l.Clone()
	return nil
}

// changeTenure ends the epoch: the home goes by what it knew until it opens the next one,
// and until then no proof may count on it knowing better.
func (s *State) changeTenure(l *Log) error {
	if l.Status != Active {
		return broken(RuleOneOp, "the log's home has not opened; wait until it has")
	}
	held := l.Tenure()
	l.end(Ended{How: ByAlter})
	l.Epoch, l.Status, l.Held = s.next(l.Epoch), Opening, &held
	return nil
}

const roleCompliance = "compliance"

// distinct counts the people of a role, "" for any, without the one who asks.
func distinct(list []Approval, asker, role string) int {
	people := map[string]bool{}
	for _, a := range list {
		if a.Actor != asker && (role == "" || a.Role == role) {
			people[a.Actor] = true
		}
	}
	return len(people)
}

func (s *State) retire(l *Log) (Result, error) {
	switch {
	case l.Op != nil:
		return Result{}, broken(RuleOneOp, "a move is under way; let it end or abort it")
	case l.openTail():
		return Result{}, broken(RuleTail, "republish or discard the divergent tail first")
	case l.Status == Contested:
		return Result{}, contested(l)
	case len(s.retired) >= maxRetired:
		return Result{}, &api.Error{Code: api.Overloaded, Op: "place log", Field: "retired", Value: fmt.Sprint(maxRetired), Hint: "found the authority anew"}
	}
	delete(s.logs, l.Incarnation)
	s.version++
	s.retired[l.Incarnation] = Gone{l.Epoch, s.version}
	return Result{Epoch: l.Epoch}, nil
}
