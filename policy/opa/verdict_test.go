package opa_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"domicile/api"
	"domicile/policy"
	"domicile/regions"
)

// The scripts ask the example policies through a region's gate, as the data path
// does. Tags are the lines of a question; the verdict with its code stands beside it.
func TestR14b_Verdicts(t *testing.T) {
	f := manifest(t)
	p := loaded(t)
	gates := map[string]*policy.Gate{}
	for _, region := range f.Regions() {
		gates[region] = policy.NewGate(f, region, policy.Hooks{})
		if err := gates[region].Activate(context.Background(), p.Generation); err != nil {
			t.Fatal(err)
		}
	}
	datadriven.Walk(t, "testdata/verdicts", func(t *testing.T, path string) {
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			return ask(t, gates, p.Generation.Revision, d)
		})
	})
}

func ask(t *testing.T, gates map[string]*policy.Gate, revision string, d *datadriven.TestData) string {
	var at, topic, class, place, origin, target string
	d.ScanArgs(t, "at", &at)
	d.ScanArgs(t, "topic", &topic)
	for name, value := range map[string]*string{"class": &class, "place": &place, "origin": &origin, "target": &target} {
		d.MaybeScanArgs(t, name, value)
	}
	who := regions.Principal{Name: "someone", Kind: "client", Class: class, Place: place}
	r := api.Record{ID: "secret-id", Key: "secret-key", Topic: topic, Body: []byte("secret-body")}
	for line := range strings.Lines(d.Input) {
		name, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "=")
		r.Tags = append(r.Tags, api.Tag{Name: name, Value: strings.ReplaceAll(value, "␠", " ")})
	}
	pass := gates[at].Enter()
	defer pass.Leave()
	var err error
	answer := "allow"
	switch d.Cmd {
	case "admit":
		var a policy.Admission
		if a, err = pass.Admit(&r, who, origin); err == nil {
			answer = fmt.Sprintf("allow regions=%s destination=%s", strings.Join(a.Regions, ","), a.Destination)
		}
	case "transit":
		err = pass.Transit(&r, who)
	case "egress":
		err = pass.Egress(&r, origin, target)
	case "ingress":
		err = pass.Ingress(&r, origin, target)
	case "consume":
		err = pass.Consume(&r, who, origin)
	default:
		t.Fatalf("%s: unknown command %s", d.Pos, d.Cmd)
	}
	if err == nil {
		return answer
	}
	return refusalText(t, d, err, revision)
}

func refusalText(t *testing.T, d *datadriven.TestData, err error, revision string) string {
	var e *api.Error
	if !errors.As(err, &e) {
		t.Fatalf("%s: %v is no *api.Error", d.Pos, err)
	}
	if strings.Contains(err.Error(), "secret") {
		t.Errorf("%s: the refusal holds something of the record: %v", d.Pos, err)
	}
	if e.Revision != "" && e.Revision != revision {
		t.Errorf("%s: revision %q, want %q", d.Pos, e.Revision, revision)
	}
	out := string(e.Code)
	if e.Field != "" {
		out += " field=" + e.Field
	}
	return out + "\n" + e.Hint
}
