package gateway_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"domicile/api"
	"domicile/gateway"
	"domicile/policy"
	"domicile/regions"
)

// TestR14b_Route reads testdata/route: a manifest, then questions with the answer
// under each.
func TestR14b_Route(t *testing.T) {
	var f *regions.Federation
	datadriven.RunTest(t, "testdata/route", func(t *testing.T, d *datadriven.TestData) string {
		if d.Cmd == "manifest" {
			var err error
			if f, err = regions.ParseManifest("federation.yaml", []byte(d.Input)); err != nil {
				t.Fatal(err)
			}
			return "ok"
		}
		var topic, origin, destination string
		d.ScanArgs(t, "topic", &topic)
		d.ScanArgs(t, "at", &origin)
		d.MaybeScanArgs(t, "destination", &destination)
		adm := policy.Admission{Destination: destination, Revision: "1-test"}
		for _, a := range d.CmdArgs {
			if a.Key == "rest" {
				adm.Regions = a.Vals
			}
		}
		var placement regions.Placement = f
		if d.HasArg("moved") {
			var to string
			d.ScanArgs(t, "moved", &to)
			placement = moved{f, api.LogID{Tenant: api.DefaultTenant, Topic: topic, Slot: destination}, to}
		}
		declared, _ := f.Topic(topic)
		route, err := gateway.FindRoute(declared, placement, adm, origin)
		if err != nil {
			return strings.TrimSpace(err.Error())
		}
		text := fmt.Sprintf("%s home=%s epoch=%s", route.Log, route.Home, route.Epoch)
		for _, r := range gateway.FindDetours(declared, f, placement, adm, route) {
			text += fmt.Sprintf("\nelse %s home=%s", r.Log, r.Home)
		}
		return text
	})
}
