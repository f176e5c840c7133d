package opa_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"domicile/api"
	"domicile/policy"
	"domicile/policy/opa"
	"domicile/regions"
)

// raise gives the directory's catalog the serial.
func raise(t *testing.T, dir string, serial int) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, "catalog.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	before, rest, _ := strings.Cut(string(text), "\nserial: ")
	_, after, _ := strings.Cut(rest, "\n")
	write(t, dir, "catalog.yaml", fmt.Sprintf("%s\nserial: %d\n%s", before, serial, after))
}

// B45: a directory that cannot be loaded changes nothing; the last good one stays.
func TestR14b_BadDirectoryLeavesTheLastGoodPolicy(t *testing.T) {
	dir, f := small(t)
	gate := policy.NewGate(f, "us-east", policy.Hooks{})
	activate := func() error {
		p, err := opa.Load(context.Background(), dir, f)
		if err != nil {
			return err
		}
		return gate.Activate(context.Background(), p.Generation)
	}
	bad := "package residency.rules.orders\npermit[x] { x := 1 }\n"
	write(t, dir, "rules/old.rego", bad)
	if err := activate(); api.CodeOf(err) != api.PolicyError || gate.Current() != nil {
		t.Fatalf("%v, active %v", err, gate.Current())
	}
	for serial := 1; serial <= 3; serial++ {
		if err := os.Remove(filepath.Join(dir, "rules", "old.rego")); err != nil {
			t.Fatal(err)
		}
		raise(t, dir, serial)
		if err := activate(); err != nil {
			t.Fatal(err)
		}
		write(t, dir, "rules/old.rego", bad)
		err := activate()
		if api.CodeOf(err) != api.PolicyError || !strings.Contains(err.Error(), "rules/old.rego:2") {
			t.Fatalf("got %v, want the file and line", err)
		}
		if gate.Current().Serial != int64(serial) {
			t.Fatalf("active: %s, want serial %d", gate.Current().Revision, serial)
		}
	}
}

// B27: rules and catalog swapped together under load: every answer's revision and the
// rule it names belong together, and none is older than what was active at the time.
func TestR14b_AnswersComeFromOneGeneration(t *testing.T) {
	dir, f := small(t)
	var generations []*policy.Generation
	for serial := 1; serial <= 3; serial++ {
		raise(t, dir, serial)
		write(t, dir, "rules/more.rego", fmt.Sprintf("package residency.rules.orders\nforbid contains {\"rule\": \"n%d\"} if input.point == \"mirror_egress\"\n", serial))
		p, err := opa.Load(context.Background(), dir, f)
		if err != nil {
			t.Fatal(err)
		}
		generations = append(generations, p.Generation)
	}
	gate := policy.NewGate(f, "eu-west", policy.Hooks{})
	if err := gate.Activate(context.Background(), generations[0]); err != nil {
		t.Fatal(err)
	}
	stop := make(chan struct{})
	var readers sync.WaitGroup
	for range 3 {
		readers.Go(func() {
			for last := ""; ; {
				select {
				case <-stop:
					return
				default:
				}
				last = answer(t, gate, last)
			}
		})
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	for _, g := range generations[1:] {
		if err := gate.Activate(ctx, g); err != nil {
			t.Fatal(err)
		}
	}
	close(stop)
	readers.Wait()
}

func answer(t *testing.T, gate *policy.Gate, last string) string {
	r := api.Record{Topic: "orders", Tags: []api.Tag{{Name: "class", Value: "order"}, {Name: "residency", Value: "eu"}}}
	pass := gate.Enter()
	defer pass.Leave()
	var e *api.Error
	if err := pass.Egress(&r, "eu-west", "us-east"); !errors.As(err, &e) {
		t.Errorf("got %v", err)
		return last
	}
	if !strings.Contains(e.Hint, fmt.Sprintf("rule orders/n%d:", pass.Serial())) || e.Revision != pass.Revision() || e.Revision < last {
		t.Errorf("revision %s (after %s) answers %q", e.Revision, last, e.Hint)
	}
	return e.Revision
}

func TestExplain(t *testing.T) {
	p := loaded(t)
	ask := policy.Question{Point: policy.Transit, Topic: "health.records", Class: "app", Target: "us-east",
		Tags: []api.Tag{{Name: "residency", Value: "eu"}, {Name: "class", Value: "health"}}}
	e, err := p.Explain(context.Background(), ask)
	if err != nil {
		t.Fatal(err)
	}
	if e.Decision.Allow || e.Decision.Code != api.TransitDenied || e.Question.Origin != "us-east" || e.Question.Place != policy.None {
		t.Errorf("%+v of %s", e.Decision, e.Question)
	}
	if len(e.Rules) != 1 || e.Rules[0].Rule != "never_in_transit" || e.Rules[0].File != "rules/health.rego" || e.Rules[0].Line == 0 {
		t.Errorf("rules: %+v", e.Rules)
	}
	if e.Revision != p.Report.Revision || e.Floor != "a record of residency eu may rest in eu-west" {
		t.Errorf("revision %q, floor %q", e.Revision, e.Floor)
	}
	lines := e.Because()
	if want := fmt.Sprintf("forbid health/never_in_transit speaks, rules/health.rego:%d", e.Rules[0].Line); lines[len(lines)-1] != want || !strings.HasPrefix(lines[0], policy.ReasonForbidden+" rule health/never_in_transit") {
		t.Errorf("because %q", lines)
	}
	if !strings.Contains(e.Trace, "health.rego") {
		t.Errorf("the trace names no rule:\n%s", e.Trace)
	}
	ask.Tags[0].Value = "EU"
	if _, err := p.Explain(context.Background(), ask); api.CodeOf(err) != api.UnknownTag {
		t.Errorf("got %v", err)
	}
	ask.Tags[0].Value, ask.Target = "eu", "mars"
	if _, err := p.Explain(context.Background(), ask); api.CodeOf(err) != api.BadRequest {
		t.Errorf("got %v", err)
	}
}

// The example's floor: over the whole domain nothing is allowed outside a boundary.
func TestR14b_ExampleHoldsOverTheWholeDomain(t *testing.T) {
	f := manifest(t)
	p := loaded(t)
	for q, d := range p.Generation.All() {
		residency := ""
		for _, tag := range q.Tags {
			if tag.Name == regions.ResidencyTag {
				residency = tag.Value
			}
		}
		if !d.Allow || residency == regions.GlobalResidency {
			continue
		}
		health := q.Topic == "health.records"
		switch {
		case q.Point == policy.Transit && (health || residency != "eu"),
			q.Point != policy.Transit && q.Target != policy.None && !f.MayRest(residency, q.Target),
			q.Point == policy.Consume && !f.MayRest(residency, q.Place):
			t.Errorf("allowed: %s", q)
		}
	}
}

// R14c: what is resident nowhere is mirrored everywhere.
func TestR14c_GlobalRecordsAreMirroredEverywhere(t *testing.T) {
	p := loaded(t)
	for q, d := range p.Generation.All() {
		mirror := q.Point == policy.MirrorEgress || q.Point == policy.MirrorIngress
		if mirror && api.TagString(q.Tags) == "class=order,residency=global" && !d.Allow {
			t.Errorf("refused: %s", q)
		}
	}
}
