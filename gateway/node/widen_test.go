package node

import (
	"encoding/json"
	"testing"
	"time"

	"domicile/api"
	"domicile/regions"
	"domicile/regions/approval"
	"domicile/regions/identity"
	"domicile/regions/placement"
)

// TestFA2_WideningTakesTwoSignaturesOfExactlyThat: where the authority's leader is, two people
// of compliance have signed these terms of this log, by the leader's own list of roles.
func TestFA2_WideningTakesTwoSignaturesOfExactlyThat(t *testing.T) {
	clock := regions.NewSteadyClock()
	ca, err := identity.NewCA("shop", clock.Now(), time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	issue := func(kind identity.Kind, name string) (cert, key []byte) {
		cert, key, err := ca.Issue(kind, name, clock.Now(), time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		return cert, key
	}
	cert, key := issue(identity.Region, "us-east")
	id, err := identity.New(cert, key, ca.CertPEM(), clock)
	if err != nil {
		t.Fatal(err)
	}
	f, err := regions.ParseManifest("federation.yaml", []byte("version: 1\nfederation: shop\nregions: {us-east: {link: \"a:1\"}}\n"))
	if err != nil {
		t.Fatal(err)
	}
	n := &Node{cfg: Config{Region: "us-east", Operators: approval.Rules{{Match: "anna", Roles: []string{approval.Compliance}}, {Match: "ben", Roles: []string{approval.Compliance}}}},
		federation: f, identity: id, seams: Seams{Clock: clock}}
	terms := placement.Terms{Allowed: []string{"ap-south", "eu-west"}, Targets: []string{"ap-south"}, Mode: placement.Manual, Isolation: placement.Accept, Digest: "d"}
	c := placement.Command{Verb: placement.Alter, ID: "1", Log: "L", Expect: api.StaticEpoch("eu-west"), Region: "eu-west", Actor: "olga", Reason: "r", Terms: &terms}
	text, err := json.Marshal(terms)
	if err != nil {
		t.Fatal(err)
	}
	plan := n.widening(&c, text).plan
	signed := func(name, plan string) placement.Approval {
		cert, key := issue(identity.Operator, name)
		s, err := approval.Sign(approval.Statement{Federation: "shop", Hash: plan, Role: approval.Compliance, Expires: clock.Now().Add(time.Hour)}, cert, key)
		if err != nil {
			t.Fatal(err)
		}
		line, err := s.Encode()
		if err != nil {
			t.Fatal(err)
		}
		return placement.Approval{Actor: name, Role: approval.Compliance, Signed: line}
	}
	forged := placement.Approval{Actor: "ben", Role: approval.Compliance, Signed: "forged"}
	named := signed("ben", plan)
	named.Actor = "carl"
	wider := terms
	wider.Allowed = []string{"ap-south", "eu-west", "us-east"}
	for name, x := range map[string]struct {
		terms     placement.Terms
		plan      string
		approvals []placement.Approval
		code      api.Code
	}{
		"two people":              {terms, plan, []placement.Approval{signed("anna", plan), signed("ben", plan)}, ""},
		"other terms":             {wider, plan, []placement.Approval{signed("anna", plan), signed("ben", plan)}, api.PermissionDenied},
		"another plan":            {terms, "p", []placement.Approval{signed("anna", "p-long-enough"), signed("ben", "p-long-enough")}, api.PermissionDenied},
		"a name":                  {terms, plan, []placement.Approval{signed("anna", plan), forged}, api.PermissionDenied},
		"a name of another":       {terms, plan, []placement.Approval{signed("anna", plan), named}, api.PlacementRefused},
		"one person":              {terms, plan, []placement.Approval{signed("anna", plan)}, api.PlacementRefused},
		"one without the role":    {terms, plan, []placement.Approval{signed("anna", plan), signed("carl", plan)}, api.PlacementRefused},
		"what was signed for two": {terms, plan, []placement.Approval{signed("anna", plan), signed("ben", plan+"x")}, api.PlacementRefused},
	} {
		c.Terms, c.Plan, c.Approvals = &x.terms, x.plan, x.approvals
		if err := n.mayPlace(c, placement.Log{}); api.CodeOf(err) != x.code {
			t.Errorf("%s: %v", name, err)
		}
	}
}
