package lab_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"domicile/api"
	"domicile/api/client"
	pb "domicile/api/domicile/v1"
	"domicile/chaos/lab"
	"domicile/regions"
	"domicile/regions/link"
)

const syncedOrders = `orders: {writes: home, home: eu-west, mirror: [all], sync: {within: eu, copies: 2, when_short: refuse},
    on_home_loss: {producers: refuse, consumers: {mode: read_copy, max_staleness: 1h}, owner: o, text: t}}`

// synced is a federation whose orders are acknowledged when eu-west and eu-central have them.
func synced(t *testing.T) *lab.Lab {
	t.Helper()
	return open(t, lab.Options{Policies: boundedPolicies("eu, global"), Manifest: bounded(syncedOrders)})
}

// told is what producers were told, by id.
type told struct {
	mu       sync.Mutex
	outcomes map[string]api.Code
	copies   map[string][]string
}

func (w *told) note(id string, ack api.Ack, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.outcomes == nil {
		w.outcomes, w.copies = map[string]api.Code{}, map[string][]string{}
	}
	w.outcomes[id], w.copies[id] = api.CodeOf(err), ack.Copies
}

func (w *told) count(code api.Code) (n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range w.outcomes {
		if c == code {
			n++
		}
	}
	return n
}

// stream publishes global orders without a pause until ctx ends, and returns once each
// has its outcome.
func (w *told) stream(t *testing.T, ctx context.Context, c *client.Client, name string) {
	publisher := c.NewPublisher(client.Window{Records: 64})
	for i := 0; ctx.Err() == nil; i++ {
		id := fmt.Sprintf("%s-%d", name, i)
		publisher.Publish(ctx, orderOf("global", id), func(ack api.Ack, err error) { w.note(id, ack, err) })
	}
	closing, cancel := context.WithTimeout(context.Background(), soon)
	defer cancel()
	if err := publisher.Close(closing); err != nil {
		t.Error(err)
	}
}

func acknowledged(t *testing.T, c *client.Client, id string) api.Ack {
	t.Helper()
	var ack api.Ack
	within(t, "an order is acknowledged", func() (err error) {
		r := orderOf("global", id)
		ack, err = c.Publish(t.Context(), &r)
		return err
	})
	return ack
}

// seen collects what readers of a region get, until ctx ends.
func seen(t *testing.T, ctx context.Context, wg *sync.WaitGroup, l *lab.Lab, region string) func() []string {
	t.Helper()
	c := door(t, l, region, 0)
	var mu sync.Mutex
	var ids []string
	wg.Go(func() {
		_ = c.Read(ctx, &pb.ReadRequest{Topic: "orders", Follow: true}, func(b *pb.ReadResponse) error {
			mu.Lock()
			defer mu.Unlock()
			for _, r := range b.GetRecords() {
				ids = append(ids, r.GetRecord().GetId())
			}
			return nil
		})
	})
	return func() []string {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(ids)
	}
}

// TestR14j_AcknowledgedIsInBothRegions: whatever is acknowledged when the home is cut off
// in the middle of it is on the member's disk, and what nobody but the home has is neither
// acknowledged, nor read anywhere, nor in a third region.
func TestR14j_AcknowledgedIsInBothRegions(t *testing.T) {
	l := synced(t)
	west := door(t, l, "eu-west", 1)
	if ack := acknowledged(t, west, "first"); !slices.Equal(ack.Copies, []string{"eu-central"}) || ack.Region != "eu-west" {
		t.Fatalf("the ack claims %+v", ack)
	}
	reading, stop := context.WithCancel(t.Context())
	var readers sync.WaitGroup
	defer readers.Wait()
	defer stop()
	views := map[string]func() []string{}
	for _, region := range []string{"eu-west", "eu-central", "us-east"} {
		views[region] = seen(t, reading, &readers, l, region)
	}
	for region, view := range views {
		within(t, "readers in "+region+" see the first order", func() error {
			if !slices.Contains(view(), "first") {
				return fmt.Errorf("they see %v", view())
			}
			return nil
		})
	}
	var w told
	publishing, end := context.WithCancel(t.Context())
	var producer sync.WaitGroup
	producer.Go(func() { w.stream(t, publishing, west, "o") })
	within(t, "orders flow", func() error {
		if w.count("") < 200 {
			return fmt.Errorf("%d acks", w.count(""))
		}
		return nil
	})
	// One way only: nothing more reaches eu-central, whatever is on its way.
	if _, err := l.Region("eu-west").Node().Gates().Cut("eu-central", []link.Plane{link.Control, link.Data}, []regions.Direction{regions.Out}, link.BlackHole, time.Hour); err != nil {
		t.Fatal(err)
	}
	within(t, "orders are refused", func() error {
		if w.count(api.SyncShort) == 0 {
			return fmt.Errorf("%d acks, %d unknown", w.count(""), w.count(api.OutcomeUnknown))
		}
		return nil
	})
	end()
	producer.Wait()
	if w.count(api.OutcomeUnknown) == 0 {
		t.Error("nothing was on its way when the link was cut")
	}
	// eu-west has orders that eu-central has not: time for them to get anywhere.
	within(t, "a third region goes on with what is common", func() error { return l.CaughtUp(t.Context(), time.Now().Add(-time.Minute), time.Second) })
	stop()
	readers.Wait()

	disks := stored(t, l)
	var alone int
	for id, code := range w.outcomes {
		central, everywhere := len(disks[id]["eu-central"]) == 1, disks[id]
		switch {
		case code == "" && !central:
			t.Errorf("%s is acknowledged and not in eu-central", id)
		case code == api.SyncShort && len(everywhere) > 0:
			t.Errorf("%s was refused and is stored in %v", id, everywhere)
		case !central && len(everywhere["us-east"]) > 0:
			t.Errorf("%s is in us-east and not in eu-central", id)
		}
		if len(everywhere["eu-west"]) == 1 && !central {
			alone++
			for region, view := range views {
				if slices.Contains(view(), id) {
					t.Errorf("a reader in %s saw %s, which eu-west alone has", region, id)
				}
			}
		}
	}
	if alone == 0 {
		t.Error("eu-west had nothing for itself: the cut came too late")
	}
	t.Logf("%d acks, %d unknown, %d refused; eu-west alone has %d", w.count(""), w.count(api.OutcomeUnknown), w.count(api.SyncShort), alone)
}

// TestR14j_ShortRefusesAndHeals: with the member gone appends are refused and name it;
// what was in flight is unknown; when it is back both go on, and a retry is one record.
// A restart of the home in between makes nothing of that forgotten.
func TestR14j_ShortRefusesAndHeals(t *testing.T) {
	l := synced(t)
	west := door(t, l, "eu-west", 1)
	acknowledged(t, west, "before")
	if err := l.CutLink("eu-west", "eu-central", link.BlackHole, time.Hour); err != nil {
		t.Fatal(err)
	}
	r := orderOf("global", "caught")
	if _, err := west.Publish(t.Context(), &r); api.CodeOf(err) != api.OutcomeUnknown {
		t.Fatalf("an order that the cut caught: %v", err)
	}
	within(t, "refused", func() error {
		r := orderOf("global", "refused")
		_, err := west.Publish(t.Context(), &r)
		if e, ok := err.(*api.Error); !ok || e.Code != api.SyncShort || e.Region != "eu-central" {
			return fmt.Errorf("told %v", err)
		}
		return nil
	})
	if err := l.Region("eu-west").Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	l.Heal()
	if err := l.CutLink("eu-central", "eu-west", link.BlackHole, time.Hour); err != nil {
		t.Fatal(err)
	}
	if _, err := west.Publish(t.Context(), &r); api.CodeOf(err) == "" {
		t.Error("acknowledged while only the home has it")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	err := west.Read(ctx, &pb.ReadRequest{Topic: "orders"}, func(b *pb.ReadResponse) error {
		for _, x := range b.GetRecords() {
			if x.GetRecord().GetId() == "caught" {
				t.Error("a reader got what only the home has")
			}
		}
		return nil
	})
	if err == nil {
		t.Error("a read ended at an end that nobody knows")
	}
	l.Heal()
	var ack api.Ack
	within(t, "the retry", func() (err error) { ack, err = west.Publish(t.Context(), &r); return err })
	if !ack.Duplicate || !slices.Equal(ack.Copies, []string{"eu-central"}) {
		t.Errorf("the retry's ack is %+v", ack)
	}
	acknowledged(t, west, "after")
	within(t, "every copy is whole", func() error { return l.CaughtUp(t.Context(), time.Now(), time.Second) })
	for id, disks := range stored(t, l) {
		for _, region := range []string{"eu-west", "eu-central", "us-east"} {
			if len(disks[region]) != 1 {
				t.Errorf("%s is %d times in %s", id, len(disks[region]), region)
			}
		}
	}
}
