package opa_test

import (
	"context"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"

	"domicile/api"
	"domicile/policy"
	"domicile/policy/opa"
	"domicile/regions"
)

// altered is the small federation with one text in the place of another.
func altered(t *testing.T, old, text string) *regions.Federation {
	t.Helper()
	manifest, err := os.ReadFile("testdata/small/federation.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(manifest), old) {
		t.Fatalf("the manifest does not say %q", old)
	}
	f, err := regions.ParseManifest("federation.yaml", []byte(strings.ReplaceAll(string(manifest), old, text)))
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// answers is every question of a policy with its answer.
func answers(p *opa.Policy) map[string]policy.Decision {
	out := map[string]policy.Decision{}
	for q, d := range p.Generation.All() {
		out[q.String()] = *d
	}
	return out
}

// loadedAlike holds a policy that was taken over against the same one, loaded alone.
func loadedAlike(t *testing.T, k *opa.Shared, dir string, f *regions.Federation) {
	t.Helper()
	got, err := k.Load(context.Background(), dir, f)
	if err != nil {
		t.Fatal(err)
	}
	want, err := opa.Load(context.Background(), dir, f)
	if err != nil {
		t.Fatal(err)
	}
	got.Report.Took, got.Report.Asked = want.Report.Took, want.Report.Asked
	if !reflect.DeepEqual(got.Report, want.Report) {
		t.Errorf("taken over:\n%+v\nloaded:\n%+v", got.Report, want.Report)
	}
	if a, b := answers(got), answers(want); len(b) == 0 || !reflect.DeepEqual(a, b) {
		t.Errorf("%d answers were taken over, %d loaded, or they differ", len(a), len(b))
	}
	gate := policy.NewGate(f, "eu-west", policy.Hooks{})
	if err := gate.Activate(context.Background(), got.Generation); err != nil {
		t.Error(err)
	}
}

// TestR14b_RulesAreAskedOnceWhereTheyReadTheSame: what nodes of one process take over from
// each other is what loading alone gives, and nothing is taken over when a file or anything
// that rules can read has changed; a refusal never is.
func TestR14b_RulesAreAskedOnceWhereTheyReadTheSame(t *testing.T) {
	dir, f := small(t)
	k := new(opa.Shared)
	asked := func(want bool, f *regions.Federation) {
		t.Helper()
		p, err := k.Load(context.Background(), dir, f)
		if err != nil {
			t.Fatal(err)
		}
		if (p.Report.Asked > 0) != want {
			t.Errorf("the rules were asked %d questions", p.Report.Asked)
		}
	}
	asked(true, f)
	asked(false, f)
	moved := altered(t, "127.0.0.1:2", "127.0.0.1:3")
	asked(false, moved)
	loadedAlike(t, k, dir, moved)
	asked(true, altered(t, `"127.0.0.1:2"}`, `"127.0.0.1:2"}`+"\n  ap-south: {link: \"127.0.0.1:3\"}"))
	swapped := altered(t, "eu: [eu-west]\n  us: [us-east]", "eu: [us-east]\n  us: [eu-west]")
	if _, err := k.Load(context.Background(), dir, swapped); api.CodeOf(err) != api.PolicyError {
		t.Errorf("an order of the EU may rest in eu-west, which is not in the EU: %v", err)
	}
	raise(t, dir, 2)
	asked(true, f)
	loadedAlike(t, k, dir, f)
	write(t, dir, "tests/more_test.rego", "package residency.tests.more\n\ntest_never if false\n")
	for range 2 {
		if _, err := k.Load(context.Background(), dir, f); api.CodeOf(err) != api.PolicyError {
			t.Errorf("a test that fails: %v", err)
		}
	}
	if err := os.Remove(filepath.Join(dir, "tests", "more_test.rego")); err != nil {
		t.Fatal(err)
	}
	asked(false, f)
}

// TestR14b_NodesThatLoadAtOnceAskOnce: of nodes that load one policy at the same time one
// asks its rules, and who waits for it ends with its own context.
func TestR14b_NodesThatLoadAtOnceAskOnce(t *testing.T) {
	dir, f := small(t)
	k := new(opa.Shared)
	var mu sync.Mutex
	var asked []int
	var nodes sync.WaitGroup
	for range 6 {
		nodes.Go(func() {
			p, err := k.Load(context.Background(), dir, f)
			if err != nil {
				t.Error(err)
				return
			}
			gate := policy.NewGate(f, "us-east", policy.Hooks{})
			if err := gate.Activate(context.Background(), p.Generation); err != nil {
				t.Error(err)
			}
			for q := range p.Generation.All() {
				if _, err := p.Explain(context.Background(), q); err != nil {
					t.Error(err)
				}
				break
			}
			mu.Lock()
			defer mu.Unlock()
			if p.Report.Asked > 0 {
				asked = append(asked, p.Report.Asked)
			}
		})
	}
	nodes.Wait()
	if len(asked) != 1 {
		t.Errorf("rules were asked %v questions, want once", asked)
	}
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := new(opa.Shared).Load(ended, dir, f); err == nil {
		t.Error("loaded although the context had ended")
	}
}
