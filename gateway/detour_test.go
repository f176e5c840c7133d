package gateway_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"domicile/api"
	"domicile/gateway"
	"domicile/policy"
	"domicile/regions"
)

const boundsManifest = `
version: 1
federation: example
regions:
  eu-west: {link: "a:1"}
  eu-central: {link: "b:1"}
  us-east: {link: "c:1"}
boundaries:
  eu: [eu-west, eu-central]
  us: [us-east]
topics:
  orders: {writes: local, route: within_boundary, mirror: [all], on_home_loss: {producers: refuse, consumers: {mode: wait}, owner: o, text: t}}
`

// within judges as the example does, for a boundary of two regions; deny names one that
// no record of the other boundary may rest in.
func within(f *regions.Federation, serial int64, deny string) (*policy.Generation, error) {
	catalog := &policy.Catalog{Serial: serial, Classes: []string{"app"},
		Dimensions: map[string][]string{"residency": {"eu", "us", "global"}, "class": {"order"}},
		Topics:     map[string]policy.CatalogTopic{"orders": {Allow: []map[string][]string{{"residency": {"eu", "us", "global"}, "class": {"order"}}}, Packages: []string{"x"}}},
	}
	judge := func(_ context.Context, q policy.Question) (policy.Verdict, error) {
		v := permitAll(f, q)
		if q.Point == policy.Admit && slices.Contains(q.Tags, api.Tag{Name: "residency", Value: "eu"}) {
			v.Destination = "eu-west"
			v.Regions = slices.DeleteFunc(slices.Clone(f.Regions()), func(r string) bool { return r == deny })
		}
		return v, nil
	}
	return policy.Build(context.Background(), catalog, f, strings.Repeat(string(rune('a'+serial)), 16), judge)
}

var boundsLoaded = sync.OnceValues(func() (l loaded, err error) {
	if l.federation, err = regions.ParseManifest("federation.yaml", []byte(boundsManifest)); err != nil {
		return l, err
	}
	if l.first, err = within(l.federation, 1, ""); err != nil {
		return l, err
	}
	l.next, err = within(l.federation, 2, "eu-central")
	return l, err
})

func boundsRig(t testing.TB) *rig {
	t.Helper()
	l, err := boundsLoaded()
	if err != nil {
		t.Fatal(err)
	}
	return newRigOn(t, l)
}

// named is an EU order with an id.
func named(id string) api.Record {
	r := order("eu")
	r.ID = id
	return r
}

func (r *rig) heads(t *testing.T, id string) map[string]uint64 {
	t.Helper()
	heads := map[string]uint64{}
	for name, g := range r.region {
		heads[name] = g.homes[logID(t, "orders@"+name)].Head().Sequence
	}
	return heads
}

func restsIn(t *testing.T, got api.Ack, err error, region string) {
	t.Helper()
	if err != nil || got.Region != region || got.Log.Slot != region || !got.Forwarded {
		t.Fatalf("want an ack of %s, got %+v, %v", region, got, err)
	}
}

func TestR14e_AnOrderGoesRoundWithinItsBoundary(t *testing.T) {
	r := boundsRig(t)
	us := r.region["us-east"]
	ack, err := r.publish("us-east", named("a"))
	restsIn(t, ack, err, "eu-west")
	us.links.set("eu-west", down)
	ack, err = r.publish("us-east", named("b"))
	restsIn(t, ack, err, "eu-central")
	if r.must("us-east", order("us")).Region != "us-east" || r.must("us-east", order("global")).Region != "us-east" {
		t.Error("what may rest here left")
	}
	if r.must("eu-west", named("c")).Region != "eu-west" {
		t.Error("a region that is cut off does not store its own")
	}
	us.links.set("eu-central", down)
	if _, err := r.publish("us-east", named("d")); api.CodeOf(err) != api.HomeUnreachable {
		t.Errorf("with the whole boundary cut off: %v", err)
	}
	us.links.set("eu-west", up)
	ack, err = r.publish("us-east", named("e"))
	restsIn(t, ack, err, "eu-west")
	if got, want := fmt.Sprint(r.heads(t, "")), "map[eu-central:1 eu-west:3 us-east:2]"; got != want {
		t.Errorf("the logs end at %s, want %s", got, want)
	}
}

func TestR14b_PolicyForbidsTheOtherRegion(t *testing.T) {
	r := boundsRig(t)
	for _, g := range r.region {
		if err := g.gate.Activate(context.Background(), r.policies.next); err != nil {
			t.Fatal(err)
		}
	}
	r.region["us-east"].links.set("eu-west", down)
	if _, err := r.publish("us-east", named("a")); api.CodeOf(err) != api.HomeUnreachable {
		t.Errorf("got %v", err)
	}
	if h := r.heads(t, ""); h["eu-central"] != 0 || h["us-east"] != 0 {
		t.Errorf("stored: %v", h)
	}
}

// TestR14b_TheOtherHomeJudgesAgain: a peer may send a record to another log of its
// boundary, and nowhere else.
func TestR14b_TheOtherHomeJudgesAgain(t *testing.T) {
	r := boundsRig(t)
	send := func(rec api.Record, log string) error {
		out := make(chan error, 1)
		r.region["eu-central"].Forwarded(context.Background(), "us-east", regions.Forward{Record: rec, Log: logID(t, log), Principal: client("us-east"),
			Deadline: time.Now().Add(wait)}, func(_ api.Ack, err error) { out <- err })
		return <-out
	}
	us := order("us")
	us.ID = "u"
	global := order("global")
	global.ID = "g"
	for _, c := range []struct {
		name string
		rec  api.Record
		log  string
		code api.Code
	}{
		{"an EU order", named("a"), "orders@eu-central", ""},
		{"an EU order for another home", named("b"), "orders@eu-west", api.HomeUnreachable},
		{"an EU order for a log outside", named("c"), "orders@us-east", api.PolicySkew},
		{"a US order", us, "orders@eu-central", api.PolicySkew},
		{"an order that may stay where it was published", global, "orders@eu-central", api.PolicySkew},
	} {
		if err := send(c.rec, c.log); api.CodeOf(err) != c.code {
			t.Errorf("%s: got %v, want %q", c.name, err, c.code)
		}
	}
	if h := r.heads(t, ""); h["eu-central"] != 1 {
		t.Errorf("stored: %v", h)
	}
}

// TestRA5_ARetryStaysOnItsFirstLog: what may be in a log already goes to no other one.
func TestRA5_ARetryStaysOnItsFirstLog(t *testing.T) {
	r := boundsRig(t)
	us := r.region["us-east"]
	unknownIn := func(id, log string, err error) {
		t.Helper()
		e, ok := err.(*api.Error)
		if !ok || e.Code != api.OutcomeUnknown || e.Log.String() != log {
			t.Fatalf("%s: want an unknown outcome in %s, got %v", id, log, err)
		}
	}
	us.links.set("eu-west", hole) // slow is not cut off
	_, err := r.publish("us-east", named("first"))
	unknownIn("first", "orders@eu-west", err)
	us.links.set("eu-west", down)
	if _, err := r.publish("us-east", named("first")); api.CodeOf(err) != api.HomeUnreachable {
		t.Errorf("a retry while its log is cut off: %v", err)
	}
	us.links.set("eu-central", hole)
	_, err = r.publish("us-east", named("second"))
	unknownIn("second", "orders@eu-central", err)
	us.links.set("eu-central", up)
	ack, err := r.publish("us-east", named("third"))
	restsIn(t, ack, err, "eu-central")

	us.links.set("eu-west", up)
	ack, err = r.publish("us-east", named("first"))
	restsIn(t, ack, err, "eu-west")
	ack, err = r.publish("us-east", named("second"))
	restsIn(t, ack, err, "eu-central")
	ack, err = r.publish("us-east", named("third")) // its ack may have got lost
	if restsIn(t, ack, err, "eu-central"); !ack.Duplicate {
		t.Error("the same id was stored again")
	}
}

// TestRA5_ARetryThatNamesItsLogOutlivesTheGateway: a gateway that knows nothing goes by
// what the producer says.
func TestRA5_ARetryThatNamesItsLogOutlivesTheGateway(t *testing.T) {
	r := boundsRig(t)
	us := r.region["us-east"]
	again := func(id, log string) api.Record {
		rec := named(id)
		rec.Retry.Again = true
		if log != "" {
			rec.Retry.Log = logID(t, log)
		}
		return rec
	}
	ack, err := r.publish("us-east", again("a", "orders@eu-central"))
	restsIn(t, ack, err, "eu-central")
	us.links.set("eu-west", down)
	for _, rec := range []api.Record{again("b", "orders@eu-west"), again("c", "")} {
		if _, err := r.publish("us-east", rec); api.CodeOf(err) != api.HomeUnreachable {
			t.Errorf("%s: an earlier try may be in eu-west, got %v", rec.ID, err)
		}
	}
	if _, err := r.publish("us-east", again("d", "orders@us-east")); api.CodeOf(err) != api.HomeOutsideBoundary {
		t.Errorf("a log that may not keep it: %v", err)
	}
}

// hazard is links that do with a record what a test draws.
type hazard struct {
	*links
	cut     map[string]bool
	arrives bool // of the next record
	stored  map[string][]string
	pending []pendingForward
}

type pendingForward struct {
	f       regions.Forward
	peer    string
	arrived bool
	done    func(api.Ack, error)
}

func (h *hazard) Status(peer string) (regions.LinkStatus, bool) {
	s, ok := h.links.Status(peer)
	s.Up = !h.cut[peer]
	return s, ok
}

func (h *hazard) Forward(peer string, f regions.Forward, done func(api.Ack, error)) {
	if h.arrives && !slices.Contains(h.stored[f.Record.ID], f.Log.Slot) {
		h.stored[f.Record.ID] = append(h.stored[f.Record.ID], f.Log.Slot)
	}
	h.pending = append(h.pending, pendingForward{f, peer, h.arrives, done})
}

// TestRA5_OneLogPerID: whatever links and outcomes do, a record that is sent again until
// it is acknowledged is never stored in two logs.
func TestRA5_OneLogPerID(t *testing.T) {
	l, err := boundsLoaded()
	if err != nil {
		t.Fatal(err)
	}
	gate := policy.NewGate(l.federation, "us-east", policy.Hooks{})
	if err := gate.Activate(context.Background(), l.first); err != nil {
		t.Fatal(err)
	}
	hello := (&rig{}).hello(l.federation)
	rapid.Check(t, func(t *rapid.T) {
		h := &hazard{links: &links{self: "us-east", mode: map[string]mode{}, hello: hello}, cut: map[string]bool{}, stored: map[string][]string{}}
		g, err := gateway.New(gateway.Config{Self: "us-east", Federation: l.federation, Placement: l.federation, Gate: gate, Links: h,
			Clock: regions.NewSteadyClock(), Pace: 1})
		if err != nil {
			t.Fatal(err)
		}
		acked := map[string]bool{}
		publish := func(t *rapid.T) {
			id := rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "id")
			if acked[id] {
				t.Skip("done")
			}
			h.arrives = rapid.Bool().Draw(t, "arrives")
			g.Publish(context.Background(), named(id), client("us-east"), nil, func(_ api.Ack, err error) { acked[id] = acked[id] || err == nil })
		}
		settle := func(t *rapid.T) {
			if len(h.pending) == 0 {
				t.Skip("nothing is on its way")
			}
			i := rapid.IntRange(0, len(h.pending)-1).Draw(t, "which")
			p := h.pending[i]
			h.pending = slices.Delete(h.pending, i, i+1)
			switch told := rapid.Bool().Draw(t, "told"); {
			case !told:
				p.done(api.Ack{}, &api.Error{Code: api.OutcomeUnknown})
			case p.arrived:
				p.done(api.Ack{ID: p.f.Record.ID, Log: p.f.Log, Region: p.peer, Incarnation: "i", Sequence: 1, Durability: api.Disk1}, nil)
			default:
				p.done(api.Ack{}, &api.Error{Code: api.Overloaded})
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"publish": publish, "publish again": publish, "settle": settle,
			"link": func(t *rapid.T) {
				h.cut[rapid.SampledFrom([]string{"eu-west", "eu-central"}).Draw(t, "peer")] = rapid.Bool().Draw(t, "cut")
			},
			"": func(t *rapid.T) {
				for id, logs := range h.stored {
					if len(logs) > 1 {
						t.Fatalf("%s is stored in %v", id, logs)
					}
				}
			},
		})
	})
}
