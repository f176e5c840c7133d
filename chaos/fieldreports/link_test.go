package fieldreports

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"domicile/api"
	pb "domicile/api/domicile/v1"
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
				id, err = d.lab.Region("eu-west").Node().Gates().Cut("us-east", link.Planes(), []regions.Direction{dir}, link.BlackHole, time.Hour)
				return err
			})
			began := time.Now()
			d.poll("both ends say that the link is down", func() error {
				for from, to := range map[string]string{"us-east": "eu-west", "eu-west": "us-east"} {
					if l := d.link(from, to); l.GetState() == "up" {
						return fmt.Errorf("%s says that it is up", from)
					}
				}
				return nil
			})
			d.within("the cut is seen", began, 6*time.Second) // twice three heartbeats
			d.poll("an EU order at us-east is refused", func() error {
				_, err := d.publish("us-east", record("probe-"+fmt.Sprint(time.Since(began)), "orders", "eu", []byte("x")))
				if code := api.CodeOf(err); code != api.HomeUnreachable {
					return fmt.Errorf("got %q", code)
				}
				return nil
			})
			stalled := func(region, log, target string) {
				d.poll("the copy's lag rises and says why", func() error {
					l, err := d.lag(region, log, target)
					if err == nil && (l.GetState() == string(regions.LagCaughtUp) || !l.GetStalenessKnown() || l.GetStalenessSeconds() < time.Since(began).Seconds()-2) {
						err = fmt.Errorf("%s, %.1f s", l.GetState(), l.GetStalenessSeconds())
					}
					return err
				})
			}
			stalled("us-east", "orders@eu-west", "us-east")
			stalled("eu-west", "orders@us-east", "eu-west")
			d.poll("some seconds of it", passed(began, 6*time.Second))
			heal()
			d.lab.Region("eu-west").Node().Gates().Heal(id)
			healed := time.Now()
			d.must(d.lab.Linked(t.Context()))
			d.poll("a forward is acknowledged again", func() error {
				_, err := d.publish("us-east", record("again-"+fmt.Sprint(time.Since(began)), "orders", "eu", []byte("x")))
				return err
			})
			d.within("the link is up", healed, 10*time.Second)
			cancel()
			load.Wait()
			for _, e := range d.book.Entries() { // the deadline of a forward is 10 s at full pace
				if took := e.Ended.Sub(e.Started); took > 12*time.Second {
					t.Errorf("%s in %s was answered after %s", e.ID, e.Asked, took)
				}
			}
			v := d.settle()
			if v.Judged[invariant.OneWay] == 0 {
				t.Error("nobody was asked about the link")
			}
		})
	}
}

// within holds the present state of the link, by the word of both its ends on when it
// began, to the seconds of the report; heartbeats are four times as fast as they are there.
func (d *drill) within(what string, since time.Time, limit time.Duration) {
	d.Helper()
	for from, to := range map[string]string{"us-east": "eu-west", "eu-west": "us-east"} {
		if took := time.Unix(0, d.link(from, to).GetSinceUnixNano()).Sub(since); took > limit {
			d.Errorf("%s in %s after %s, at most %s", what, from, took, limit)
		}
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
	return d.link(region, peer).GetSinceUnixNano()
}

// link is what a region says of one link.
func (d *drill) link(region, peer string) *pb.LinkState {
	d.Helper()
	desk, err := d.lab.Region(region).Desk()
	d.must(err)
	defer desk.Close()
	m, err := desk.Status(d.Context())
	d.must(err)
	for _, l := range m.GetLinks() {
		if l.GetPeer() == peer {
			return l
		}
	}
	d.Fatalf("%s knows no link to %s", region, peer)
	return nil
}
