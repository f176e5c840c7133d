package opa_test

import (
	"bytes"
	"context"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"domicile/api"
	"domicile/policy"
	"domicile/policy/opa"
	"domicile/regions"
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

// termed is a policy with two mechanisms that begin together, of which one lasts longer.
type termed struct {
	*testing.T
	files       map[string][]byte
	f           *regions.Federation
	from, until time.Time
}

func newTermed(t *testing.T) *termed {
	t.Helper()
	dir, f := small(t)
	files, err := opa.Files(dir)
	if err != nil {
		t.Fatal(err)
	}
	from := time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC)
	files["terms.yaml"] = []byte(`mechanisms:
  scc_us: {owner: legal, approvers: [anna, ben], reason: contract 7, from: 2026-12-01T00:00:00Z, until: 2026-12-11T00:00:00Z}
  scc_in: {owner: legal, approvers: [anna, ben], reason: contract 8, from: 2026-12-01T00:00:00Z, until: 2026-12-21T00:00:00Z}
`)
	files["rules/orders.rego"] = append(files["rules/orders.rego"], []byte(`

forbid contains {"rule": "without_scc", "text": "no mechanism"} if {
	input.point == "consume"
	not data.mechanisms.scc_us
}

forbid contains {"rule": "without_scc_in", "text": "no mechanism"} if {
	input.point == "mirror_egress"
	not data.mechanisms.scc_in
}
`)...)
	for name := range files { // they know nothing of it
		if strings.HasPrefix(name, "tests/") {
			delete(files, name)
		}
	}
	return &termed{t, files, f, from, from.AddDate(0, 0, 60)}
}

func (x *termed) load(m opa.Moment, f *regions.Federation) *opa.Policy {
	x.Helper()
	m.Until = x.until
	p, err := opa.LoadFiles(x.Context(), x.files, m, f)
	if err != nil {
		x.Fatal(err)
	}
	return p
}

// TestR14b_WhatWasAskedIsNotAskedAgain: a policy of the files that are in force (revoked,
// renewed, at another instant) answers as one that is judged anew does, and its rules are
// asked only what they were not asked before. One byte more, or another federation, and
// all is asked again.
func TestR14b_WhatWasAskedIsNotAskedAgain(t *testing.T) {
	x := newTermed(t)
	f, from := x.f, x.from
	active := x.load(opa.Moment{Serial: 1, Now: from}, f)
	cells := active.Report.Cells
	if active.Report.Asked != 3*cells { // none lasts, both, the second alone
		t.Errorf("%d questions asked, there are %d", active.Report.Asked, cells)
	}
	for _, c := range []struct {
		name    string
		at      time.Time
		revoked []string
		asked   int
	}{
		{"renewed", from, nil, 0},
		{"the first revoked", from, []string{"scc_us"}, 0},
		{"both revoked", from, []string{"scc_in", "scc_us"}, 0},
		{"the second revoked: nobody was asked that", from, []string{"scc_in"}, cells},
		{"later", from.AddDate(0, 0, 12), nil, 0},
	} {
		anew := x.load(opa.Moment{Serial: 2, Now: c.at, Revoked: c.revoked}, f)
		got := x.load(opa.Moment{Serial: 2, Now: c.at, Revoked: c.revoked, Before: active}, f)
		if got.Report.Asked != c.asked || anew.Report.Asked < cells || got.Report.Cells != cells {
			t.Errorf("%s: %d questions asked, want %d; anew %d", c.name, got.Report.Asked, c.asked, anew.Report.Asked)
		}
		samePolicy(t, c.name, got, anew)
	}
	text, err := os.ReadFile("testdata/small/federation.yaml")
	if err != nil {
		t.Fatal(err)
	}
	other, err := regions.ParseManifest("federation.yaml", bytes.Replace(text, []byte("mirror: [all]"), []byte("mirror: []"), 1))
	if err != nil {
		t.Fatal(err)
	}
	if got := x.load(opa.Moment{Serial: 2, Now: from, Before: active}, other); got.Report.Asked != 3*got.Report.Cells {
		t.Errorf("another federation: %d questions asked", got.Report.Asked)
	}
	x.files["rules/orders.rego"] = append(x.files["rules/orders.rego"], '\n')
	if got := x.load(opa.Moment{Serial: 2, Now: from, Before: active}, f); got.Report.Asked != 3*cells {
		t.Errorf("other files: %d questions asked", got.Report.Asked)
	}
}

// TestR14b_OneRevocationIsForeseen: what the revocation of any one term leaves was asked
// before it came, and is what a policy that is judged anew answers.
func TestR14b_OneRevocationIsForeseen(t *testing.T) {
	x := newTermed(t)
	active := x.load(opa.Moment{Serial: 1, Now: x.from}, x.f)
	foreseen := active.Foresee(t.Context())
	for _, name := range []string{"scc_in", "scc_us"} {
		m := opa.Moment{Serial: 2, Now: x.from, Revoked: []string{name}}
		anew := x.load(m, x.f)
		m.Before = foreseen
		got := x.load(m, x.f)
		if got.Report.Asked != 0 {
			t.Errorf("%s revoked, which was foreseen: %d questions asked", name, got.Report.Asked)
		}
		samePolicy(t, name, got, anew)
	}
	if x.load(opa.Moment{Serial: 2, Now: x.from, Revoked: []string{"scc_in"}, Before: active}, x.f).Report.Asked == 0 {
		t.Error("to foresee changed the policy itself")
	}
}

// samePolicy holds two policies against each other: each answer, now and at each instant
// that is scheduled.
func samePolicy(t *testing.T, name string, got, want *opa.Policy) {
	t.Helper()
	if len(got.Later) != len(want.Later) || got.Generation.Revision != want.Generation.Revision {
		t.Errorf("%s: %s and %d later, want %s and %d", name, got.Generation.Revision, len(got.Later), want.Generation.Revision, len(want.Later))
		return
	}
	for i, p := range append([]*opa.Policy{got}, got.Later...) {
		other := append([]*opa.Policy{want}, want.Later...)[i]
		if !p.From.Equal(other.From) || p.Generation.Step != other.Generation.Step {
			t.Errorf("%s: at %s step %d, want %s step %d", name, p.From, p.Generation.Step, other.From, other.Generation.Step)
		}
		for q, d := range other.Generation.All() {
			now, err := p.Generation.Ask(q)
			if err != nil || !reflect.DeepEqual(now, d) {
				t.Fatalf("%s: %s is answered %+v, want %+v, %v", name, q, now, d, err)
			}
		}
	}
}
