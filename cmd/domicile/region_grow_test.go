package main

import (
	"maps"
	"slices"
	"testing"
	"time"

	"domicile/api"
	"domicile/deploy"
	"domicile/regions"
	"domicile/regions/fabric"
)

// The three directories are those of the gateways that the new manifest names, and the
// stores that are filled in them know each other by these names. That they are filled
// and write on is proven where stores are (TestRA1_SoloStoreGrowsToThreeNodes).
func TestRA4_GrowNamesTheManifestsGateways(t *testing.T) {
	old := fabric.Config{Region: "eu-west", Federation: "example", Dir: t.TempDir(), MaxStore: 1 << 30}
	solo, err := regions.ParseManifest("federation.yaml", deploy.FederationYAML)
	if err != nil {
		t.Fatal(err)
	}
	dirs := map[string]string{"a": "n/a", "b": "n/b", "c": "n/c"}
	if _, err := storesOf(old, solo, dirs, time.Now()); api.CodeOf(err) != api.ConfigInvalid {
		t.Errorf("a manifest that names no gateways: %v", err)
	}
	text := replaceOnce(deploy.FederationYAML, `link: "127.0.0.1:7401"`, `gateways: {a: "127.0.0.1:7401", b: "127.0.0.1:7431", c: "127.0.0.1:7441"}`)
	grown, err := regions.ParseManifest("federation.yaml", text)
	if err != nil {
		t.Fatal(err)
	}
	for name, wrong := range map[string]map[string]string{
		"two": {"a": "x", "b": "y"}, "another": {"a": "x", "b": "y", "d": "z"},
	} {
		if _, err := storesOf(old, grown, wrong, time.Now()); api.CodeOf(err) != api.ConfigInvalid {
			t.Errorf("%s: %v", name, err)
		}
	}
	stores, err := storesOf(old, grown, dirs, time.Now())
	if err != nil || len(stores) != 3 {
		t.Fatalf("%d stores, %v", len(stores), err)
	}
	for _, s := range stores {
		c := s.Cluster
		if s.Dir != dirs[c.Node] || s.Region != "eu-west" || c.TLS == nil || c.Listen != c.Members[c.Node] ||
			!slices.Equal(slices.Sorted(maps.Keys(c.Members)), []string{"a", "b", "c"}) {
			t.Errorf("%+v in %s", c, s.Dir)
		}
	}
}
