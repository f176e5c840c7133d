package opa_test

import (
	"context"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"domicile/deploy"
	"domicile/policy/opa"
	"domicile/regions"
)

func manifest(t testing.TB) *regions.Federation {
	t.Helper()
	f, err := regions.ParseManifest("federation.yaml", deploy.FederationYAML)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func example(t testing.TB) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "policies")
	if err := deploy.WritePolicies(dir); err != nil {
		t.Fatal(err)
	}
	return dir
}

// small is a policy directory and manifest that are quick to judge.
func small(t testing.TB) (string, *regions.Federation) {
	t.Helper()
	f, err := regions.LoadManifest("testdata/small/federation.yaml")
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "policies")
	if err := os.CopyFS(dir, os.DirFS("testdata/small/policies")); err != nil {
		t.Fatal(err)
	}
	return dir, f
}

// loadOnce loads the example once for all tests that only ask it.
var loadOnce = sync.OnceValues(func() (*opa.Policy, error) {
	dir, err := os.MkdirTemp("", "policies")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	if err := deploy.WritePolicies(dir); err != nil {
		return nil, err
	}
	f, err := regions.ParseManifest("federation.yaml", deploy.FederationYAML)
	if err != nil {
		return nil, err
	}
	return opa.Load(context.Background(), dir, f)
})

func loaded(t *testing.T) *opa.Policy {
	t.Helper()
	p, err := loadOnce()
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestLoad_Example(t *testing.T) {
	r := loaded(t).Report
	if len(r.Warnings) != 0 || r.Cells != 1056 || r.Tests == 0 || r.Allowed == 0 || r.Took <= 0 {
		t.Errorf("%+v", r)
	}
	for _, u := range r.Rules {
		if u.Cells == 0 || u.File == "" || u.Line == 0 {
			t.Errorf("%+v", u)
		}
	}
}

func TestLoad_GivesUpWhenItsContextEnds(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if p, err := opa.Load(ctx, example(t), manifest(t)); err == nil {
		t.Errorf("loaded %s", p.Generation.Revision)
	}
}
