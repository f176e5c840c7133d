package gateway_test

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	"domicile/api"
	"domicile/gateway"
	"domicile/regions"
)

// forwarded hands a record to eu-west as if us-east had sent it.
func forwarded(t *testing.T, r *rig, change func(*regions.Forward)) (api.Ack, error) {
	t.Helper()
	f := regions.Forward{Record: order("eu"), Log: logID(t, "orders@eu-west"), Principal: client("us-east"), Deadline: time.Now().Add(wait)}
	f.Record.ID = "x"
	change(&f)
	out := make(chan outcome, 1)
	r.region["eu-west"].Forwarded(context.Background(), "us-east", f, func(a api.Ack, err error) { out <- outcome{a, err} })
	select {
	case o := <-out:
		return o.ack, o.err
	case <-time.After(wait):
		t.Fatal("no outcome")
		return api.Ack{}, nil
	}
}

// TestR14b_TheHomeJudgesAgain: a peer's word is good for who published in the peer's
// own region, and for nothing else.
func TestR14b_TheHomeJudgesAgain(t *testing.T) {
	r := newRig(t)
	if _, err := forwarded(t, r, func(*regions.Forward) {}); err != nil {
		t.Fatalf("a good record: %v", err)
	}
	for _, c := range []struct {
		name   string
		change func(*regions.Forward)
		code   api.Code
	}{
		{"a principal of another region", func(f *regions.Forward) { f.Principal.Place = "eu-west" }, api.PermissionDenied},
		{"an operator", func(f *regions.Forward) { f.Principal.Kind = "operator" }, api.PermissionDenied},
		{"a region as principal", func(f *regions.Forward) { f.Principal.Kind = "region" }, api.PermissionDenied},
		{"a class that is none", func(f *regions.Forward) { f.Principal.Class = "root" }, api.ResidencyDenied},
		{"a record that belongs to us-east", func(f *regions.Forward) { f.Record.Tags = order("us").Tags }, api.PolicySkew},
		{"a log of another region", func(f *regions.Forward) { f.Log = logID(t, "orders@us-east") }, api.PolicySkew},
		{"a log that is none", func(f *regions.Forward) { f.Log.Slot = "mars" }, api.PolicySkew},
		{"a topic that is none", func(f *regions.Forward) { f.Record.Topic = "nothing" }, api.UnknownTopic},
		{"a record for ap-south", func(f *regions.Forward) {
			f.Record.Tags, f.Log = order("in").Tags, logID(t, "orders@ap-south")
		}, api.HomeUnreachable},
		{"no id", func(f *regions.Forward) { f.Record.ID = "" }, api.BadID},
		{"a body over the cap", func(f *regions.Forward) { f.Record.Body = make([]byte, api.MaxBody+1) }, api.BodyTooLarge},
		{"odd tags", func(f *regions.Forward) { f.Record.Tags[1].Value = "EU" }, api.UnknownTag},
	} {
		before := r.region["eu-west"].homes[logID(t, "orders@eu-west")].Head().Sequence
		if _, err := forwarded(t, r, c.change); api.CodeOf(err) != c.code {
			t.Errorf("%s: got %v, want %s", c.name, err, c.code)
		}
		if after := r.region["eu-west"].homes[logID(t, "orders@eu-west")].Head().Sequence; after != before {
			t.Errorf("%s: something was stored", c.name)
		}
	}
}

// A record that may not pass through the region that sends it has been there already: nothing is
// stored. Under the policy that both have it speaks against that region, under another it waits.
func TestFA5_WhatMayNotHavePassedThroughIsNotStored(t *testing.T) {
	r := newRig(t)
	home := r.region["eu-west"]
	for revision, code := range map[string]api.Code{home.gate.Current().Revision: api.TransitDenied, "0-older": api.PolicySkew} {
		_, err := forwarded(t, r, func(f *regions.Forward) {
			f.Record, f.Log = health("eu"), logID(t, "health.records@eu-west")
			f.Record.ID, f.Serial, f.Revision = "x", home.gate.Current().Serial, revision
		})
		if api.CodeOf(err) != code {
			t.Errorf("judged under %s: %v, want %s", revision, err, code)
		}
	}
	if n := home.homes[logID(t, "health.records@eu-west")].Head().Sequence; n != 0 {
		t.Errorf("%d records were stored", n)
	}
}

func TestR14b_AStrangerForwardsNothing(t *testing.T) {
	r := newRig(t)
	out := make(chan error, 1)
	f := regions.Forward{Record: order("eu"), Log: logID(t, "orders@eu-west"), Principal: client("eu-west"), Deadline: time.Now().Add(wait)}
	f.Record.ID = "x"
	r.region["eu-west"].Forwarded(context.Background(), "eu-west", f, func(_ api.Ack, err error) { out <- err })
	if err := <-out; api.CodeOf(err) != api.PermissionDenied {
		t.Errorf("got %v", err)
	}
}

// other is the example manifest with one change.
func other(t *testing.T, from, to string) *regions.Federation {
	t.Helper()
	manifest, err := os.ReadFile("../deploy/federation.yaml")
	if err != nil {
		t.Fatal(err)
	}
	changed := strings.Replace(string(manifest), from, to, 1)
	if changed == string(manifest) {
		t.Fatalf("the manifest has no %q", from)
	}
	f, err := regions.ParseManifest("federation.yaml", []byte(changed))
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func TestManifestsThatDifferForwardNothing(t *testing.T) {
	r := newRig(t)
	us := r.region["us-east"]
	us.links.hello = r.hello(other(t, "max_age: 168h", "max_age: 24h"))
	_, err := r.publish("us-east", order("eu"))
	var e *api.Error
	if !errors.As(err, &e) || e.Code != api.ManifestMismatch || e.Field != "topics.orders.retention.max_age" || !strings.Contains(e.Value, "24h") {
		t.Errorf("got %v", err)
	}
	r.must("us-east", order("us"))
	r.must("us-east", catalogue())

	us.links.hello = nil
	if _, err := r.publish("us-east", order("eu")); api.CodeOf(err) != api.HomeUnreachable {
		t.Errorf("a manifest that is not known: %v", err)
	}
	us.links.hello = &regions.Hello{}
	if _, err := r.publish("us-east", order("eu")); api.CodeOf(err) != api.ManifestMismatch {
		t.Errorf("a topic that is not declared there: %v", err)
	}

	us.links.hello = r.hello(r.federation)
	r.region["eu-west"].links.hello = r.hello(other(t, "max_age: 168h", "max_age: 24h"))
	if _, err := r.publish("us-east", order("eu")); api.CodeOf(err) != api.ManifestMismatch {
		t.Errorf("the home does not look: %v", err)
	}
}

// lying answers with the ack of another record.
type lying struct{ *links }

func (l lying) Forward(peer string, f regions.Forward, done func(api.Ack, error)) {
	f.Record.ID += "-other"
	l.links.Forward(peer, f, done)
}

func TestRA1_AnAckThatDoesNotFitIsNoAck(t *testing.T) {
	r := newRig(t)
	us := r.region["us-east"]
	us.Config.Links = lying{us.links}
	if _, err := r.publish("us-east", order("eu")); api.CodeOf(err) != api.OutcomeUnknown {
		t.Errorf("got %v", err)
	}
}

// An ack of another region's that can't be so is not believed: nobody knows what became of the
// record, and it counts against the region, unless that goes by another manifest.
func TestFA_AnAckThatCanNotBeSoIsNotBelieved(t *testing.T) {
	refused := regions.NewPeerRefusals(regions.NewSteadyClock(), slog.New(slog.DiscardHandler))
	r := newRig(t, func(c *gateway.Config) { c.Refused = refused })
	us := r.region["us-east"]
	if ack := r.must("us-east", order("eu")); ack.Region != "eu-west" || ack.Durability != api.Disk1 || ack.Position == "" {
		t.Fatalf("an honest ack: %+v", ack)
	}
	lie := func(field string, change func(*api.Ack)) {
		t.Helper()
		us.links.lie = change
		_, err := r.publish("us-east", order("eu"))
		var e *api.Error
		if !errors.As(err, &e) || e.Code != api.OutcomeUnknown || e.Field != field || e.Log != logID(t, "orders@eu-west") {
			t.Errorf("%s: %v", field, err)
		}
	}
	lies := map[string][]func(*api.Ack){
		"ack.id":              {func(a *api.Ack) { a.ID = "another" }},
		"ack.log":             {func(a *api.Ack) { a.Log.Slot = "us-east" }},
		"ack.region":          {func(a *api.Ack) { a.Region = "us-east" }},
		"ack.sequence":        {func(a *api.Ack) { a.Sequence = 0 }},
		"ack.incarnation":     {func(a *api.Ack) { a.Incarnation = "" }, func(a *api.Ack) { a.Incarnation = "a b" }, func(a *api.Ack) { a.Incarnation = strings.Repeat("i", 200) }},
		"ack.epoch":           {func(a *api.Ack) { a.Epoch.Issuer = "a b" }},
		"ack.policy_revision": {func(a *api.Ack) { a.PolicyRevision = "a b" }},
		"ack.durability":      {func(a *api.Ack) { a.Durability = api.Disk2of3 }, func(a *api.Ack) { a.Durability = api.OS1 }, func(a *api.Ack) { a.Durability = "moon" }},
		"ack.copies":          {func(a *api.Ack) { a.Copies = []string{"us-east"} }},
		"ack.position":        {func(a *api.Ack) { a.Position = "p1.x" }, func(a *api.Ack) { a.Sequence++ }},
	}
	n := uint64(0)
	for field, changes := range lies {
		for _, change := range changes {
			lie(field, change)
			n++
		}
	}
	if got := refused.Totals(); len(got) != 1 || got[0].Count != n || got[0].Peer != "eu-west" || got[0].Lane != regions.LaneForward || got[0].Reason != regions.Impossible {
		t.Errorf("%d lies, counted %+v", n, got)
	}
	us.links.hello = r.hello(r.federation)
	us.links.hello.ManifestDigest = "another"
	lie("ack.durability", func(a *api.Ack) { a.Durability = api.Disk2of3 })
	if got := refused.Totals(); got[0].Count != n {
		t.Errorf("counted though the manifests differ: %+v", got)
	}
	us.links.lie = nil
	r.must("us-east", order("eu"))
}

// Tags that no admission lets through are no honest region's.
func TestFA_TagsThatNoDoorLetsThroughCount(t *testing.T) {
	refused := regions.NewPeerRefusals(regions.NewSteadyClock(), slog.New(slog.DiscardHandler))
	r := newRig(t, func(c *gateway.Config) { c.Refused = refused })
	for i, tags := range [][]api.Tag{{{Name: "a", Value: "x"}, {Name: "a", Value: "y"}}, make([]api.Tag, 10_000)} {
		if _, err := forwarded(t, r, func(f *regions.Forward) { f.Record.Tags = append(f.Record.Tags, tags...) }); api.CodeOf(err) != api.BadTag {
			t.Errorf("%d: %v", i, err)
		}
		if got := refused.Totals(); len(got) != 1 || got[0].Count != uint64(i+1) || got[0].Reason != regions.Malformed {
			t.Errorf("%d: counted %+v", i, got)
		}
	}
}
