package opa_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"domicile/api"
	"domicile/policy"
	"domicile/policy/opa"
)

// TestR14b_KeptFilesAreTheDirectory: the exact bytes of a directory, kept and loaded again,
// are the same policy under their own serial, and what would be refused in a directory is.
func TestR14b_KeptFilesAreTheDirectory(t *testing.T) {
	dir, f := small(t)
	files, err := opa.Files(dir)
	if err != nil {
		t.Fatal(err)
	}
	want, err := opa.Load(context.Background(), dir, f)
	if err != nil {
		t.Fatal(err)
	}
	got, err := opa.LoadFiles(context.Background(), files, opa.Moment{Serial: 41}, f)
	if err != nil {
		t.Fatal(err)
	}
	if got.Generation.Serial != 41 || got.Generation.Digest != want.Generation.Digest || got.Report.Cells != want.Report.Cells || got.Report.Tests != want.Report.Tests {
		t.Errorf("loaded %+v, the directory is %+v", got.Report, want.Report)
	}
	files["rules/orders_test.rego"] = []byte("package x")
	if _, err := opa.LoadFiles(context.Background(), files, opa.Moment{Serial: 41}, f); api.CodeOf(err) != api.PolicyError {
		t.Errorf("a test among the rules: %v", err)
	}
	if _, err := opa.LoadFiles(context.Background(), map[string][]byte{"rules": []byte("x"), "catalog.yaml": []byte("serial: 1")}, opa.Moment{}, f); api.CodeOf(err) == "" {
		t.Error("a file in the place of a folder was loaded")
	}
}

// TestR14b_TimeIsDataAndNoClock: a rule that rests on a mechanism allows from its first
// instant to its last, in generations that are all judged when the policy is loaded; the
// directory alone is judged as if none lasted, and a name that is none does not compile.
func TestR14b_TimeIsDataAndNoClock(t *testing.T) {
	dir, f := small(t)
	files, err := opa.Files(dir)
	if err != nil {
		t.Fatal(err)
	}
	from := time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC)
	files["terms.yaml"] = []byte(`mechanisms:
  scc_us: {owner: legal, approvers: [anna, ben], reason: contract 7, from: 2026-12-01T00:00:00Z, until: 2026-12-11T00:00:00Z}
`)
	for name := range files {
		if strings.HasPrefix(name, "rules/") {
			files[name] = append(files[name], []byte("\n\nforbid contains {\"rule\": \"without_scc\", \"text\": \"no mechanism\"} if {\n\tinput.point == \"consume\"\n\tnot data.mechanisms.scc_us\n}\n")...)
			break
		}
	}
	for name := range files { // they know nothing of it
		if strings.HasPrefix(name, "tests/") {
			delete(files, name)
		}
	}
	allowed := func(p *opa.Policy) (n int) {
		for q, d := range p.Generation.All() {
			if d.Allow && q.Point == policy.Consume {
				n++
			}
		}
		return n
	}
	load := func(m opa.Moment) *opa.Policy {
		t.Helper()
		p, err := opa.LoadFiles(t.Context(), files, m, f)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	until := from.AddDate(0, 0, 60)
	before := load(opa.Moment{Serial: 3, Now: from.Add(-time.Millisecond), Until: until})
	if len(before.Later) != 2 || before.Generation.Step != 0 || !before.Later[0].From.Equal(from) || before.Later[1].Generation.Step != 2 {
		t.Fatalf("%d later ones, step %d", len(before.Later), before.Generation.Step)
	}
	during, after := before.Later[0], before.Later[1]
	if allowed(during) == 0 || allowed(before) >= allowed(during) || allowed(after) != allowed(before) {
		t.Errorf("allowed %d before, %d during, %d after", allowed(before), allowed(during), allowed(after))
	}
	if during.Generation.Revision == before.Generation.Revision || during.Generation.Digest != before.Generation.Digest {
		t.Errorf("revisions %s, %s", before.Generation.Revision, during.Generation.Revision)
	}
	now := load(opa.Moment{Serial: 3, Now: from, Until: until})
	if allowed(now) != allowed(during) || now.Generation.Revision != during.Generation.Revision || len(now.Later) != 1 {
		t.Error("loaded at its beginning it is another one than the one that was scheduled")
	}
	if revoked := load(opa.Moment{Serial: 4, Now: from, Until: until, Revoked: []string{"scc_us"}}); allowed(revoked) != allowed(before) {
		t.Error("revoked, and it lasts")
	}
	if short := load(opa.Moment{Serial: 3, Now: from.Add(-1), Until: from}); len(short.Later) != 0 {
		t.Error("something begins after the policy's end")
	}
	if _, err := opa.LoadFiles(t.Context(), files, opa.Moment{Serial: 4, Now: from, Until: until, Revoked: []string{"scc"}}, f); api.CodeOf(err) != api.PolicyError {
		t.Errorf("what is not there was revoked: %v", err)
	}
	files["terms.yaml"] = []byte(strings.ReplaceAll(string(files["terms.yaml"]), "scc_us", "scc_in"))
	if _, err := opa.LoadFiles(t.Context(), files, opa.Moment{}, f); api.CodeOf(err) != api.PolicyError || !strings.Contains(err.Error(), "scc_us") {
		t.Errorf("a rule that reads a mechanism which is not there: %v", err)
	}
}
