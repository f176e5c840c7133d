package lab_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"domicile/api"
	"domicile/chaos/lab"
	"domicile/gateway/node"
	"domicile/regions/link"
)

const movable = `version: 1
federation: example
regions:
  eu-west: {link: "127.0.0.1:7401"}
  eu-central: {link: "127.0.0.1:7402"}
  us-east: {link: "127.0.0.1:7403"}
boundaries: {eu: [eu-west, eu-central], us: [us-east]}
authority: {voters: [eu-west, eu-central, us-east]}
topics:
  orders: {writes: home, home: eu-west, mirror: [all], failover: {mode: manual, targets: [us-east], rpo: 5s, rto: 1m, accept: true},
    on_home_loss: {producers: refuse, consumers: {mode: wait}, owner: o, text: t}}
  events: {writes: home, home: eu-west, mirror: [all],
    on_home_loss: {producers: refuse, consumers: {mode: wait}, owner: o, text: t}}
`

func movablePolicies(dir string) error {
	const catalog = `serial: 1
dimensions: {residency: [eu, us, global], class: [order]}
principal_classes: [app, operator]
topics:
  orders: {allow: [{residency: [global], class: [order]}], packages: [orders]}
  events: {allow: [{residency: [global], class: [order]}], packages: [orders]}
`
	const rules = `package residency.rules.orders

permit contains {"rule": "global", "text": "everywhere", "regions": data.federation.regions}
`
	return errors.Join(os.MkdirAll(filepath.Join(dir, "rules"), 0o700), os.WriteFile(filepath.Join(dir, "catalog.yaml"), []byte(catalog), 0o600),
		os.WriteFile(filepath.Join(dir, "rules", "orders.rego"), []byte(rules), 0o600))
}

// isolate cuts a region off at the gates of all others, so that it stays so over its
// restarts.
func isolate(t *testing.T, l *lab.Lab, region string) {
	t.Helper()
	for _, r := range l.Regions() {
		if r.Name != region {
			if err := l.CutLink(r.Name, region, link.BlackHole, time.Hour); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func publishTo(t *testing.T, l *lab.Lab, region, topic, id string) (api.Ack, error) {
	t.Helper()
	c, err := l.Region(region).Door(1)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	r := orderOf("global", id)
	r.Topic = topic
	return c.Publish(t.Context(), &r)
}

// until publishes under new ids until an ack is as wanted.
func until(t *testing.T, l *lab.Lab, region, topic, what string, wanted func(api.Ack, error) bool) (ack api.Ack) {
	t.Helper()
	tries := 0
	within(t, what, func() error {
		tries++
		a, err := publishTo(t, l, region, topic, fmt.Sprintf("%s-%d", strings.ReplaceAll(what, " ", "-"), tries))
		if ack = a; wanted(a, err) {
			return nil
		}
		return fmt.Errorf("got %+v: %v", a, err)
	})
	return ack
}

func confirmed(a api.Ack, err error) bool   { return err == nil && !a.Unconfirmed }
func unconfirmed(a api.Ack, err error) bool { return err == nil && a.Unconfirmed }

// TestS18_AMovableLogGoesByWhatItsRegionKnows: a log that may move takes records once the
// authority has it. While its home is cut off the acks say so, also after a start from the
// cache; without any word of the authority it takes nothing. A log that never moves does
// not notice any of it.
func TestS18_AMovableLogGoesByWhatItsRegionKnows(t *testing.T) {
	l := open(t, lab.Options{Policies: movablePolicies, Manifest: []byte(movable)})
	west := l.Region("eu-west")
	pinned := func(id string) {
		t.Helper()
		if a, err := publishTo(t, l, "eu-west", "events", id); err != nil || a.Unconfirmed {
			t.Fatalf("a log that never moves: %+v %v", a, err)
		}
	}
	pinned("first")
	ack := until(t, l, "us-east", "orders", "forwarded", confirmed)
	if ack.Epoch != api.StaticEpoch("eu-west") || ack.Region != "eu-west" {
		t.Errorf("the ack says %+v", ack)
	}

	isolate(t, l, "eu-west")
	until(t, l, "eu-west", "orders", "cut off", unconfirmed)
	pinned("cut off")
	if err := west.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	pinned("restarted")
	until(t, l, "eu-west", "orders", "from the cache", unconfirmed)
	l.Heal()
	until(t, l, "eu-west", "orders", "healed", confirmed)

	if err := l.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, r := range l.Regions() {
		for _, cache := range []string{node.CouncilDir(r.Data()), filepath.Join(r.Data(), "placement.cache")} {
			if err := os.RemoveAll(cache); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := l.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	pinned("nobody decides")
	if _, err := publishTo(t, l, "eu-west", "orders", "nobody decides"); api.CodeOf(err) != api.NotReady {
		t.Errorf("without an authority a log that may move: %v", err)
	}
	log, err := os.ReadFile(filepath.Join(west.Dir, "node.log"))
	if err != nil || !strings.Contains(string(log), "no voter lives on this node") {
		t.Errorf("the node does not say that it lost its vote: %v", err)
	}
}
