package regions_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"domicile/regions"
)

// TestPlanChange runs the stories in testdata/change: two manifests that differ, and
// what a region does about it or why it refuses. "same" is what both have in front.
func TestPlanChange(t *testing.T) {
	datadriven.Walk(t, "testdata/change", func(t *testing.T, path string) {
		same := ""
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			if d.Cmd == "same" {
				same = d.Input
				return ""
			}
			before, after, ok := strings.Cut(d.Input, "=>")
			if !ok {
				t.Fatal("write before => after")
			}
			parse := func(part string) *regions.Federation {
				text := strings.ReplaceAll(strings.TrimSpace(part), "LOSS", "on_home_loss: {producers: refuse, consumers: {mode: wait}, owner: o, text: t}")
				f, err := regions.ParseManifest("federation.yaml", []byte(same+"\n"+text))
				if err != nil {
					t.Fatal(d.Pos, err)
				}
				return f
			}
			var self string
			d.ScanArgs(t, "self", &self)
			plan, err := regions.PlanChange(parse(before), parse(after), self)
			if err != nil {
				return describeError(t, err)
			}
			return describePlan(plan)
		})
	})
}

func describePlan(p regions.Plan) string {
	var b strings.Builder
	for _, c := range p.Topics {
		fmt.Fprintf(&b, "%s %s\n", c.Do, c.Topic)
		for _, f := range c.Fields {
			fmt.Fprintf(&b, "  %s\n", f)
		}
	}
	for _, s := range p.Logs {
		fmt.Fprintf(&b, "log %s: %s as %s\n", s.Log, s.Do, s.Role)
	}
	for _, id := range p.Shortened {
		fmt.Fprintf(&b, "shortened %s\n", id)
	}
	if b.Len() == 0 {
		return "nothing\n"
	}
	return b.String()
}
