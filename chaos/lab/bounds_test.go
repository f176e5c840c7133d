package lab_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"domicile/api"
	"domicile/api/client"
	"domicile/chaos/lab"
	"domicile/chaos/ledger"
	"domicile/regions/link"
)

// soon is generous: other tests share the machine.
const soon = 60 * time.Second

// bounded is a federation with two regions in one boundary and one outside of it.
func bounded(topics string) []byte {
	return []byte(`version: 1
federation: example
regions:
  eu-west: {link: "127.0.0.1:7401"}
  eu-central: {link: "127.0.0.1:7402"}
  us-east: {link: "127.0.0.1:7403"}
boundaries: {eu: [eu-west, eu-central], us: [us-east]}
topics:
  ` + topics + "\n")
}

// boundedPolicies lets an order of these residencies rest in its boundary, and a global one
// everywhere.
func boundedPolicies(residencies string) func(dir string) error {
	catalog := `serial: 1
dimensions: {residency: [eu, us, global], class: [order]}
principal_classes: [app, operator]
topics: {orders: {allow: [{residency: [` + residencies + `], class: [order]}], packages: [orders]}}
`
	const rules = `package residency.rules.orders

permit contains {"rule": "boundary", "text": "in its boundary", "regions": data.federation.boundaries[input.tags.residency]} if input.point != "transit"

permit contains {"rule": "global", "text": "everywhere", "regions": data.federation.regions} if input.tags.residency == "global"

permit contains {"rule": "transit", "text": "through memory", "regions": data.federation.regions} if input.point == "transit"

destination contains "eu-west" if input.tags.residency == "eu"

destination contains "us-east" if input.tags.residency == "us"
`
	return func(dir string) error {
		return errors.Join(os.MkdirAll(filepath.Join(dir, "rules"), 0o700), os.WriteFile(filepath.Join(dir, "catalog.yaml"), []byte(catalog), 0o600),
			os.WriteFile(filepath.Join(dir, "rules", "orders.rego"), []byte(rules), 0o600))
	}
}

func orderOf(residency, id string) api.Record {
	return api.Record{Topic: "orders", ID: id, Body: []byte("a book"), Tags: []api.Tag{{Name: "class", Value: "order"}, {Name: "residency", Value: residency}}}
}

func door(t *testing.T, l *lab.Lab, region string, attempts int) *client.Client {
	t.Helper()
	c, err := l.Region(region).Door(attempts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func within(t *testing.T, what string, ask func() error) {
	t.Helper()
	if err := lab.Poll(t.Context(), soon, ask); err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

// TestR14e_OrdersGoRoundWithinTheirBoundary: while eu-west is cut off, EU orders that are
// published in us-east are stored in eu-central and nowhere else, and what may be in
// eu-west already waits for it.
func TestR14e_OrdersGoRoundWithinTheirBoundary(t *testing.T) {
	l := open(t, lab.Options{Policies: boundedPolicies("eu, us, global"), Manifest: bounded(
		`orders: {writes: local, route: within_boundary, mirror: [all], on_home_loss: {producers: refuse, consumers: {mode: wait}, owner: o, text: t}}`)})
	us := door(t, l, "us-east", 1)
	told := map[string]string{}
	publish := func(residency, id string) error {
		r := orderOf(residency, id)
		ack, err := us.Publish(t.Context(), &r)
		if err == nil {
			told[id] = ack.Log.String()
		}
		return err
	}
	within(t, "the first order", func() error { return publish("eu", "before") })
	if err := l.Cut("eu-west", link.BlackHole, time.Hour); err != nil {
		t.Fatal(err)
	}
	if err := publish("eu", "caught"); api.CodeOf(err) != api.OutcomeUnknown {
		t.Fatalf("an order that the cut caught on its way: %v", err)
	}
	within(t, "the link goes down", func() error { return down(t.Context(), l, "us-east", "eu-west") })
	for i := range 20 {
		if err := publish("eu", fmt.Sprint("during-", i)); err != nil {
			t.Fatal(err)
		}
	}
	if err := publish("eu", "caught"); api.CodeOf(err) != api.HomeUnreachable {
		t.Errorf("a retry of what may be in eu-west: %v", err)
	}
	if err := publish("us", "american"); err != nil {
		t.Error(err)
	}
	l.Heal()
	if err := l.Linked(t.Context()); err != nil {
		t.Fatal(err)
	}
	within(t, "the first order after it healed", func() error { return publish("eu", "after") })
	within(t, "the retry", func() error { return publish("eu", "caught") })
	within(t, "a retry of what went round", func() error { return publish("eu", "during-0") })

	want := map[string]string{"before": "orders@eu-west", "caught": "orders@eu-west", "after": "orders@eu-west", "american": "orders@us-east"}
	for i := range 20 {
		want[fmt.Sprint("during-", i)] = "orders@eu-central"
	}
	stored := stored(t, l)
	for id, log := range want {
		if told[id] != log {
			t.Errorf("%s: acknowledged in %q, want %s", id, told[id], log)
		}
		for region, logs := range stored[id] {
			if region == "us-east" && id != "american" || len(logs) != 1 || logs[0] != log {
				t.Errorf("%s rests in %s in %v, want %s within the EU", id, region, logs, log)
			}
		}
	}
}

// stored stops the federation and reads its disks: id → region → logs, each once per
// record.
func stored(t *testing.T, l *lab.Lab) map[string]map[string][]string {
	t.Helper()
	if err := l.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	found := map[string]map[string][]string{}
	for _, r := range l.Regions() {
		for _, item := range shelved(t, l, r.Name) {
			if found[item.ID] == nil {
				found[item.ID] = map[string][]string{}
			}
			found[item.ID][r.Name] = append(found[item.ID][r.Name], item.Log)
		}
	}
	return found
}

func shelved(t *testing.T, l *lab.Lab, region string) []ledger.Item {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	shelves, err := lab.Shelves(ctx, l.Federation, region, l.Region(region).Data())
	if err != nil {
		t.Fatal(err)
	}
	return ledger.Items(shelves)
}
