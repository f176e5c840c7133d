package policy_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"domicile/api"
	"domicile/policy"
	"domicile/regions"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const manifestText = `
version: 1
federation: test
regions:
  eu-west: {link: "127.0.0.1:1"}
  eu-central: {link: "127.0.0.1:2"}
  us-east: {link: "127.0.0.1:3"}
  nowhere: {link: "127.0.0.1:4"}
boundaries:
  eu: [eu-west, eu-central]
  us: [us-east]
topics:
  orders:
    writes: local
    mirror: [all]
    on_home_loss: {producers: refuse, consumers: {mode: wait}, owner: o, text: t}
  news:
    writes: home
    home: eu-west
    mirror: [all]
    on_home_loss: {producers: refuse, consumers: {mode: wait}, owner: o, text: t}
`

func federation(t testing.TB) *regions.Federation {
	t.Helper()
	return federationOf(t, manifestText)
}

func federationOf(t testing.TB, text string) *regions.Federation {
	t.Helper()
	f, err := regions.ParseManifest("federation.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func catalog(serial int64) *policy.Catalog {
	return &policy.Catalog{
		Serial:     serial,
		Dimensions: map[string][]string{"residency": {"eu", "us", "global"}, "class": {"order", "news"}, "leg": {"home", "abroad"}},
		Classes:    []string{"app", "operator"},
		Topics: map[string]policy.CatalogTopic{
			"orders": {Allow: []map[string][]string{{"residency": {"eu", "us", "global"}, "class": {"order"}, "leg": {"home", "abroad"}}}, Packages: []string{"p"}},
			"news":   {Allow: []map[string][]string{{"residency": {"eu", "global"}, "class": {"news"}}}, Packages: []string{"p"}},
		},
	}
}

func because(code string) []policy.Reason {
	return []policy.Reason{{Code: code, Rule: "p/r", Text: "so it is written"}}
}

// allowAll is a judge without any sense of residency.
func allowAll(f *regions.Federation) policy.Judge {
	return func(_ context.Context, q policy.Question) (policy.Verdict, error) {
		v := policy.Verdict{Allow: true, Regions: append([]string(nil), f.Regions()...), Reasons: because(policy.ReasonPermitted)}
		if q.Point == policy.Admit {
			v.Destination = f.Floor(residency(q))[0]
		}
		return v, nil
	}
}

func denyAll(context.Context, policy.Question) (policy.Verdict, error) {
	return policy.Verdict{Reasons: because(policy.ReasonForbidden)}, nil
}

func residency(q policy.Question) string {
	for _, tag := range q.Tags {
		if tag.Name == "residency" {
			return tag.Value
		}
	}
	return ""
}

func build(t testing.TB, f *regions.Federation, serial int64, digest string, j policy.Judge) *policy.Generation {
	t.Helper()
	g, err := policy.Build(context.Background(), catalog(serial), f, digest, j)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func gate(t testing.TB, f *regions.Federation, self string, h policy.Hooks, g *policy.Generation) *policy.Gate {
	t.Helper()
	gate := policy.NewGate(f, self, h)
	if err := gate.Activate(context.Background(), g); err != nil {
		t.Fatal(err)
	}
	return gate
}

func order(residency string) *api.Record {
	return &api.Record{ID: "id-canary", Key: "key-canary", Topic: "orders", Body: []byte("body-canary"),
		Headers: []api.Header{{Name: "h", Value: "header-canary"}},
		Tags:    []api.Tag{{Name: "class", Value: "order"}, {Name: "leg", Value: "home"}, {Name: "residency", Value: residency}}}
}

func app(place string) regions.Principal {
	return regions.Principal{Name: "name-canary", Kind: "client", Class: "app", Place: place}
}

func wantCode(t *testing.T, err error, code api.Code) *api.Error {
	t.Helper()
	if api.CodeOf(err) != code {
		t.Fatalf("got %v, want code %q", err, code)
	}
	var e *api.Error
	if err != nil && !errors.As(err, &e) {
		t.Fatalf("%v is no *api.Error", err)
	}
	if err != nil && strings.Contains(err.Error(), "canary") {
		t.Fatalf("the error holds something of the record: %v", err)
	}
	return e
}
