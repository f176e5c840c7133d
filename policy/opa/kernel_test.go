package opa

import (
	"context"
	"reflect"
	"testing"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/rego"

	"domicile/policy"
	"domicile/regions"
)

func loaded(t *testing.T) (*Policy, *regions.Federation) {
	t.Helper()
	f, err := regions.LoadManifest("testdata/small/federation.yaml")
	if err != nil {
		t.Fatal(err)
	}
	p, err := Load(context.Background(), "testdata/small/policies", f)
	if err != nil {
		t.Fatal(err)
	}
	return p, f
}

// allows evaluates the kernel for a raw input, as no gate would ever build it.
func allows(t *testing.T, j *judge, in map[string]any) bool {
	t.Helper()
	v, err := ast.InterfaceToValue(in)
	if err != nil {
		t.Fatal(err)
	}
	results, err := j.prepared.Eval(context.Background(), rego.EvalParsedInput(v))
	if err != nil || len(results) == 0 {
		return false
	}
	d, ok := results[0].Expressions[0].Value.(map[string]any)
	return ok && d["allow"] == true
}

// Taking any field of the input away, or putting a word outside the vocabulary or
// another type in its place, never turns the kernel's answer into an allow.
func TestR14b_KernelNeedsEveryField(t *testing.T) {
	p, f := loaded(t)
	checked := 0
	for q, d := range p.Generation.All() {
		if checked++; !d.Allow || checked%5 != 0 {
			continue
		}
		if !allows(t, p.judge, input(q, f)) {
			t.Fatalf("%s is not allowed as it is", q)
		}
		for _, path := range leaves(input(q, f)) {
			for _, odd := range []any{nil, "unknown", "", "EU", 7, []any{"eu"}, map[string]any{}} {
				in := input(q, f)
				spoil(in, path, odd)
				if allows(t, p.judge, in) {
					t.Errorf("%s: allowed with %v = %v", q, path, odd)
				}
			}
		}
	}
}

func leaves(in map[string]any) (paths [][]string) {
	for k, v := range in {
		if inner, ok := v.(map[string]any); ok {
			for _, p := range leaves(inner) {
				paths = append(paths, append([]string{k}, p...))
			}
			continue
		}
		paths = append(paths, []string{k})
	}
	return paths
}

func spoil(in map[string]any, path []string, odd any) {
	if len(path) > 1 {
		spoil(in[path[0]].(map[string]any), path[1:], odd)
		return
	}
	if odd == nil {
		delete(in, path[0])
		return
	}
	in[path[0]] = odd
}

// An engine whose indexer or early exit changed an answer would be a leak: with both
// switched off the answers are the same.
func TestKernel_SameAnswersWithoutIndexAndEarlyExit(t *testing.T) {
	p, _ := loaded(t)
	n := 0
	for q := range p.Generation.All() {
		if n++; n%2 != 0 {
			continue
		}
		want, err := p.judge.eval(context.Background(), q)
		if err != nil {
			t.Fatal(err)
		}
		got, err := p.judge.eval(context.Background(), q, rego.EvalRuleIndexing(false), rego.EvalEarlyExit(false))
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(want, got) {
			t.Errorf("%s: %v, and without index %v", q, want, got)
		}
	}
}

// What authors' tests build with question.* is what the gate asks.
func TestQuestion_BuildsWhatTheGateAsks(t *testing.T) {
	p, f := loaded(t)
	for q := range p.Generation.All() {
		tags := map[string]any{}
		for _, tag := range q.Tags {
			if tag.Value != policy.None {
				tags[tag.Name] = tag.Value
			}
		}
		who := map[string]any{"class": q.Class, "place": q.Place}
		args := map[policy.Point][]any{
			policy.Admit: {q.Topic, tags, who, q.Origin}, policy.Transit: {q.Topic, tags, who, q.Target},
			policy.MirrorEgress: {q.Topic, tags, q.Origin, q.Target}, policy.MirrorIngress: {q.Topic, tags, q.Origin, q.Target},
			policy.Consume: {q.Topic, tags, who, q.Origin, q.Target},
		}[q.Point]
		terms := []*ast.Term{ast.NewTerm(ast.MustParseRef("data.domicile.question." + q.Point.String()))}
		for _, a := range args {
			v, err := ast.InterfaceToValue(a)
			if err != nil {
				t.Fatal(err)
			}
			terms = append(terms, ast.NewTerm(v))
		}
		results, err := rego.New(rego.ParsedQuery(ast.NewBody(ast.Equality.Expr(ast.VarTerm("x"), ast.CallTerm(terms...)))),
			rego.Compiler(p.judge.policy.compiler), rego.Store(p.judge.policy.store())).Eval(context.Background())
		if err != nil || len(results) != 1 {
			t.Fatalf("%s: %v, %v", q, results, err)
		}
		if got := results[0].Bindings["x"]; !reflect.DeepEqual(got, any(input(q, f))) {
			t.Errorf("%s:\n got %v\nwant %v", q, got, input(q, f))
		}
	}
}

// The allow-list names built-ins that exist, and none whose answer can change.
func TestCapabilities_ArePureAndKnown(t *testing.T) {
	known := map[string]*ast.Builtin{}
	for _, b := range ast.CapabilitiesForThisVersion().Builtins {
		known[b.Name] = b
	}
	for _, name := range allowedBuiltins {
		if b := known[name]; b == nil || b.IsNondeterministic() {
			t.Errorf("%s: %+v", name, b)
		}
	}
}

var _ policy.Judge = (*judge)(nil).ask
