package opa_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"domicile/api"
	"domicile/policy/opa"
	"domicile/regions"
)

// boundaries is the map of the scripts below: two regions in one boundary, one in another,
// one in none. RULE stands for the rule of failover.
const boundaries = `
version: 1
federation: small
regions: {eu-west: {link: "a:1"}, eu-central: {link: "b:1"}, us-east: {link: "c:1"}, sea: {link: "d:1"}}
boundaries: {eu: [eu-west, eu-central], us: [us-east]}
authority: {voters: [eu-west, eu-central, us-east]}
topics:
  orders: {writes: local, WRITES mirror: [all], ORDERS LOSS}
  catalog.updates: {writes: home, home: eu-west, mirror: [all], UPDATES LOSS}
`

// TestR14e_WhereALogMayMove: the policy, as it is written in Rego, and the map decide which
// region may take a log: whether all of it may rest there. A rule that says otherwise is
// refused when it is loaded.
func TestR14e_WhereALogMayMove(t *testing.T) {
	if testing.Short() {
		t.Skip("loads one policy after the other: not with -short")
	}
	datadriven.Walk(t, "testdata/moves", func(t *testing.T, path string) {
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			dir, _ := small(t)
			change(t, dir, "-- tests/orders_test.rego --\n"+d.Input)
			f := boundariesWith(t, d)
			p, err := opa.Load(context.Background(), dir, f)
			if err != nil {
				return loadError(t, err)
			}
			if d.Cmd == "load" {
				return "loaded"
			}
			return whereMay(t, d, f, p)
		})
	})
}

func boundariesWith(t *testing.T, d *datadriven.TestData) *regions.Federation {
	t.Helper()
	rule := map[string]string{}
	for _, topic := range []string{"orders", "updates", "writes"} {
		if text := argument(t, d, topic); text != "" {
			rule[topic] = text
		}
	}
	for topic, targets := range rule {
		if topic != "writes" {
			rule[topic] = "failover: {mode: manual, rpo: 5s, rto: 1m, targets: [" + targets + "]},"
		}
	}
	text := strings.NewReplacer("WRITES", rule["writes"], "ORDERS", rule["orders"], "UPDATES", rule["updates"],
		"LOSS", "on_home_loss: {producers: refuse, consumers: {mode: wait}, owner: o, text: t}").Replace(boundaries)
	f, err := regions.ParseManifest("federation.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// argument is a named value of a script's line, its parts joined by commas again.
func argument(t *testing.T, d *datadriven.TestData, name string) string {
	t.Helper()
	for _, a := range d.CmdArgs {
		if a.Key == name {
			return strings.Join(a.Vals, ",")
		}
	}
	return ""
}

func whereMay(t *testing.T, d *datadriven.TestData, f *regions.Federation, p *opa.Policy) string {
	t.Helper()
	topic, slot, _ := strings.Cut(argument(t, d, "log"), "@")
	log := api.LogID{Tenant: api.DefaultTenant, Topic: topic, Slot: slot}
	home := argument(t, d, "home")
	if home == "" {
		home, _ = f.FirstHome(log)
	}
	var stored []string
	for _, text := range strings.Split(argument(t, d, "stored"), ";") {
		if text != "" {
			stored = append(stored, strings.ReplaceAll(text, ":", "="))
		}
	}
	var b strings.Builder
	for _, region := range append(f.Regions(), "mars") {
		if err := p.Generation.MayHold(f, log, home, region, stored); err != nil {
			e := err.(*api.Error)
			fmt.Fprintf(&b, "%s: %s %s %s\n", region, e.Code, e.Value, e.Hint)
		} else {
			fmt.Fprintf(&b, "%s: may hold it\n", region)
		}
	}
	return b.String()
}
