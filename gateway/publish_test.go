package gateway_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"domicile/api"
	"domicile/gateway"
	"domicile/regions"
)

func TestRA1_AckNamesTheDiskThatHasTheRecord(t *testing.T) {
	r := newRig(t)
	for _, c := range []struct {
		at        string
		record    api.Record
		log, home string
	}{
		{"us-east", order("us"), "orders@us-east", "us-east"},
		{"us-east", order("global"), "orders@us-east", "us-east"},
		{"us-east", order("eu"), "orders@eu-west", "eu-west"},
		{"ap-south", order("eu"), "orders@eu-west", "eu-west"},
		{"us-east", order("eu"), "orders@eu-west", "eu-west"},
		{"us-east", catalogue(), "catalog.updates@home", "eu-west"},
		{"eu-west", health("eu"), "health.records@eu-west", "eu-west"},
	} {
		a := r.must(c.at, c.record)
		if a.Log.String() != c.log || a.Region != c.home || a.Forwarded != (c.at != c.home) || a.Durability != api.Disk1 || !a.IDMade || a.ID == "" {
			t.Errorf("%s at %s: %+v", c.record.Topic, c.at, a)
		}
		log := r.region[c.home].homes[a.Log]
		if h := log.Head(); h.Sequence < a.Sequence || h.Incarnation != a.Incarnation {
			t.Errorf("the ack of %s is ahead of its disk: %+v, %+v", a.Log, a, h)
		}
		if cursors, err := api.DecodePosition(a.Position); err != nil || len(cursors) != 1 || cursors[0].Sequence != a.Sequence {
			t.Errorf("position: %v %v", cursors, err)
		}
	}
}

// guard is a log that no record of another residency may touch.
type guard struct {
	regions.HomeLog
	allowed func(residency string) bool
	bad     func(format string, args ...any)
}

func (g guard) Append(d regions.Draft, done func(regions.Stored)) {
	if residency := d.Record.Tag("residency"); !g.allowed(residency) {
		g.bad("a record of residency %s reached %s", residency, g.ID())
	}
	g.HomeLog.Append(d, done)
}

// TestR14b_ResidentRecordsReachTheirOwnLogsOnly publishes everything everywhere, with
// links that come and go, into stores that refuse what may not rest there.
func TestR14b_ResidentRecordsReachTheirOwnLogsOnly(t *testing.T) {
	r := newRig(t)
	for name, g := range r.region {
		for id, l := range g.homes {
			g.homes[id] = guard{l, func(residency string) bool { return r.federation.MayRest(residency, name) }, t.Errorf}
		}
	}
	random := rand.New(rand.NewPCG(1, 2))
	r.permitTransit()
	names := r.federation.Regions()
	var open sync.WaitGroup
	acked := 0
	var mu sync.Mutex
	for i := range 600 {
		if i%50 == 0 {
			a, b := names[random.IntN(3)], names[random.IntN(3)]
			m := mode(random.IntN(2))
			r.region[a].links.set(b, m)
			r.region[b].links.set(a, m)
		}
		residency := []string{"eu", "us", "in", "global"}[random.IntN(4)]
		rec := []api.Record{order(residency), catalogue(), health(residency)}[random.IntN(3)]
		rec.Body = fmt.Appendf(nil, "body %d", i)
		at := names[random.IntN(3)]
		open.Add(1)
		r.region[at].Publish(context.Background(), rec, client(at), nil, func(a api.Ack, err error) {
			defer open.Done()
			if err == nil && !r.federation.MayRest(rec.Tag("residency"), a.Region) {
				t.Errorf("%s acked in %s", rec.Tag("residency"), a.Region)
			}
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				acked++
			}
		})
	}
	open.Wait()
	if acked < 200 {
		t.Errorf("only %d acked: the test proves little", acked)
	}
}

func TestR14a_ARegionWorksAlone(t *testing.T) {
	r := newRig(t)
	us := r.region["us-east"]
	us.links.set("eu-west", down)
	us.links.set("ap-south", down)
	for range 20 {
		r.must("us-east", order("us"))
		r.must("us-east", order("global"))
	}
	for _, rec := range []api.Record{order("eu"), catalogue()} {
		start := time.Now()
		_, err := r.publish("us-east", rec)
		var e *api.Error
		if !errors.As(err, &e) || e.Code != api.HomeUnreachable || e.Region != "eu-west" || e.For < 50*time.Second || e.RetryAfter == 0 {
			t.Fatalf("got %+v", err)
		}
		if topic, _ := r.federation.Topic(rec.Topic); !strings.Contains(e.Hint, topic.OnHomeLoss.Text) || !strings.Contains(e.Hint, topic.OnHomeLoss.Owner) {
			t.Errorf("the hint leaves out what the topic says: %s", e.Hint)
		}
		if time.Since(start) > 2*time.Second {
			t.Error("a refusal took its time")
		}
	}
}

// TestRT3_ABlackHoleDelaysNoOtherHome: records for a region that never answers are
// bounded, and take nothing from the others.
func TestRT3_ABlackHoleDelaysNoOtherHome(t *testing.T) {
	r := newRig(t)
	r.permitTransit()
	us := r.region["us-east"]
	us.links.set("eu-west", hole)
	var stuck sync.WaitGroup
	codes := map[api.Code]int{}
	var mu sync.Mutex
	for range 10 * holeRoom {
		stuck.Add(1)
		us.Publish(context.Background(), order("eu"), client("us-east"), nil, func(_ api.Ack, err error) {
			mu.Lock()
			codes[api.CodeOf(err)]++
			mu.Unlock()
			stuck.Done()
		})
	}
	start := time.Now()
	for range 50 {
		r.must("us-east", order("in"))
		r.must("us-east", order("us"))
	}
	if took := time.Since(start); took > 2*time.Second {
		t.Errorf("100 records for other homes took %v", took)
	}
	stuck.Wait()
	if codes[api.OutcomeUnknown] != holeRoom || codes[api.Overloaded] != 9*holeRoom {
		t.Errorf("outcomes %v", codes)
	}
}

func TestRA5_RetryAfterUnknownIsOneRecord(t *testing.T) {
	r := newRig(t)
	us := r.region["us-east"]
	rec := order("eu")
	rec.ID = "order-1"
	us.links.set("eu-west", hole)
	if _, err := r.publish("us-east", rec); api.CodeOf(err) != api.OutcomeUnknown {
		t.Fatalf("got %v", err)
	}
	us.links.set("eu-west", up)
	first := r.must("us-east", rec)
	again := r.must("us-east", rec)
	if first.Duplicate || !again.Duplicate || again.Sequence != first.Sequence || again.Position != first.Position || again.IDMade {
		t.Errorf("first %+v, again %+v", first, again)
	}
	rec.Body = []byte("another body")
	if _, err := r.publish("us-east", rec); api.CodeOf(err) != api.IDReused {
		t.Errorf("another body under the same id: %v", err)
	}
}

func TestRD1_TheIDTravelsWithTheRecord(t *testing.T) {
	r := newRig(t)
	rec := order("eu")
	rec.ID, rec.Key = "stable", "customer-7"
	rec.Headers = []api.Header{{Name: "trace", Value: "abc"}}
	r.must("ap-south", rec)
	at := r.must("eu-west", rec)
	if !at.Duplicate {
		t.Error("the id was not recognised at home")
	}
	got := readAll(t, r, "eu-west", gateway.ReadRequest{Topic: "orders"}, client("eu-west"))
	if len(got) != 1 || got[0].Item.Record.ID != "stable" || got[0].Item.Record.Key != "customer-7" || len(got[0].Item.Record.Headers) != 1 {
		t.Errorf("%d records", len(got))
	}
}

func TestRA2_ARefusalStoresNothing(t *testing.T) {
	r := newRig(t)
	bad := order("eu")
	bad.Tags[1].Value = "EU"
	if _, err := r.publish("us-east", bad); api.CodeOf(err) != api.UnknownTag || api.CodeOf(err).Stored() != api.StoredNo {
		t.Fatalf("got %v", err)
	}
	for _, g := range r.region {
		for id, l := range g.homes {
			if l.Head().Sequence != 0 {
				t.Errorf("%s in %s is not empty", id, g.name)
			}
		}
	}
	c := r.region["us-east"].counts
	if c.published[api.UnknownTag] != 1 || c.published[""] != 0 {
		t.Errorf("counted %v", c.published)
	}
}

// flipping is a placement that activates another policy the first time it is asked:
// between the judgement and the hand-over.
type flipping struct {
	regions.Placement
	flip func()
}

func (f flipping) Home(id api.LogID) (string, api.Epoch, bool) {
	f.flip()
	return f.Placement.Home(id)
}

func TestR14b_JudgedAgainWhenThePolicyChangesOnTheWay(t *testing.T) {
	var once sync.Once
	var r *rig
	r = newRig(t, func(c *gateway.Config) {
		if c.Self != "us-east" {
			return
		}
		c.Placement = flipping{c.Placement, func() {
			once.Do(func() {
				ended, cancel := context.WithCancel(context.Background())
				cancel() // the flip stands; the pass that is out is this very publish
				if err := c.Gate.Activate(ended, r.policies.none); api.CodeOf(err) != api.NotReady {
					t.Errorf("activate: %v", err)
				}
			})
		}}
	})
	if _, err := r.publish("us-east", order("us")); api.CodeOf(err) != api.ResidencyDenied {
		t.Fatalf("got %v", err)
	}
	if h := r.region["us-east"].homes[logID(t, "orders@us-east")].Head(); h.Sequence != 0 {
		t.Error("the record was stored under the old policy")
	}
	ctx, cancel := context.WithTimeout(context.Background(), wait)
	defer cancel()
	if err := r.region["us-east"].gate.Activate(ctx, r.policies.none); err != nil {
		t.Errorf("a pass was not given back: %v", err)
	}
}

func TestR14b_ActivationAnswersAfterOlderHandOversAreDurable(t *testing.T) {
	r := newRig(t)
	us := r.region["us-east"]
	us.links.set("eu-west", hole)
	done := make(chan error, 1)
	us.Publish(context.Background(), order("eu"), client("us-east"), nil, func(_ api.Ack, err error) { done <- err })
	short, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	if err := us.gate.Activate(short, r.policies.next); api.CodeOf(err) != api.NotReady {
		t.Fatalf("activation did not wait for the record on its way: %v", err)
	}
	long, cancel := context.WithTimeout(context.Background(), wait)
	defer cancel()
	if err := us.gate.Activate(long, r.policies.next); err != nil {
		t.Fatal(err)
	}
	select {
	case <-done:
	default:
		t.Error("activation answered before the outcome was known")
	}
}

func TestCloseWaitsForOutcomes(t *testing.T) {
	r := newRig(t)
	us := r.region["us-east"]
	us.links.set("eu-west", hole)
	done := make(chan error, 1)
	us.Publish(context.Background(), order("eu"), client("us-east"), nil, func(_ api.Ack, err error) { done <- err })
	short, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
	defer cancel()
	if err := us.Close(short); err == nil {
		t.Error("close did not wait")
	}
	if _, err := r.publish("us-east", order("us")); api.CodeOf(err) != api.ShuttingDown {
		t.Errorf("a closing gateway took a record: %v", err)
	}
	long, cancel := context.WithTimeout(context.Background(), wait)
	defer cancel()
	if err := us.Close(long); err != nil {
		t.Error(err)
	}
	<-done
}

func TestNewRefusesARegionThatIsNotOnTheMap(t *testing.T) {
	l, err := examples()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := gateway.New(gateway.Config{Self: "mars", Federation: l.federation}); api.CodeOf(err) != api.UnknownRegion {
		t.Errorf("got %v", err)
	}
}
