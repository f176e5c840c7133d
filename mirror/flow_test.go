package mirror_test

import (
	"math"
	"testing"
	"time"

	"domicile/api"
	"domicile/regions"
	"domicile/regions/fabric/fabrictest"
)

func TestMain(m *testing.M) { fabrictest.VerifyTestMain(m) }

func near(t *testing.T, what string, got, want, slack time.Duration) {
	t.Helper()
	if (got - want).Abs() > slack {
		t.Errorf("%s is %v, want %v ± %v", what, got, want, slack)
	}
}

func TestR14c_MirrorsInOrderAndWithholdsResidentRecords(t *testing.T) {
	r := newRig(t)
	for range 40 {
		r.publish(3, "global")
		r.publish(5, "eu")
	}
	r.mirrored()
	ids, gaps := r.copy.contents()
	if len(ids) != 120 {
		t.Errorf("%d records in the copy, want 120", len(ids))
	}
	var withheld uint64
	for _, g := range gaps {
		if g.Kind != regions.Withheld || g.Side != "egress" || g.Code != api.ResidencyDenied || g.Revision != "1-a" {
			t.Fatalf("gap %+v", g)
		}
		withheld += g.Count()
	}
	if withheld != 200 {
		t.Errorf("%d withheld, want 200", withheld)
	}
	l := r.origin()
	if l.Ledger.Mirrored != 120 || l.Ledger.Withheld != 200 || l.Ledger.Sum() != l.Head {
		t.Errorf("ledger %+v of head %d", l.Ledger, l.Head)
	}
	if got := r.target.IngressWithheld()[orders]; got != 0 {
		t.Errorf("ingress withheld %d: egress let them go", got)
	}
	if r.counts.egress.Load() != 200 || r.counts.confirmed.Load() != 120 {
		t.Errorf("hooks were told of %d withheld and %d confirmed", r.counts.egress.Load(), r.counts.confirmed.Load())
	}
}

func TestR14b_WithheldRunsBecomeOneGapPerBatch(t *testing.T) {
	r := newRig(t)
	r.cut()
	r.publish(100, "eu")
	r.heal()
	r.mirrored()
	if _, gaps := r.copy.contents(); len(gaps) > 2 {
		t.Errorf("%d gaps for one run of 100 withheld records", len(gaps))
	}
}

// B01, and the table of lag: the link is cut while the log is busy and while it is
// idle; the figures grow one second per second, and heal.
func TestR14d_Decision17_CutLinkLagGrowsOneSecondPerSecond(t *testing.T) {
	for _, busy := range []bool{true, false} {
		name := map[bool]string{true: "busy", false: "idle"}[busy]
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.publish(10, "global")
			r.mirrored()
			r.second()
			near(t, "healthy staleness", r.atTarget().Staleness, 0, time.Millisecond)
			if l := r.atTarget(); l.State != regions.LagCaughtUp || !l.StalenessKnown || !l.RecordsKnown || l.Records != 0 {
				t.Fatalf("healthy: %+v", l)
			}
			r.cut()
			for i := 1; i <= 30; i++ {
				if busy {
					r.publish(7, "global")
				}
				r.second()
				l := r.atTarget()
				near(t, "staleness", l.Staleness, time.Duration(i)*time.Second, time.Millisecond)
				if l.State != regions.LagLinkDown || !l.StalenessKnown || l.RecordsKnown {
					t.Fatalf("cut, target: %+v", l)
				}
				want := regions.Lag{}
				if busy {
					want.Exposure, want.Records, want.Bytes = time.Duration(i)*time.Second, uint64(7*i), uint64(7*i)*recordSize(r)
				}
				r.eventually("exact exposure", func() bool {
					o := r.origin()
					return o.State == regions.LagLinkDown && o.ExposureKnown && o.Exposure == want.Exposure &&
						o.RecordsKnown && o.Records == want.Records && o.BytesKnown && o.Bytes == want.Bytes
				})
			}
			r.heal()
			r.mirrored()
			r.second()
			near(t, "healed staleness", r.atTarget().Staleness, 0, time.Millisecond)
			if o := r.origin(); !o.ExposureKnown || o.Exposure != 0 || o.Records != 0 || !o.RecordsKnown {
				t.Errorf("healed, origin: %+v", o)
			}
		})
	}
}

func recordSize(r *rig) uint64 {
	r.home.mu.Lock()
	defer r.home.mu.Unlock()
	return uint64(r.home.items[0].Record.Size())
}

func TestR14d_ExposureCountsOnlyWhatMayGo(t *testing.T) {
	r := newRig(t)
	r.publish(3, "global")
	r.mirrored()
	r.cut()
	r.publish(50, "eu")
	r.clock.Advance(10 * time.Second)
	r.eventually("nothing exposed", func() bool {
		o := r.origin()
		return o.ExposureKnown && o.Exposure == 0 && o.RecordsKnown && o.Records == 0
	})
	r.publish(1, "global")
	r.clock.Advance(5 * time.Second)
	r.eventually("one exposed", func() bool { o := r.origin(); return o.ExposureKnown && o.Exposure == 5*time.Second && o.Records == 1 })
}

// The origin dies: only the target can tell, and its figure goes on growing.
func TestR14d_OriginDeadAndTargetRestarted(t *testing.T) {
	r := newRig(t)
	r.publish(5, "global")
	r.mirrored()
	r.second()
	r.cut()
	r.clock.Advance(20 * time.Second)
	near(t, "staleness", r.atTarget().Staleness, 20*time.Second, time.Millisecond)
	r.startTarget()
	l := r.atTarget()
	near(t, "staleness after restart", l.Staleness, 21*time.Second, time.Millisecond)
	if !l.StalenessKnown || l.State != regions.LagLinkDown {
		t.Errorf("after restart: %+v", l)
	}
}

func TestR14d_UnknownIsNeverZero(t *testing.T) {
	r := newRig(t, func(r *rig) { r.wire.up = false })
	if l := r.atTarget(); l.StalenessKnown || l.RecordsKnown || l.BytesKnown || l.KnowledgeKnown {
		t.Errorf("nothing was ever heard: %+v", l)
	}
	r.publish(5, "global")
	if o := r.origin(); o.ExposureKnown || o.RecordsKnown {
		t.Errorf("the target was never heard: %+v", o)
	}
	if got := r.source.Safe(orders); got != 0 {
		t.Errorf("safe to expire up to %d though no target was heard", got)
	}
	if got := r.source.Safe(api.LogID{Topic: "x"}); got != math.MaxUint64 {
		t.Errorf("a log that nobody copies is safe up to %d", got)
	}
}

func TestIdleFlowKeepsNothing(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.publish(5, "global")
	r.mirrored()
	idle := func() bool {
		r.wire.mu.Lock()
		defer r.wire.mu.Unlock()
		return r.source.Running() == 0 && r.home.readers.Load() == 0 && len(r.wire.streams) == 0
	}
	r.eventually("no goroutine, reader or stream", idle)
	r.publish(5, "global")
	r.mirrored()
	r.eventually("idle again", idle)
}
