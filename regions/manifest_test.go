package regions_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"domicile/api"
	"domicile/regions"
)

// TestManifest runs the stories in testdata/manifest: a manifest as input, what it
// means or why it is refused as output. Rewrite with -rewrite.
func TestManifest(t *testing.T) {
	datadriven.Walk(t, "testdata/manifest", func(t *testing.T, path string) {
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			f, err := regions.ParseManifest("federation.yaml", []byte(d.Input))
			if err != nil {
				return describeError(t, err)
			}
			switch d.Cmd {
			case "logs":
				f.Place(placedOf(t, d))
				return describeLogs(f)
			case "failover":
				return describeFailover(f)
			case "floor":
				return describeFloor(f)
			case "drills":
				return describeDrills(t, d, f)
			default:
				t.Fatalf("unknown command %q", d.Cmd)
				return ""
			}
		})
	})
}

// describeDrills says what is permitted, and whether a drill of that length may begin at
// each instant.
func describeDrills(t *testing.T, d *datadriven.TestData, f *regions.Federation) string {
	limits := f.Drills()
	if limits == nil {
		return "not permitted\n"
	}
	out := limits.String() + "\n"
	for _, arg := range d.CmdArgs {
		for _, at := range arg.Vals {
			when, err := time.Parse(time.RFC3339, at)
			if arg.Key != "at" || err != nil {
				continue
			}
			var long string
			d.ScanArgs(t, "long", &long)
			span, err := time.ParseDuration(long)
			if err != nil {
				t.Fatal(err)
			}
			out += fmt.Sprintln(at, limits.Holds(when, span))
		}
	}
	return out
}

// placedOf reads the arguments log=home, where an authority placed logs, in epoch 1.2.q.
func placedOf(t *testing.T, d *datadriven.TestData) map[api.LogID]regions.Placed {
	placed := map[api.LogID]regions.Placed{}
	for _, arg := range d.CmdArgs {
		id, err := api.ParseLogID(arg.Key)
		if err != nil || len(arg.Vals) != 1 {
			d.Fatalf(t, "write log=home: %v %v", arg, err)
		}
		placed[id] = regions.Placed{Home: arg.Vals[0], Epoch: api.Epoch{Term: 1, Counter: 2, Issuer: "q"}}
	}
	return placed
}

func describeError(t *testing.T, err error) string {
	var e *api.Error
	if !errors.As(err, &e) {
		t.Fatalf("not an *api.Error: %v", err)
	}
	return err.Error() + "\n"
}

// TestReplaceIsSeenByAllHolders: whoever holds the federation sees the next manifest at
// the next call; a snapshot keeps the one it was taken of.
func TestReplaceIsSeenByAllHolders(t *testing.T) {
	load := func(topic string) *regions.Federation {
		f, err := regions.ParseManifest("federation.yaml", fmt.Appendf(nil, `
version: 1
federation: replaced
regions:
  a: {link: "a:1"}
topics:
  %s:
    writes: local
    on_home_loss: {producers: refuse, consumers: {mode: wait}, owner: ops, text: wait}
`, topic))
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	held, next := load("old"), load("new")
	before, sum := held.Snapshot(), held.Digest()
	held.Replace(next)
	if _, ok := held.Topic("new"); !ok || held.Digest() != next.Digest() {
		t.Errorf("after Replace the holder sees topics %v, digest %s", held.Topics(), held.Digest())
	}
	if _, ok := before.Topic("old"); !ok || before.Digest() != sum {
		t.Errorf("the snapshot changed: topics %v", before.Topics())
	}
	old := api.LogID{Tenant: api.DefaultTenant, Topic: "old", Slot: "a"}
	held.Place(map[api.LogID]regions.Placed{old: {Home: "b", Epoch: api.StaticEpoch("b")}})
	held.Replace(load("old"))
	if home, _, _ := held.Home(old); home != "b" {
		t.Errorf("after Replace the log is in %q: where it was placed is no part of the manifest", home)
	}
	if home, _, _ := before.Home(old); home != "a" {
		t.Errorf("the snapshot sees the log in %q", home)
	}
	held.Replace(next)
	next.Replace(before)
	if _, ok := held.Topic("new"); !ok {
		t.Error("replacing another federation changed this one")
	}
}

func describeLogs(f *regions.Federation) string {
	var b strings.Builder
	for _, name := range f.Topics() {
		topic, _ := f.Topic(name)
		for _, log := range f.Logs(topic) {
			home, epoch, ok := f.Home(log)
			fmt.Fprintf(&b, "%s home=%s epoch=%s known=%v targets=%v\n", log, home, epoch, ok, f.Targets(log))
		}
	}
	return b.String()
}

func describeFailover(f *regions.Federation) string {
	var b strings.Builder
	for _, name := range f.Topics() {
		topic, _ := f.Topic(name)
		fmt.Fprintf(&b, "%s movable=%v\n", name, topic.Movable())
		fields := topic.Fields()
		for _, field := range slices.Sorted(maps.Keys(fields)) {
			if strings.HasPrefix(field, "failover.") {
				fmt.Fprintf(&b, "  %s: %s\n", field, fields[field])
			}
		}
		for _, log := range f.Logs(topic) {
			if first, _ := f.FirstHome(log); topic.Movable() {
				fmt.Fprintf(&b, "  %s may move to %v\n", log, topic.TargetsOf(first))
			}
		}
	}
	for _, c := range f.Cautions() {
		fmt.Fprintf(&b, "caution: %s\n", c)
	}
	return b.String()
}

func describeFloor(f *regions.Federation) string {
	var b strings.Builder
	for _, residency := range append(f.Boundaries(), "global", "EU", "mars", "") {
		fmt.Fprintf(&b, "%q may rest in %v\n", residency, f.Floor(residency))
	}
	return b.String()
}

// R14b: the floor knows no residency and no region that the map does not name.
func TestR14b_FloorRefusesTheUnknown(t *testing.T) {
	f, err := regions.ParseManifest("federation.yaml", []byte(`
version: 1
federation: acme
regions: {eu-west: {link: "a:1"}, us-east: {link: "b:1"}, sea: {link: "c:1"}}
boundaries: {eu: [eu-west], us: [us-east]}
`))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		residency, region string
		want              bool
	}{
		{"eu", "eu-west", true}, {"eu", "us-east", false}, {"eu", "sea", false},
		{"global", "sea", true}, {"global", "mars", false},
		{"EU", "eu-west", false}, {"eu ", "eu-west", false}, {"", "eu-west", false}, {"еu", "eu-west", false},
	} {
		if got := f.MayRest(c.residency, c.region); got != c.want {
			t.Errorf("MayRest(%q, %q) = %v, want %v", c.residency, c.region, got, c.want)
		}
	}
}

func TestDigestNamesWhatDiffers(t *testing.T) {
	const manifest = `
version: 1
federation: acme
regions: {eu-west: {link: "a:1"}, us-east: {link: "b:1"}}
topics:
  orders:
    writes: local
    retention: {max_age: %s}
    on_home_loss: {producers: refuse, consumers: {mode: wait}, owner: orders-team, text: wait for the region}
`
	load := func(age string) *regions.Federation {
		f, err := regions.ParseManifest("federation.yaml", fmt.Appendf(nil, manifest, age))
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	a, same, b := load("1h"), load("60m"), load("2h")
	if a.Digest() != same.Digest() || a.TopicDigest("orders") != same.TopicDigest("orders") {
		t.Error("the same manifest, written differently, has another digest")
	}
	if a.Digest() == b.Digest() || a.TopicDigest("orders") == b.TopicDigest("orders") {
		t.Error("manifests that differ have the same digest")
	}
	ta, _ := a.Topic("orders")
	tb, _ := b.Topic("orders")
	diffs := regions.Differences(ta.Fields(), tb.Fields())
	if len(diffs) != 1 || diffs[0] != "retention.max_age: 1h0m0s | 2h0m0s" {
		t.Errorf("differences: %q", diffs)
	}
}
