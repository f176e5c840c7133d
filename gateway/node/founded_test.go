package node

import (
	"testing"
	"time"

	"domicile/api"
	"domicile/regions"
	"domicile/regions/approval"
	"domicile/regions/council"
	"domicile/regions/identity"
	"domicile/regions/placement"
)

// TestFA2_AFoundingIsBelievedByTwoSignatures: a region believes that another one founded the
// authority anew if two people signed exactly that, other than the one who asked, by its own
// list of roles, however long ago.
func TestFA2_AFoundingIsBelievedByTwoSignatures(t *testing.T) {
	clock := regions.NewManualClock(time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC))
	ca, err := identity.NewCA("shop", clock.Now(), 1000*time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	issue := func(kind identity.Kind, name string) (cert, key []byte) {
		cert, key, err := ca.Issue(kind, name, clock.Now(), 900*time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		return cert, key
	}
	cert, key := issue(identity.Region, "eu-west")
	id, err := identity.New(cert, key, ca.CertPEM(), clock)
	if err != nil {
		t.Fatal(err)
	}
	f, err := regions.ParseManifest("federation.yaml", []byte("version: 1\nfederation: shop\nregions: {eu-west: {link: \"a:1\"}}\n"))
	if err != nil {
		t.Fatal(err)
	}
	n := &Node{cfg: Config{Region: "eu-west", Operators: approval.Rules{{Match: "ben", Roles: []string{approval.Incident}}, {Match: "eve", Roles: []string{approval.Incident}},
		{Match: "olga", Roles: []string{approval.Incident}}}}, federation: f, identity: id, seams: Seams{Clock: clock}}
	c := council.Consent{Region: "us-east", Before: "A1", Generation: 1, Version: 57, Others: []string{"ap-south", "eu-west"}, Actor: "olga"}
	plan := foundingPlan("shop", c)
	signed := func(name, plan string) placement.Approval {
		cert, key := issue(identity.Operator, name)
		s, err := approval.Sign(approval.Statement{Federation: "shop", Hash: plan, Role: approval.Incident, Expires: clock.Now().Add(time.Hour)}, cert, key)
		if err != nil {
			t.Fatal(err)
		}
		line, err := s.Encode()
		if err != nil {
			t.Fatal(err)
		}
		return placement.Approval{Actor: name, Role: approval.Incident, Signed: line}
	}
	elsewhere := c
	elsewhere.Region = "ap-south"
	two := []placement.Approval{signed("ben", plan), signed("eve", plan)}
	for name, x := range map[string]struct {
		of        council.Consent
		approvals []placement.Approval
		code      api.Code
	}{
		"two people":             {c, two, ""},
		"for another region":     {elsewhere, two, api.PermissionDenied},
		"nobody":                 {c, nil, api.PermissionDenied},
		"names":                  {c, []placement.Approval{{Actor: "ben"}, {Actor: "eve", Signed: "forged"}}, api.PermissionDenied},
		"one person twice":       {c, []placement.Approval{two[0], two[0]}, api.PermissionDenied},
		"the one who asked":      {c, []placement.Approval{two[0], signed("olga", plan)}, api.PermissionDenied},
		"one without the role":   {c, []placement.Approval{two[0], signed("carl", plan)}, api.PermissionDenied},
		"signed for another one": {c, []placement.Approval{two[0], signed("eve", foundingPlan("shop", elsewhere))}, api.PermissionDenied},
	} {
		x.of.Approvals = x.approvals
		if err := n.mayFound(x.of); api.CodeOf(err) != x.code {
			t.Errorf("%s: %v", name, err)
		}
	}
	clock.Advance(100 * time.Hour)
	c.Approvals = two
	if err := n.mayFound(c); err != nil {
		t.Errorf("a region that was away for four days: %v", err)
	}
}
