package field_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"domicile/chaos/field"
	"domicile/chaos/invariant"
	"domicile/chaos/lab"
	"domicile/chaos/ledger"
)

// R14d, B29: a line of 50 kbit/s under a load that it can't carry. It is slow, not
// dead: at real pace neither side calls it down or hears the other late, and when the line
// is wide again the copies catch up.
func TestR14d_ANarrowLineIsSlowAndNotDead(t *testing.T) {
	r := &report{T: t, f: open(t, field.Options{Pace: 1}), padding: 1000}
	eu, us := r.f.Node("eu-west"), r.f.Node("us-east")
	must(t, r.f.Narrow(t.Context(), "eu-west", "us-east", 50_000))
	end := r.book.During(ledger.Step{Kind: ledger.SlowLine, Region: "eu-west", Peer: "us-east", Value: "50 kbit/s"})
	watching, stop := context.WithCancel(t.Context())
	var watchers sync.WaitGroup
	for _, n := range []*field.Node{eu, us} {
		watchers.Go(func() { r.watch(watching, n) })
	}
	var load sync.WaitGroup
	for _, prefix := range []string{"a", "b", "c", "d"} {
		load.Go(func() { r.publish(prefix, 150) })
	}
	load.Wait()
	must(t, lab.Pass(t.Context(), 8*time.Second))
	if n := r.pending("orders@eu-west", eu, "us-east"); n < 50 {
		t.Errorf("%d records wait for us-east: the line was not narrow", n)
	}
	stop()
	watchers.Wait()
	end()
	must(t, r.f.Widen(t.Context(), "eu-west", "us-east"))
	r.copied()
	if v := r.judge(); v.Judged[invariant.Heartbeat] == 0 {
		t.Error("no heartbeat was looked at")
	}
}

// watch notes what a node says of its links until ctx ends.
func (r *report) watch(ctx context.Context, n *field.Node) {
	desk, err := n.Desk()
	if err != nil {
		r.Error(err)
		return
	}
	defer desk.Close()
	for lab.Pass(ctx, 200*time.Millisecond) == nil {
		if status, err := desk.Status(ctx); err == nil {
			r.book.Linked(status)
		}
	}
}
