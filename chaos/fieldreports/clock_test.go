package fieldreports

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"domicile/api"
	"domicile/chaos/lab"
	"domicile/chaos/ledger"
	"domicile/gateway/node"
	"domicile/regions"
	"domicile/regions/link"
)

// wall is the clock on the wall of one region's machine, which somebody sets.
type wall struct{ off atomic.Int64 }

func (w *wall) now() time.Time { return time.Now().Add(time.Duration(w.off.Load())) }

func (w *wall) set(off time.Duration) { w.off.Store(int64(off)) }

// B03: a machine's clock is set by an hour, and back, in the middle of a catch-up. The
// node that runs does not follow it: no lag, link, deadline, or memory of an id moves;
// the step has a line of its own. One that is started meanwhile has the wrong time, says
// so, and loses and doubles nothing; nor does it when it is started on the right one again,
// behind stamps of its own that lie an hour ahead.
func TestB03_ASteppingClockMovesNothing(t *testing.T) {
	const log = "orders@us-east"
	var us wall
	d := start(t, lab.Options{Seams: func(region string, s *node.Seams) {
		if region == "us-east" {
			s.Clock = regions.NewSteadyClockOn(us.now)
		}
	}})
	first := record("before", "orders", "global", []byte("x"))
	if _, err := d.publish("us-east", first); err != nil {
		t.Fatal(err)
	}
	heal := d.cut(ledger.Step{Kind: ledger.Cut, Region: "us-east", Peer: "eu-west"}, func() error { return d.lab.CutLink("eu-west", "us-east", link.BlackHole, time.Hour) })
	cut := time.Now()
	d.burst("us-east", "backlog", "orders", "global", 300)
	since := d.since("us-east", "ap-south")
	heal()
	for _, off := range []time.Duration{time.Hour, -time.Hour, 0} {
		us.set(off)
		d.poll("the step is told", func() error { return d.stepTold("us-east", off) })
		d.burst("us-east", fmt.Sprint("at ", off), "orders", "global", 20)
		if ack, err := d.publish("us-east", first); err != nil || !ack.Duplicate {
			t.Errorf("with the clock set by %s the id of a stored record is forgotten: %+v, %v", off, ack, err)
		}
		for _, target := range []string{"eu-west", "ap-south"} {
			l, err := d.lag(target, log, target)
			if err != nil || !l.GetStalenessKnown() || l.GetStalenessSeconds() < 0 || l.GetStalenessSeconds() > time.Since(cut).Seconds()+2 || !l.GetSecondsTrusted() {
				t.Errorf("with the clock set by %s: %v, %v", off, l, err)
			}
		}
	}
	if now := d.since("us-east", "ap-south"); now != since {
		t.Error("a link was made anew for a clock")
	}
	d.converge()
	for _, off := range []time.Duration{time.Hour, 0} {
		us.set(off)
		end := d.book.During(ledger.Step{Kind: ledger.Stop, Region: "us-east"})
		d.must(d.lab.Region("us-east").Restart(t.Context()))
		end()
		d.must(d.lab.Linked(t.Context()))
		if off != 0 {
			d.poll("the skew is told", func() error { return d.skewTold("eu-west", "us-east", off.Seconds()) })
		}
		for i := range 20 { // one at a time: it may have to wait
			if _, err := d.insist("us-east", record(fmt.Sprintf("restarted at %s-%d", off, i), "orders", "global", []byte("x"))); err != nil {
				t.Fatalf("with the clock off by %s: %s", off, api.CodeOf(err))
			}
		}
		d.poll("the copy follows", func() error { return d.reached(log, "us-east", "eu-west") })
	}
	for _, e := range d.book.History().Events {
		if e.Lag != nil && e.Lag.StalenessKnown && e.Lag.Staleness < 0 {
			t.Fatalf("%s said of %s in %s: %s", e.Lag.Region, e.Lag.Log, e.Lag.Target, e.Lag.Staleness)
		}
	}
	d.settle()
}

// stepTold is nil once a region says that its wall clock is off by so much.
func (d *drill) stepTold(region string, want time.Duration) error {
	desk, err := d.lab.Region(region).Desk()
	if err != nil {
		return err
	}
	defer desk.Close()
	m, err := desk.Status(d.Context())
	if err != nil {
		return err
	}
	if got := m.GetClock().GetStepSeconds(); got < want.Seconds()-1 || got > want.Seconds()+1 {
		return fmt.Errorf("%s says that its clock was set by %.1f s", region, got)
	}
	return nil
}
