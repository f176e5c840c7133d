package failover

import (
	"slices"

	"domicile/api"
	"domicile/regions"
	"domicile/regions/approval"
	"domicile/regions/placement"
)

// MayPlace is what the node of the authority's leader has to say of a command of a region,
// by its own manifest and trust, with the log as it is placed: a log is declared by the region
// that the manifest names as its home, a move that takes people's consent has a plan that
// stands for that move and no other, and each approval is signed by whom it names.
// PermissionDenied is what no honest node sends. Which roles people have, home and target say.
func MayPlace(v *approval.Verifier, f *regions.Federation, c *placement.Command, l *placement.Log) error {
	switch c.Verb {
	case placement.Declare:
		return declares(f, c)
	case placement.Begin:
		if !c.Move.Attested && l.Terms.Approvals == 0 {
			return nil
		}
		return bound(c.Plan, c.Move.Binding(c.Log, c.Expect))
	case placement.Approve:
		if l.Op == nil {
			return nil // Apply says so
		}
		return approves(v, c.Approvals[0], l)
	}
	return nil
}

// approves counts a person once for as long as that consent lasts: whoever brings it again and
// again must not use up the places of others.
func approves(v *approval.Verifier, a placement.Approval, l *placement.Log) error {
	if err := bound(l.Op.Plan, l.Binding()); err != nil {
		return err
	}
	if err := authentic(v, a, l.Op); err != nil {
		return err
	}
	counted := func(had placement.Approval) bool { return had.Actor == a.Actor && authentic(v, had, l.Op) == nil }
	if slices.ContainsFunc(l.Op.Approvals, counted) {
		return &api.Error{Code: api.Conflict, Op: "check approval", Field: "approvals", Value: a.Actor,
			Hint: "this person has approved the plan already"}
	}
	return nil
}

func authentic(v *approval.Verifier, a placement.Approval, op *placement.Op) error {
	denied := &api.Error{Code: api.PermissionDenied, Op: "check approval", Field: "approvals", Value: a.Actor, Hint: "it is not signed"}
	signed, err := approval.Parse(a.Signed)
	if err != nil {
		denied.Err = err
		return denied
	}
	c, err := v.Authentic(signed, op.Plan, rolesFor(op.Kind)...)
	if err == nil && (c.Name != a.Actor || c.Role != a.Role) {
		denied.Hint = "it was signed by " + c.Name + " as " + c.Role
		return denied
	}
	return err
}

// declares refuses to take a log in from elsewhere than where the manifest puts it: whoever
// came first would have its address.
func declares(f *regions.Federation, c *placement.Command) error {
	for _, name := range f.Topics() {
		t, _ := f.Topic(name)
		for _, id := range f.Logs(t) {
			if !t.Movable() || address(f, id) != c.Terms.Address {
				continue
			}
			if first, _ := f.FirstHome(id); first != c.Home {
				return &api.Error{Code: api.PlacementRefused, Op: "declare log", Topic: name, Region: first, Field: "home", Value: c.Home,
					Hint: "the leader's federation.yaml puts the log in " + first + ": bring the files to one state"}
			}
			return nil
		}
	}
	return &api.Error{Code: api.PlacementRefused, Op: "declare log", Field: "address", Value: c.Terms.Address,
		Hint: "the leader's federation.yaml names no such log that may move: bring the files to one state"}
}

// address stands for a log's name at the authority, which knows none.
func address(f *regions.Federation, id api.LogID) string {
	return mark("address", f.Name(), id.String())
}

// Named refuses a region that this node's own manifest does not name as one that the log may
// be moved to.
func Named(f *regions.Federation, id api.LogID, region string) error {
	t, ok := f.Topic(id.Topic)
	first, known := f.FirstHome(id)
	if ok && known && t.Movable() && (region == first || slices.Contains(t.TargetsOf(first), region)) {
		return nil
	}
	return &api.Error{Code: api.HomeOutsideBoundary, Op: "move log", Topic: id.Topic, Region: region,
		Field: "rule", Value: placement.RuleBoundary, Hint: "federation.yaml here does not name it as a target of the log"}
}
