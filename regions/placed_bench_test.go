package regions_test

import (
	"fmt"
	"strings"
	"testing"

	"domicile/api"
	"domicile/regions"
)

// BenchmarkHome is what each record pays to know where its log is, in a federation of 1,000
// topics of which each log was placed.
func BenchmarkHome(b *testing.B) {
	var text strings.Builder
	text.WriteString("version: 1\nfederation: f\nregions:\n  eu-west: {link: \"a:1\"}\n  us-east: {link: \"b:1\"}\nboundaries: {eu: [eu-west], us: [us-east]}\ntopics:\n")
	for i := range 1000 {
		fmt.Fprintf(&text, "  topic-%d: {writes: local, mirror: [all], on_home_loss: {producers: refuse, consumers: {mode: wait}, owner: o, text: t}}\n", i)
	}
	f, err := regions.ParseManifest("federation.yaml", []byte(text.String()))
	if err != nil {
		b.Fatal(err)
	}
	placed := map[api.LogID]regions.Placed{}
	for _, name := range f.Topics() {
		topic, _ := f.Topic(name)
		for _, id := range f.Logs(topic) {
			placed[id] = regions.Placed{Home: "us-east", Epoch: api.Epoch{Term: 1, Counter: 2, Issuer: "q"}}
		}
	}
	f.Place(placed)
	id := api.LogID{Tenant: api.DefaultTenant, Topic: "topic-500", Slot: "us-east"}
	for b.Loop() {
		if home, _, ok := f.Home(id); !ok || home != "us-east" {
			b.Fatal(home, ok)
		}
	}
}
