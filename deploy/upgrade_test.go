package deploy_test

import (
	"os"
	"slices"
	"testing"

	"domicile/gateway/node"
	"domicile/regions"
)

// A binary reads the files that its predecessor was run with: the examples of version 1,
// as they were, with every key they show.
func TestUpgrade_FilesOfVersion1Load(t *testing.T) {
	f, err := regions.LoadManifest("testdata/version-1/federation.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if got := f.Topics(); f.Name() != "example" || !slices.Equal(got, []string{"catalog.updates", "health.records", "orders"}) {
		t.Errorf("federation %s has the topics %v", f.Name(), got)
	}
	if r, ok := f.Region("eu-west"); !ok || r.Quorum() || !slices.Equal(r.Links(), []string{"127.0.0.1:7401"}) || r.Boundary != "eu" {
		t.Errorf("eu-west reads as %+v", r)
	}
	c, err := node.LoadConfig("testdata/version-1/node.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Validate(f, false); err != nil {
		t.Fatal(err)
	}
	if c.Region != "eu-west" || c.MaxStore != 16<<30 || c.Listen.Link != "127.0.0.1:7401" || len(c.Principals) == 0 {
		t.Errorf("node.yaml reads as %+v", c)
	}
	if _, err := os.Stat(c.Data); err == nil {
		t.Error("reading a configuration made its data directory")
	}
}

// What a topic's declaration says decides whether two regions mirror it between them. A
// region that runs a newer binary must read the same digest out of the same file, or a
// rolling upgrade stops every mirror.
func TestUpgrade_DigestsOfVersion1Stay(t *testing.T) {
	f, err := regions.LoadManifest("testdata/version-1/federation.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for topic, want := range map[string]string{
		"catalog.updates": "9e19023a3b765dc1",
		"health.records":  "6fe6d1ef9644eb36",
		"orders":          "5fb6f3a7625b6571",
	} {
		if got := f.TopicDigest(topic); got != want {
			t.Errorf("%s: digest %s, was %s", topic, got, want)
		}
	}
	if want := "5bdbbbee960d149e"; f.Digest() != want {
		t.Errorf("manifest: digest %s, was %s", f.Digest(), want)
	}
}
