package opa_test

import (
	"context"
	"strings"
	"testing"

	"domicile/api"
	"domicile/policy"
	"domicile/policy/opa"
)

// The reference policy's tests and fixtures evaluate what is asked of everybody's. Its
// mutants take ten seconds: domicile policy test judges them, a step of its own in CI.
func TestRP1_ReferencePolicyIsProven(t *testing.T) {
	p, err := opa.Prove(context.Background(), example(t), manifest(t), false)
	if err != nil {
		t.Fatal(err)
	}
	if short := p.Short(); len(short) > 0 || len(p.Report.Findings) > 0 || p.Report.Rows == 0 || p.Report.Cases == 0 {
		t.Errorf("%q %+v\n%+v", short, p.Report, p.Coverage)
	}
}

// A directory whose tests prove little is told so: which lines nothing evaluates, and
// which slips nothing notices.
func TestRP1_WeakTestsAreNamed(t *testing.T) {
	if testing.Short() {
		t.Skip("tries one mutant after the other: not with -short")
	}
	dir, f := small(t)
	p, err := opa.Prove(context.Background(), dir, f, true)
	if err != nil {
		t.Fatal(err)
	}
	text := strings.Join(p.Short(), "\n")
	if !strings.Contains(text, "coverage is 46.2 %") || !strings.Contains(text, "the mutation score is") || p.Coverage.Missed[0] != "rules/global.rego:4" {
		t.Errorf("%s\n%+v\n%+v", text, p.Coverage, p.Mutation)
	}
	if !strings.Contains(text, "package residency.rules.global has no test") || strings.Contains(text, "rules.orders has no test") {
		t.Errorf("packages without tests: %q", p.Coverage.Untested)
	}
	m := p.Mutation
	if sum := m.ByTests + m.ByCases + m.ByMatrix + m.ByJudge + m.Same + m.Refused + len(m.Survivors); sum != m.Mutants || p.Index.Cells != p.Report.Cells || len(p.Index.Differs) > 0 {
		t.Errorf("%d of %d mutants have a fate; index %+v", sum, m.Mutants, p.Index)
	}
	want := `rules/orders.rego:7: without "mirror_egress"`
	if !strings.Contains(strings.Join(p.Mutation.Survivors, "\n"), want) {
		t.Errorf("no %q among %q", want, p.Mutation.Survivors)
	}
}

// A rule that loops over a million items is given up and named; what is active stays.
func TestRT3_ARuleThatLoopsIsNamedAndChangesNothing(t *testing.T) {
	dir, f := small(t)
	good, err := opa.Load(context.Background(), dir, f)
	if err != nil {
		t.Fatal(err)
	}
	gate := policy.NewGate(f, "eu-west", policy.Hooks{})
	if err := gate.Activate(context.Background(), good.Generation); err != nil {
		t.Fatal(err)
	}
	write(t, dir, "rules/more.rego", "package residency.rules.orders\nforbid contains {\"rule\": \"loop\"} if {\n\tsome i in numbers.range(1, 1000000)\n\tsome j in numbers.range(1, 1000000)\n\ti + j == 0\n}\n")
	_, err = opa.Load(context.Background(), dir, f)
	if api.CodeOf(err) != api.PolicyError || !strings.Contains(err.Error(), "rules/more.rego:") || !strings.Contains(err.Error(), "took too long") {
		t.Errorf("got %v", err)
	}
	if gate.Current() != good.Generation {
		t.Error("another policy is active")
	}
}
