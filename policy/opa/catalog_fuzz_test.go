package opa_test

import (
	"context"
	"errors"
	"os"
	"testing"

	"domicile/api"
	"domicile/policy"
	"domicile/regions/strict"
)

// Whatever catalog.yaml holds, it is refused with a code or gives a domain within
// its limit, in which nothing is left unjudged.
func FuzzCatalog(f *testing.F) {
	text, err := os.ReadFile("testdata/small/policies/catalog.yaml")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(text)
	f.Add([]byte("serial: 1\ndimensions: {residency: [global]}\nprincipal_classes: [a]\ntopics: {orders: {allow: [{residency: [global]}], packages: [x]}, catalog.updates: {allow: [{residency: [global]}], packages: [x]}}\n"))
	f.Add([]byte("topics: {a: {allow: [{}]}}"))
	_, federation := small(f)
	deny := func(context.Context, policy.Question) (policy.Verdict, error) {
		return policy.Verdict{Reasons: []policy.Reason{{Code: policy.ReasonNoPermit}}}, nil
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		var c policy.Catalog
		if err := strict.Decode("catalog.yaml", text, &c); err != nil {
			return
		}
		g, err := policy.Build(context.Background(), &c, federation, "d", deny)
		if err != nil {
			var e *api.Error
			if !errors.As(err, &e) || e.Code != api.ConfigInvalid || e.Hint == "" {
				t.Fatalf("%v has no code or no way out", err)
			}
			return
		}
		if g.Cells() < 1 || g.Cells() > policy.MaxCells {
			t.Fatalf("%d cells", g.Cells())
		}
	})
}
