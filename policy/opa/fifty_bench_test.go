package opa_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"domicile/policy/bundle"
	"domicile/policy/opa"
	"domicile/regions"
)

// fifty is a policy of so many packages, each with a topic, rules and tests of its own, for
// three regions.
func fifty(n int) (manifest string, files map[string][]byte) {
	var topics, allow strings.Builder
	files = map[string][]byte{}
	for i := range n {
		name := fmt.Sprintf("topic%02d", i)
		fmt.Fprintf(&topics, "  %s: {writes: local, mirror: [all], on_home_loss: {producers: refuse, consumers: {mode: wait}, owner: o, text: t}}\n", name)
		fmt.Fprintf(&allow, "  %s: {allow: [{residency: [eu, us, global]}], packages: [%s]}\n", name, name)
		files["rules/"+name+".rego"] = fmt.Appendf(nil, `package residency.rules.%[1]s

permit contains {
	"rule": "in_boundary",
	"text": "it rests, moves and is read inside its boundary",
	"regions": data.federation.boundaries[input.tags.residency],
} if {
	input.point in {"admit", "mirror_egress", "mirror_ingress", "consume"}
	input.tags.residency in {"eu", "us"}
}

permit contains {"rule": "everywhere", "text": "what is global may be everywhere", "regions": data.federation.regions} if input.tags.residency == "global"

permit contains {"rule": "in_transit", "text": "it may pass through", "regions": {"us-east"}} if {
	input.point == "transit"
	input.tags.residency == "eu"
}

forbid contains {"rule": "not_by_operators", "text": "operators read nothing abroad"} if {
	input.point == "consume"
	input.principal.class == "operator"
	input.principal.boundary != input.target.boundary
}

destination contains "eu-west" if input.tags.residency == "eu"

destination contains "us-east" if input.tags.residency == "us"
`, name)
		files["tests/"+name+"_test.rego"] = fmt.Appendf(nil, `package residency.tests.%[1]s

import data.domicile.kernel.decision
import data.domicile.question

test_it_rests_inside if {
	d := decision with input as question.admit("%[1]s", {"residency": "eu"}, {"class": "app", "place": "us-east"}, "us-east")
	d.allow
	d.regions == {"eu-west", "eu-central"}
}

test_it_does_not_leave if {
	d := decision with input as question.mirror_egress("%[1]s", {"residency": "eu"}, "eu-west", "us-east")
	not d.allow
}
`, name)
	}
	files["catalog.yaml"] = []byte("serial: 1\ndimensions: {residency: [eu, us, global]}\nprincipal_classes: [app, operator]\ntopics:\n" + allow.String())
	return `version: 1
federation: fifty
regions: {eu-west: {link: "127.0.0.1:1"}, eu-central: {link: "127.0.0.1:2"}, us-east: {link: "127.0.0.1:3"}}
boundaries: {eu: [eu-west, eu-central], us: [us-east]}
topics:
` + topics.String(), files
}

// BenchmarkActivateFiftyPackages is all that lies between a signed bundle's bytes and the
// flip: read, verify, compile, judge the domain, run the tests.
func BenchmarkActivateFiftyPackages(b *testing.B) {
	text, files := fifty(50)
	f, err := regions.ParseManifest("federation.yaml", []byte(text))
	if err != nil {
		b.Fatal(err)
	}
	anna, err := bundle.NewSigner("anna")
	if err != nil {
		b.Fatal(err)
	}
	public, err := anna.Public()
	if err != nil {
		b.Fatal(err)
	}
	trust := bundle.Trust{Keys: []bundle.Key{{ID: "anna", Role: "legal", Public: public}}, Need: []bundle.Need{{Role: "legal", Count: 1}}}
	now := time.Now()
	signed, err := bundle.Build(bundle.Manifest{Federation: "fifty", Serial: 1, ValidFrom: now, ValidUntil: now.Add(bundle.MaxValidity), MinEngine: opa.Engine()}, files)
	if err == nil {
		err = signed.Sign(anna)
	}
	if err != nil {
		b.Fatal(err)
	}
	data := signed.Bytes()
	began := cpuSeconds(b)
	for b.Loop() {
		got, err := bundle.Read(data)
		if err != nil {
			b.Fatal(err)
		}
		a, err := got.Approvals(trust)
		if err == nil {
			err = a.Enough()
		}
		if err != nil {
			b.Fatal(err)
		}
		p, err := opa.LoadFiles(context.Background(), got.Files, opa.Moment{Serial: 1}, f)
		if err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(float64(p.Report.Cells), "cells")
		b.ReportMetric(float64(p.Report.Cells)/p.Report.Took.Seconds(), "cells/s")
		b.ReportMetric(float64(p.Report.Tests), "tests")
	}
	b.ReportMetric((cpuSeconds(b)-began)/float64(b.N), "cpu-s/op")
}

// cpuSeconds is the processor time of this process: what a busy machine makes of it is
// another thing.
func cpuSeconds(b *testing.B) float64 {
	var used unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &used); err != nil {
		b.Fatal(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano()).Seconds()
}
