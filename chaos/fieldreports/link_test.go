package fieldreports

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"domicile/api"
	"domicile/chaos/invariant"
	"domicile/chaos/lab"
	"domicile/chaos/ledger"
	"domicile/regions"
	"domicile/regions/link"
)

// B16: connections are reset again and again under one key. A producer that waits for
// each answer, and asks again under the same id, finds its records in its order at
// home, published there or forwarded, and in every copy.
func TestB16_ResetsKeepAProducersOrder(t *testing.T) {
	d := start(t, lab.Options{})
	var producers sync.WaitGroup
	done := make(chan struct{})
	for _, p := range []struct{ region, residency string }{{"us-east", "eu"}, {"eu-west", "global"}, {"ap-south", "global"}} {
		producers.Go(func() {
			for n := range 60 {
				if _, err := d.insist(p.region, record(fmt.Sprintf("%s-%d", p.region, n), "orders", p.residency, []byte{byte(n)})); err != nil {
					d.Errorf("%s-%d: %v", p.region, n, err)
				}
			}
		})
	}
	go func() { producers.Wait(); close(done) }()
	resets := 0
	for over := false; !over; resets++ {
		d.must(d.lab.CutLink("eu-west", "us-east", link.Reject, time.Minute))
		d.lab.Heal()
		select {
		case <-done:
			over = true
		case <-time.After(100 * time.Millisecond):
		}
	}
	t.Logf("%d resets", resets)
	d.heal()
}

// B17: in a ring of regions that all mirror to each other each record is sent once to
// each other region, ends there once, and its topic keeps its name.
func TestB17_ARingMakesOneCopyEach(t *testing.T) {
	d := start(t, lab.Options{})
	names := d.lab.Federation.Regions()
	for _, region := range names {
		d.burst(region, "ring-"+region, "orders", "global", 20)
	}
	d.converge()
	sent, held := 0.0, 0
	for _, region := range names {
		page, err := d.lab.Region(region).Metrics(t.Context())
		d.must(err)
		for _, m := range page {
			if m.Name == "domicile_mirror_applied_records_total" && strings.HasPrefix(m.Labels["log"], "orders@") {
				sent += m.Value
			}
		}
	}
	if want := float64(20 * len(names) * (len(names) - 1)); sent != want {
		t.Errorf("%v records were copied over links, want %v", sent, want)
	}
	d.judge()
	for _, region := range names {
		shelves, err := lab.Shelves(t.Context(), d.lab.Federation, region, d.lab.Region(region).Data())
		d.must(err)
		for _, s := range shelves {
			held += len(s.Items)
		}
	}
	if want := 20 * len(names) * len(names); held != want {
		t.Errorf("%d records are held, want %d", held, want)
	}
}

// B32: a link over which one direction is silently lost. It says that it is down,
// forwards are refused or unknown within their deadline and never acknowledged, nothing
// comes twice afterwards; and an idle link is left alone.
func TestB32_AHalfOpenLinkDoesNotLookAlive(t *testing.T) {
	for _, dir := range []regions.Direction{regions.In, regions.Out} {
		t.Run(string(dir), func(t *testing.T) {
			d := start(t, lab.Options{})
			since := d.since("us-east", "eu-west")
			ctx, cancel := context.WithCancel(t.Context())
			var load sync.WaitGroup
			load.Go(func() { d.load(ctx, "eu-west", "global") })
			load.Go(func() { d.load(ctx, "us-east", "eu") })
			d.poll("an idle link and a busy one stay as they are", passed(time.Now(), 2*time.Second))
			if now := d.since("us-east", "eu-west"); now != since {
				t.Errorf("the link was made anew without a fault")
			}
			step := ledger.Step{Kind: ledger.CutOneWay, Region: "us-east", Peer: "eu-west"}
			if dir == regions.Out {
				step.Region, step.Peer = step.Peer, step.Region
			}
			var id uint64
			heal := d.cut(step, func() (err error) {
				id, err = d.lab.Region("eu-west").Node().Gates().Cut("us-east", []link.Plane{link.Control, link.Data}, []regions.Direction{dir}, link.BlackHole, time.Hour)
				return err
			})
			began := time.Now()
			d.poll("an EU order at us-east is refused", func() error {
				_, err := d.publish("us-east", record("probe-"+fmt.Sprint(time.Since(began)), "orders", "eu", []byte("x")))
				if code := api.CodeOf(err); code != api.HomeUnreachable {
					return fmt.Errorf("got %q", code)
				}
				return nil
			})
			d.poll("some seconds of it", passed(began, 6*time.Second))
			heal()
			d.lab.Region("eu-west").Node().Gates().Heal(id)
			d.must(d.lab.Linked(t.Context()))
			cancel()
			load.Wait()
			v := d.settle()
			if v.Judged[invariant.OneWay] == 0 {
				t.Error("nobody was asked about the link")
			}
		})
	}
}

// load publishes a record after the other until ctx ends.
func (d *drill) load(ctx context.Context, region, residency string) {
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	for n := 0; ; n++ {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		_, _ = d.publish(region, record(fmt.Sprintf("load-%s-%s-%d", region, residency, n), "orders", residency, []byte("load")))
	}
}

// since is when a region says that a link came into its present state.
func (d *drill) since(region, peer string) int64 {
	d.Helper()
	desk, err := d.lab.Region(region).Desk()
	d.must(err)
	defer desk.Close()
	m, err := desk.Status(d.Context())
	d.must(err)
	for _, l := range m.GetLinks() {
		if l.GetPeer() == peer {
			return l.GetSinceUnixNano()
		}
	}
	d.Fatalf("%s knows no link to %s", region, peer)
	return 0
}
