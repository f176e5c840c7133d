package node_test

import (
	"os"
	"path/filepath"
	"testing"

	"domicile/api"
	"domicile/deploy"
	"domicile/gateway/node"
	"domicile/regions"
)

func manifest(t *testing.T) *regions.Federation {
	t.Helper()
	f, err := regions.ParseManifest("federation.yaml", deploy.FederationYAML)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func TestConfigRefusesWhatItCannotObey(t *testing.T) {
	f := manifest(t)
	for _, c := range []struct {
		name, text, field string
		dev               bool
	}{
		{"unknown region", "region: eu-wset\n", "region", false},
		{"tiny store", "region: eu-west\nmax_store: 1MiB\n", "max_store", false},
		{"no port", "region: eu-west\nlisten: {door: localhost}\n", "listen.door", false},
		{"dev off loopback", "region: eu-west\nlisten: {door: '0.0.0.0:7400'}\n", "listen.door", true},
		{"dev metrics off loopback", "region: eu-west\nlisten: {metrics: ':7403'}\n", "listen.metrics", true},
		{"principal without class", "region: eu-west\nprincipals: [{match: app}]\n", "principals[0].class", false},
		{"principal by a broken pattern", "region: eu-west\nprincipals: [{match: '[', class: app}]\n", "principals[0].match", false},
		{"principal on mars", "region: eu-west\nprincipals: [{match: app, class: app, place: mars}]\n", "principals[0].place", false},
		{"log level", "region: eu-west\nlog: {level: loud}\n", "log.level", false},
		{"word for the clock without a time", "region: eu-west\nclock: {reason: ben looked}\n", "clock.at", false},
		{"word for the clock without a reason", "region: eu-west\nclock: {at: 2026-12-01T03:00:00Z}\n", "clock.reason", false},
		{"unknown key", "region: eu-west\nlisen: {}\n", "lisen", false},
	} {
		path := filepath.Join(t.TempDir(), "node.yaml")
		if err := os.WriteFile(path, []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		config, err := node.LoadConfig(path)
		if err == nil {
			err = config.Validate(f, c.dev)
		}
		if e, ok := err.(*api.Error); !ok || e.Code != api.ConfigInvalid || e.Field != c.field {
			t.Errorf("%s: %v, want CONFIG_INVALID for %s", c.name, err, c.field)
		}
	}
}

// The example files are what `init` starts from: they load, and mean their defaults.
func TestExampleFileIsTheDefaults(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "node.yaml")
	if err := os.WriteFile(path, deploy.NodeYAML, 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := node.LoadConfig(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := got.Validate(manifest(t), false); err != nil {
		t.Fatal(err)
	}
	want := node.NewConfig()
	if got.Listen != want.Listen || got.MaxStore != want.MaxStore || got.Log != want.Log || got.DevClass != want.DevClass {
		t.Errorf("the example says other defaults than the code:\n%+v\n%+v", got, want)
	}
	if got.Data != filepath.Join(dir, want.Data) || got.Policies != filepath.Join(filepath.Dir(dir), want.Policies) {
		t.Errorf("paths are not relative to the file: %s, %s", got.Data, got.Policies)
	}
}
