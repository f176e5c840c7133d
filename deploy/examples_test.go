package deploy_test

import (
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"domicile/deploy"
	"domicile/gateway/node"
	"domicile/regions"
	"domicile/regions/strict"
)

func TestFederationYAML_Loads(t *testing.T) {
	f, err := regions.ParseManifest("federation.yaml", deploy.FederationYAML)
	if err != nil {
		t.Fatal(err)
	}
	if got := f.Regions(); !slices.Equal(got, []string{"ap-south", "eu-west", "us-east"}) {
		t.Errorf("regions = %v", got)
	}
	if got := f.Topics(); !slices.Equal(got, []string{"catalog.updates", "health.records", "orders"}) {
		t.Errorf("topics = %v", got)
	}
	if health, _ := f.Topic("health.records"); len(health.Mirror) != 0 {
		t.Errorf("health.records is mirrored to %v, want nowhere", health.Mirror)
	}
}

func TestNodeYAML_LoadsWithItsDefaults(t *testing.T) {
	path := filepath.Join(t.TempDir(), "node.yaml")
	if err := os.WriteFile(path, deploy.NodeYAML, 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := node.LoadConfig(path)
	if err != nil {
		t.Fatal(err)
	}
	f, err := regions.ParseManifest("federation.yaml", deploy.FederationYAML)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Validate(f, true); err != nil {
		t.Fatal(err)
	}
	want := node.NewConfig()
	if c.Listen != want.Listen || c.MaxStore != want.MaxStore || c.Log != want.Log {
		t.Errorf("the example says default where the default is another one:\n got %+v\nwant %+v", c, want)
	}
}

// A key that the example does not show is a key that nobody finds.
func TestExamples_ShowEveryKey(t *testing.T) {
	topic := reflect.TypeFor[regions.Topic]()
	for file, want := range map[string]struct {
		text string
		keys []string
	}{
		"node.yaml":       {string(deploy.NodeYAML), strict.Keys(reflect.TypeFor[node.Config]())},
		"federation.yaml": {string(deploy.FederationYAML), append(strict.Keys(topic), "version", "federation", "regions", "boundaries", "links", "topics")},
	} {
		for _, key := range want.keys {
			if !strings.Contains(want.text, key+":") && !strings.Contains(want.text, key+" ") {
				t.Errorf("%s does not show %s", file, key)
			}
		}
	}
}
