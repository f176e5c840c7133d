package failover

import (
	"strings"
	"testing"
	"time"

	"domicile/api"
	"domicile/regions/approval"
	"domicile/regions/placement"
)

// leads is what the leader's node says of a command, with the log as the authority has it.
func (o *office) leads(c placement.Command) error {
	l, _ := o.place.Log(news)
	return MayPlace(o.Verifier, o.Federation, &c, &l)
}

// TestFA2_ConsentIsToTheMoveThatIsProposed: people have read one plan, and a region proposes
// another move under its name: each of its fields in turn.
func TestFA2_ConsentIsToTheMoveThatIsProposed(t *testing.T) {
	o := newOffice(t)
	span := 5 * time.Second
	p, err := o.Plan(t.Context(), Request{Log: news, Kind: placement.Forced, Target: "us-east", Accept: placement.Loss{Span: &span}, Divergent: true})
	if err != nil || p.Refusal() != nil {
		t.Fatal(err, p.Refusal())
	}
	l, _ := o.place.Log(news)
	begin := o.command(placement.Begin, opOf(p.ID), &l, "ada", "r")
	begin.Plan = p.ID
	day := 24 * time.Hour
	for name, change := range map[string]func(*placement.Move){
		"target":      func(m *placement.Move) { m.Target = "eu-central" },
		"kind":        func(m *placement.Move) { m.Kind = placement.Planned },
		"loss":        func(m *placement.Move) { m.Accepted.Span = &day },
		"divergence":  func(m *placement.Move) { m.Divergent = false },
		"attestation": func(m *placement.Move) { m.Attested = true },
		"overrides":   func(m *placement.Move) { m.Overrides = []string{placement.RuleUnknown} },
	} {
		move := p.move()
		change(&move)
		begin.Move = &move
		wants(t, o.leads(begin), api.PermissionDenied, "stands for another move")

		// A leader that lies takes it all the same: home and target do not.
		lied := l
		lied.Status = placement.Moving
		lied.Op = &placement.Op{ID: begin.ID, Kind: move.Kind, Target: move.Target, Step: placement.Begun, Plan: p.ID, Actor: "ada", Accepted: move.Accepted,
			Divergent: move.Divergent, Attested: move.Attested, Overrides: move.Overrides,
			Approvals: []placement.Approval{{Actor: "eve", Role: approval.Incident, Signed: o.approval("eve", p.ID, approval.Incident)}}}
		if err := o.Approved(news, lied); err == nil {
			t.Errorf("home and target go along with another %s", name)
		}
	}
	move := p.move()
	begin.Move = &move
	if err := o.leads(begin); err != nil {
		t.Error("what was planned:", err)
	}
	begin.Plan = "any name"
	wants(t, o.leads(begin), api.PermissionDenied, "stands for another move")
}

// TestFA2_ALeaderCountsSignatures: names are no people. Which roles they have is for home and
// target to say, whose list the leader does not have.
func TestFA2_ALeaderCountsSignatures(t *testing.T) {
	o := newOffice(t)
	id := o.plan(planned())
	if _, err := o.Start(t.Context(), "ada", planned(), id, "r", false, []string{o.approval("max", id, approval.Operator)}); err != nil {
		t.Fatal(err)
	}
	l, _ := o.place.Log(news)
	approve := func(a placement.Approval) error {
		c := o.command(placement.Approve, "a", &l, a.Actor, "r")
		c.Op, c.Plan, c.Approvals = l.Op.ID, id, []placement.Approval{a}
		return o.leads(c)
	}
	for name, c := range map[string]struct {
		approval placement.Approval
		says     string
	}{
		"no signature":     {placement.Approval{Actor: "eve", Role: approval.Operator}, "not signed"},
		"a forged one":     {placement.Approval{Actor: "eve", Role: approval.Operator, Signed: "forged"}, "not signed"},
		"of somebody else": {placement.Approval{Actor: "eve", Role: approval.Operator, Signed: o.approval("ada", id, approval.Operator)}, "signed by ada"},
		"in another role":  {placement.Approval{Actor: "eve", Role: approval.Operator, Signed: o.approval("eve", id, approval.Incident)}, "signed by eve as incident"},
		"for another plan": {placement.Approval{Actor: "eve", Role: approval.Operator, Signed: o.approval("eve", id[:len(id)-1]+"x", approval.Operator)}, "consents to something else"},
	} {
		if err := approve(c.approval); api.CodeOf(err) != api.PermissionDenied || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := approve(placement.Approval{Actor: "stranger", Role: approval.Operator, Signed: o.approval("stranger", id, approval.Operator)}); err != nil {
		t.Error("an operator whom the leader does not know:", err)
	}
	again := placement.Approval{Actor: "max", Role: approval.Operator, Signed: o.approval("max", id, approval.Operator)}
	wants(t, approve(again), api.Conflict, "approved the plan already")
	o.clock.Advance(2 * time.Hour)
	again.Signed = o.approval("max", id, approval.Operator)
	if err := approve(again); err != nil {
		t.Error("a person whose consent has ended:", err)
	}
}

// TestFA2_OnlyTheManifestsHomeDeclares: whoever declared first would have the log's address,
// and its home would give the log up that it has just begun.
func TestFA2_OnlyTheManifestsHomeDeclares(t *testing.T) {
	o := newOffice(t)
	declare := func(home, address string) error {
		return o.leads(placement.Command{Verb: placement.Declare, Region: home, Home: home, Terms: &placement.Terms{Address: address}})
	}
	own := address(o.Federation, news)
	if err := declare("eu-west", own); err != nil {
		t.Error("its home:", err)
	}
	wants(t, declare("us-east", own), api.PlacementRefused, "puts the log in eu-west") // a file that differs says so, too: no lie
	fixed := address(o.Federation, api.LogID{Tenant: api.DefaultTenant, Topic: "fixed", Slot: "us-east"})
	for _, other := range []string{"", "made up", fixed} {
		wants(t, declare("us-east", other), api.PlacementRefused, "names no such log")
	}
}

// TestFA2_WhatTheManifestDoesNotNameIsRefused: the authority has a log go where this node's
// own manifest does not have it go, with and without people's consent.
func TestFA2_WhatTheManifestDoesNotNameIsRefused(t *testing.T) {
	o := newOffice(t)
	l, _ := o.place.Log(news)
	l.Terms.Approvals = 0
	l.Op = &placement.Op{Kind: placement.Planned, Target: "us-east", Step: placement.Begun}
	if err := o.Approved(news, l); err != nil {
		t.Error("a target of the manifest:", err)
	}
	l.Op.Target = "ap-south"
	wants(t, o.Approved(news, l), api.HomeOutsideBoundary, "federation.yaml here")
	for region, named := range map[string]bool{"eu-west": true, "us-east": true, "eu-central": true, "ap-south": false, "": false} {
		if err := Named(o.Federation, news, region); (err == nil) != named {
			t.Errorf("%q: %v", region, err)
		}
	}
	if err := Named(o.Federation, api.LogID{Tenant: api.DefaultTenant, Topic: "fixed", Slot: "us-east"}, "eu-west"); err == nil {
		t.Error("a log that never moves is given up")
	}
}
