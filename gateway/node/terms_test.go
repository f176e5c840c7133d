package node_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"domicile/api"
	"domicile/policy/bundle"
)

// termRules keeps orders of class b where they are, but while the mechanism scc lasts.
func termRules(from, until time.Time) map[string][]byte {
	files := maps.Clone(signedRules(false))
	files["rules/orders.rego"] = slices.Concat(files["rules/orders.rego"], []byte(`
forbid contains {"rule": "b_stays", "text": "orders of class b leave under a mechanism only"} if {
	input.point == "mirror_egress"
	input.tags.class == "b"
	not data.mechanisms.scc
}
`))
	files["terms.yaml"] = fmt.Appendf(nil, "mechanisms:\n  scc: {owner: legal, approvers: [anna, ben], reason: contract 7, from: %s, until: %s}\n",
		from.UTC().Format(time.RFC3339), until.UTC().Format(time.RFC3339))
	return files
}

// crosses publishes an order of class b and one of class a behind it, and says whether the
// first has crossed once the second has: order holds in a log.
func (x *signedLab) crosses(from, to, name string) bool {
	x.Helper()
	if err := errors.Join(x.publish(from, "b", "global", name+"-b"), x.publish(from, "a", "global", name+"-a")); err != nil {
		x.Fatal(err)
	}
	x.eventually(name+" crosses", func() bool { return x.ids(to)[name+"-a"] })
	return x.ids(to)[name+"-b"]
}

// TestR14b_MechanismBeginsAndEndsByItself: nobody does anything, and flows that rest on a
// mechanism begin and end with it, in both regions; a restart comes back into the same step.
func TestR14b_MechanismBeginsAndEndsByItself(t *testing.T) {
	x := openSigned(t)
	const lead = 3 * time.Second
	step := func(region, want string) bool { return strings.HasPrefix(x.state(region).GetRevision(), want) }
	now := time.Now().Truncate(time.Second)
	x.activated("eu-west", x.bundle(bundle.Manifest{Serial: 1}, termRules(now.Add(lead), now.Add(time.Hour)), x.anna, x.ben))
	if x.crosses("eu-west", "us-east", "before") && step("eu-west", "1-") {
		t.Error("an order crossed before the mechanism began")
	}
	x.eventually("it begins", func() bool { return step("eu-west", "1.1-") && step("us-east", "1.1-") })
	if !x.crosses("eu-west", "us-east", "during") {
		t.Error("no order crossed while the mechanism lasted")
	}
	now = time.Now().Truncate(time.Second)
	x.activated("us-east", x.bundle(bundle.Manifest{Serial: 2}, termRules(now.Add(-time.Hour), now.Add(lead)), x.anna, x.ben))
	x.eventually("it ends", func() bool { return step("eu-west", "2.2-") && step("us-east", "2.2-") })
	if x.crosses("us-east", "eu-west", "after") {
		t.Error("an order crossed after the mechanism had ended")
	}
	x.restart("eu-west")
	if !step("eu-west", "2.2-") {
		t.Errorf("after a restart: %s", x.state("eu-west").GetRevision())
	}
}

// TestR14b_RevokingAMechanismStopsItsFlows: one person revokes it, both regions stop what
// rests on it, and what lies where it could not come any more is listed. Nobody takes the
// revocation back alone, and nobody makes a policy last longer by it.
func TestR14b_RevokingAMechanismStopsItsFlows(t *testing.T) {
	t.Parallel()
	x := openSigned(t)
	now := time.Now().Truncate(time.Second)
	files := termRules(now.Add(-time.Hour), now.Add(24*time.Hour))
	until := now.Add(48 * time.Hour)
	policy := func(serial int64, until time.Time, revokes []string, by ...*bundle.Signer) []byte {
		return x.bundle(bundle.Manifest{Serial: serial, ValidFrom: now.Add(-time.Hour), ValidUntil: until, Revokes: revokes}, files, by...)
	}
	x.activated("eu-west", policy(1, until, nil, x.anna, x.ben))
	if !x.crosses("us-east", "eu-west", "under") {
		t.Fatal("no order crossed under the mechanism")
	}
	for name, data := range map[string][]byte{
		"longer":          policy(2, until.Add(time.Hour), []string{"scc"}, x.anna),
		"what is not":     policy(2, until, []string{"other"}, x.anna),
		"nothing revoked": x.bundle(bundle.Manifest{Serial: 2, ValidFrom: now.Add(-time.Hour), ValidUntil: until}, files, x.anna),
	} {
		if _, err := x.activate("eu-west", data); api.CodeOf(err) != api.PolicyError {
			t.Errorf("%s: %v", name, err)
		}
	}
	began := time.Now()
	r := x.activated("eu-west", policy(2, until, []string{"scc"}, x.anna))
	t.Logf("stopped in both regions within %s", time.Since(began))
	if x.crosses("us-east", "eu-west", "after") || x.crosses("eu-west", "us-east", "after-too") {
		t.Error("an order crossed after the mechanism was revoked")
	}
	var listed []string
	for _, l := range r.GetNarrowed() {
		listed = append(listed, fmt.Sprintf("%s@%s in %s %v known=%v records=%d", l.GetLog().GetTopic(), l.GetLog().GetSlot(), l.GetRegion(), l.GetTags(), l.GetKnown(), l.GetRecords()))
	}
	want := []string{"orders@eu-west in us-east [class=b,residency=global] known=false records=0", "orders@us-east in eu-west [class=b,residency=global] known=true records=2"}
	if !slices.Equal(listed, want) {
		t.Errorf("listed\n%s\nwant\n%s", strings.Join(listed, "\n"), strings.Join(want, "\n"))
	}
	if _, err := x.activate("us-east", x.bundle(bundle.Manifest{Serial: 3, ValidFrom: now.Add(-time.Hour), ValidUntil: until, RollsBackTo: 1}, files, x.ben)); err == nil || !strings.Contains(err.Error(), "newly allows") {
		t.Errorf("one person took the revocation back: %v", err)
	}
}
