package lab_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"domicile/api"
	pb "domicile/api/domicile/v1"
	"domicile/chaos/lab"
	"domicile/regions/approval"
	"domicile/regions/placement"
)

// TestR14h_WiderTermsTakeTwoPeopleOfCompliance: another policy lets a log go further than
// the authority has it. That changes nothing until two people of compliance consent to
// exactly these terms, at the log's home. It moves nothing.
func TestR14h_WiderTermsTakeTwoPeopleOfCompliance(t *testing.T) {
	t.Parallel()
	m := moving(t, "", lab.Options{Policies: boundedPolicies("eu, global"), Manifest: movingTo("eu-central", "")})
	if l := m.at("eu-west"); slices.Contains(l.Terms.Allowed, "us-east") {
		t.Fatalf("an EU log may rest in %v", l.Terms.Allowed)
	}
	catalog := filepath.Join(m.Policies(), "catalog.yaml")
	err := boundedPolicies("global")(m.Policies())
	text, e := os.ReadFile(catalog)
	if err = errors.Join(err, e, os.WriteFile(catalog, bytes.Replace(text, []byte("serial: 1"), []byte("serial: 2"), 1), 0o600)); err != nil {
		t.Fatal(err)
	}
	for _, r := range m.Regions() {
		if err := r.Node().Reload(t.Context()); err != nil {
			t.Fatal(r.Name, ": ", err)
		}
	}
	m.until("the authority refuses the wider terms by themselves", func() error {
		if trouble := m.node("eu-west").Placer().Trouble(); !strings.Contains(trouble, placement.RulePinned) {
			return errors.New(trouble)
		}
		return nil
	})
	q := &pb.WidenTermsRequest{Topic: "orders", DryRun: true}
	if _, err := m.desk("us-east").WidenTerms(t.Context(), q); api.CodeOf(err) != api.Conflict || !strings.Contains(err.Error(), "eu-west") {
		t.Errorf("asked at another region: %v", err)
	}
	look, err := m.desk("eu-west").WidenTerms(t.Context(), q)
	if err != nil || look.GetApprovals() != 2 || look.GetDone() || !strings.Contains(strings.Join(look.GetSays(), "\n"), "us-east") {
		t.Fatalf("%v %v", look, err)
	}
	q = &pb.WidenTermsRequest{Topic: "orders", Plan: look.GetPlan(), Reason: "no EU orders any more"}
	sign := func(name, role string) string { return m.consent(name, look.GetPlan(), role) }
	for what, approvals := range map[string][]string{
		"nobody":         nil,
		"one":            {sign("ben", approval.Compliance)},
		"one, twice":     {sign("ben", approval.Compliance), sign("ben", approval.Compliance)},
		"the asker":      {sign("ben", approval.Compliance), sign("dev", approval.Compliance)},
		"another role":   {sign("ben", approval.Compliance), sign("eve", approval.Incident)},
		"something else": {sign("ben", approval.Compliance), m.consent("eve", "widen/0123456789abcdef", approval.Compliance)},
	} {
		q.Approvals = approvals
		if _, err := m.desk("eu-west").WidenTerms(t.Context(), q); api.CodeOf(err) != api.PlacementRefused {
			t.Errorf("%s: %v", what, err)
		}
	}
	q.Approvals = []string{sign("ben", approval.Compliance), sign("eve", approval.Compliance)}
	if done, err := m.desk("eu-west").WidenTerms(t.Context(), q); err != nil || !done.GetDone() {
		t.Fatalf("%v %v", done, err)
	}
	m.until("us-east may hold it", func() error {
		if l := m.at("us-east"); !slices.Contains(l.Terms.Allowed, "us-east") || l.Home != "eu-west" {
			return fmt.Errorf("%+v", l.Terms)
		}
		return nil
	})
}
