package mirror_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"domicile/mirror"
	"domicile/regions"
)

// dense checks that the copy holds every sequence once and in order, as a record or
// within a gap.
func (r *rig) dense() {
	r.t.Helper()
	r.copy.mu.Lock()
	defer r.copy.mu.Unlock()
	next := uint64(1)
	for _, i := range r.copy.items {
		from := i.Sequence
		if i.Gap != nil {
			from = i.Gap.From
		}
		if from != next {
			r.t.Fatalf("the copy has %d where %d belongs", from, next)
		}
		next = i.Sequence + 1
	}
	if got := r.copy.cursor.Ledger.Sum(); got != r.copy.cursor.Sequence || next != got+1 {
		r.t.Fatalf("ledger sums to %d at cursor %d", got, r.copy.cursor.Sequence)
	}
}

// B13: the target stores a batch and its reply is lost, again and again.
func TestB13_StoredBeforeTheReplyWasLostMakesNoDuplicate(t *testing.T) {
	r := newRig(t)
	for round := range 10 {
		r.wire.lose.Store(true)
		r.publish(100, "global")
		before := r.copy.Cursor().Sequence
		r.eventually("something was stored", func() bool { return r.copy.Cursor().Sequence > before })
		r.wire.lose.Store(false)
		r.mirrored()
		r.dense()
		if got := r.copy.Cursor().Sequence; got != uint64(100*(round+1)) {
			t.Fatalf("round %d: cursor %d", round, got)
		}
	}
	if got := r.counts.confirmed.Load(); got != 1000 {
		t.Errorf("%d records counted as confirmed, want 1000", got)
	}
}

// B16: resets in mid-stream; the order is always the log's.
func TestB16_ResetsKeepTheOrder(t *testing.T) {
	r := newRig(t)
	for range 60 {
		r.publish(30+rand.IntN(40), []string{"global", "eu"}[rand.IntN(2)])
		r.cut()
		r.heal()
	}
	r.mirrored()
	r.dense()
}

// B04: a full target blocks the flow, says so, and the flow resumes by itself.
func TestB04_ResumesWhenAFullTargetHasRoom(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	for range 3 {
		r.copy.setFull(true)
		r.publish(20, "global")
		r.clock.Advance(time.Second)
		r.eventually("the origin says the target is full", func() bool {
			o := r.origin()
			return o.State == regions.LagTargetFull && o.ExposureKnown && o.Exposure == time.Second && o.Records == 20
		})
		r.round()
		if l := r.atTarget(); l.State != regions.LagTargetFull || !l.RecordsKnown || l.Records != 20 {
			t.Errorf("full, target: %+v", l)
		}
		r.copy.setFull(false)
		r.mirrored()
		r.second()
		if l := r.atTarget(); l.State != regions.LagCaughtUp {
			t.Errorf("room again, target: %+v", l)
		}
	}
	r.dense()
}

// B08: retention at the home was first. The copy gets the exact range, typed.
func TestB08_ExpiredRangeIsAGapWithItsRange(t *testing.T) {
	r := newRig(t)
	r.cut()
	r.publish(1000, "global")
	r.home.expire(800)
	r.heal()
	r.mirrored()
	r.dense()
	ids, gaps := r.copy.contents()
	if len(ids) != 200 || len(gaps) != 1 || gaps[0] != (regions.Gap{Kind: regions.Expired, From: 1, To: 800}) {
		t.Errorf("%d records, gaps %+v", len(ids), gaps)
	}
}

// B02: everything mirrored has expired, or was never written: no lag.
func TestB02_IdleAndExpiredLogsHaveNoLag(t *testing.T) {
	r := newRig(t)
	r.round()
	for range 5 {
		r.second()
		near(t, "staleness of a log never written", r.atTarget().Staleness, 0, time.Millisecond)
	}
	r.publish(10, "global")
	r.mirrored()
	r.home.expire(10)
	for range 600 {
		r.second()
		l := r.atTarget()
		if near(t, "staleness", l.Staleness, 0, time.Millisecond); l.State != regions.LagCaughtUp || l.Records != 0 || !l.BytesKnown {
			t.Fatalf("%+v", l)
		}
		if o := r.origin(); !o.ExposureKnown || o.Exposure != 0 {
			t.Fatalf("%+v", o)
		}
	}
	r.linkChanged()
	r.publish(1, "global")
	r.mirrored()
}

// B33: a record above every batch bound, and one that ingress refuses, stop nothing.
func TestB33_LargeAndDeniedRecordsStopNothing(t *testing.T) {
	r := newRig(t)
	denied := *r.usPolicy.now.Load()
	denied.serial, denied.revision, denied.forbidden = 2, "2-b", "us"
	r.usPolicy.now.Store(&denied)
	r.publish(500, "global")
	r.home.append("global", 800<<10)
	r.publish(99, "global")
	r.publish(1, "us")
	r.publish(100, "global")
	r.mirrored()
	r.dense()
	ids, gaps := r.copy.contents()
	if len(ids) != 700 || len(gaps) != 1 || gaps[0].Side != "ingress" || gaps[0].Revision != "2-b" || gaps[0].From != 601 || gaps[0].To != 601 {
		t.Errorf("%d records, gaps %+v", len(ids), gaps)
	}
	if r.target.IngressWithheld()[orders] != 1 || r.counts.ingress.Load() != 1 {
		t.Error("the ingress refusal was not counted")
	}
}

// B40: the origin was set back and is another log, or the same with an older end.
func TestB40_CursorAheadAlarmsAndNeverWaits(t *testing.T) {
	for _, test := range []struct {
		name  string
		after int // records published after the log was set back to 60 of 100
		state regions.LagState
		fresh bool // the log was created anew
	}{
		{"end before the cursor", 10, regions.LagCursorAhead, false},
		{"grown past the cursor again", 50, regions.LagCursorAhead, false},
		{"another incarnation", 10, regions.LagIncarnation, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := newRig(t)
			r.publish(100, "global")
			r.mirrored()
			r.second()
			r.stopSource()
			r.cut()
			safe := r.atTarget().SafeTime
			r.clock.Advance(time.Hour)
			old := r.home
			r.home = newMemoryLog(orders, "inc-1", r.clock)
			if test.fresh {
				r.home.incarnation = "inc-2"
			}
			r.home.items, r.home.sequence = append(r.home.items, old.items[:60]...), 60
			r.publish(test.after, "global")
			r.startSource()
			r.heal()
			r.eventually("the origin alarms", func() bool { return r.origin().State == test.state })
			for range 5 {
				r.second()
			}
			if l := r.atTarget(); !l.SafeTime.Equal(safe) {
				t.Errorf("the target believes a log that was set back: safe time went from %v to %v", safe, l.SafeTime)
			}
			if got := r.copy.Cursor().Sequence; got != 100 {
				t.Errorf("the copy went on to %d", got)
			}
			r.eventually("nothing runs", func() bool { return r.source.Running() == 0 })
		})
	}
}

// A record is denied here only because our policy is older: the flow waits, and no
// gap makes it final.
func TestPolicySkewWaitsThenFlows(t *testing.T) {
	r := newRig(t)
	old := *r.usPolicy.now.Load()
	old.forbidden = "us"
	r.usPolicy.now.Store(&old)
	next := *r.euPolicy.now.Load()
	next.serial, next.revision = 2, "2-b"
	r.euPolicy.now.Store(&next)
	r.source.PolicyChanged()
	r.publish(5, "global")
	r.publish(5, "us")
	r.eventually("both sides say skew", func() bool {
		r.round()
		return r.origin().State == regions.LagPolicySkew && r.atTarget().State == regions.LagPolicySkew
	})
	if _, gaps := r.copy.contents(); len(gaps) != 0 {
		t.Fatalf("gaps %+v", gaps)
	}
	r.usPolicy.now.Store(&next)
	r.mirrored()
	if ids, gaps := r.copy.contents(); len(ids) != 10 || len(gaps) != 0 {
		t.Errorf("%d records, gaps %+v", len(ids), gaps)
	}
}

// With no policy active nothing leaves, and nothing is written off as withheld.
func TestNoPolicyWaits(t *testing.T) {
	r := newRig(t)
	r.mirrored()
	r.euPolicy.now.Store(&edition{none: true})
	r.publish(5, "global")
	r.eventually("the flow waits", func() bool { return r.origin().State == regions.LagStalled })
	if r.copy.Cursor().Sequence != 0 {
		t.Fatal("something was sent without a policy")
	}
	r.euPolicy.now.Store(&edition{serial: 2, revision: "2-b"})
	r.usPolicy.now.Store(&edition{serial: 2, revision: "2-b"})
	r.source.PolicyChanged()
	r.mirrored()
	if _, gaps := r.copy.contents(); len(gaps) != 0 {
		t.Errorf("gaps %+v", gaps)
	}
}

func TestPolicyChangeInMidStreamJudgesAnew(t *testing.T) {
	r := newRig(t)
	r.cut()
	r.publish(200, "global")
	r.publish(200, "us")
	r.heal()
	next := *r.euPolicy.now.Load()
	next.serial, next.revision, next.forbidden = 2, "2-b", "us"
	r.usPolicy.now.Store(&next)
	r.euPolicy.now.Store(&next)
	r.source.PolicyChanged()
	r.publish(10, "us")
	r.mirrored()
	r.dense()
	_, gaps := r.copy.contents()
	if last := gaps[len(gaps)-1]; last.Revision != "2-b" || last.To != 410 {
		t.Errorf("last gap %+v", last)
	}
}

func TestManifestMismatchIsNamed(t *testing.T) {
	r := newRig(t, func(r *rig) {
		topic, _ := r.fed.Topic("orders")
		theirs := topic.Fields()
		theirs["retention.max_age"] = "1h0m0s"
		r.wire.hello = &regions.Hello{TopicDigests: map[string]string{"orders": "other"}, TopicFields: map[string]map[string]string{"orders": theirs}}
	})
	r.publish(5, "global")
	r.eventually("the differing field is named", func() bool {
		o := r.origin()
		return o.State == regions.LagManifestDiffers && o.Cause == "retention.max_age: 168h0m0s | 1h0m0s"
	})
	r.wire.mu.Lock()
	r.wire.hello = &regions.Hello{TopicDigests: map[string]string{"orders": r.fed.TopicDigest("orders")}}
	r.wire.mu.Unlock()
	r.linkChanged()
	r.mirrored()
}

// B07: the reader gives nothing though there is more. The watchdog makes it anew,
// then says where it hangs, and the flow resumes when it works again.
func TestB07_WatchdogRebuildsThenNamesTheHop(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.publish(5, "global")
	r.mirrored()
	r.home.deaf.Store(true)
	r.publish(5, "global")
	r.eventually("rebuilt, then stalled at the reader", func() bool {
		o := r.origin()
		return r.counts.rebuilt.Load() >= 2 && o.State == regions.LagStalled && o.Cause == "no progress at: reader of the home log"
	})
	r.home.deaf.Store(false)
	r.mirrored()
	r.dense()
}

func TestWatchdogNamesATargetThatNeverAnswers(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.publish(5, "global")
	r.mirrored()
	r.wire.hold.Store(true)
	r.publish(5, "global")
	r.eventually("stalled at the target", func() bool {
		o := r.origin()
		return o.State == regions.LagStalled && o.Cause == "no progress at: target's reply"
	})
	r.round()
	r.clock.Advance(3 * time.Second)
	r.round()
	if l := r.atTarget(); l.State != regions.LagStalled {
		t.Errorf("the target does not see the stall: %+v", l)
	}
	r.wire.hold.Store(false)
	r.mirrored()
}

// A batch that a slow line carries longer than the watchdog waits is not given up: it
// would be sent again and again and never arrive. One that no line carries is.
func TestR14c_SlowLineIsNotAStall(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.publish(5, "global")
	r.mirrored()
	r.wire.slow.Store(true)
	r.wire.hold.Store(true)
	r.publish(5, "global")
	<-time.After(3 * r.pace.Of(10*time.Second))
	if n := r.counts.rebuilt.Load(); n > 0 {
		t.Errorf("given up %d times while the line was carrying", n)
	}
	r.wire.slow.Store(false)
	r.wire.hold.Store(false)
	r.mirrored()
	r.dense()
}

func TestRT3_WindowIsBoundedInBytes(t *testing.T) {
	r := newRig(t, func(r *rig) { r.window = mirror.Window{Bytes: 256 << 10}; r.wire.up = false })
	for range 200 {
		r.home.append("global", 16<<10)
	}
	r.heal()
	r.mirrored()
	r.dense()
	// The window, and what one record may exceed a batch's bound by.
	if most := r.wire.most.Load(); most > 256<<10+17<<10 {
		t.Errorf("%d bytes were in flight, the window is %d", most, 256<<10)
	}
}

func TestB03_ClockSkewIsCorrectedAndNeverNegative(t *testing.T) {
	r := newRig(t, func(r *rig) { r.wire.offset = 744 * time.Second })
	r.publish(3, "global")
	r.mirrored()
	r.second()
	l := r.atTarget()
	near(t, "staleness", l.Staleness, 744*time.Second, time.Millisecond) // in this rig both run on one clock
	if l.SecondsTrusted {
		t.Error("seconds are trusted with an offset of 744 s")
	}
	r.wire.mu.Lock()
	r.wire.offset = -744 * time.Second
	r.wire.mu.Unlock()
	if l = r.atTarget(); l.StalenessKnown || l.Staleness != 0 || l.SecondsTrusted || r.counts.clamped.Load() == 0 {
		t.Errorf("%+v, %d clamped", l, r.counts.clamped.Load())
	}
}

// An older stream cannot interleave: a second open takes over from the first.
func TestSecondOpenSupersedesTheFirst(t *testing.T) {
	r := newRig(t)
	r.stopSource()
	r.publish(4, "global")
	open := regions.MirrorOpen{Log: orders, Incarnation: "inc-1", Epoch: r.home.epoch(), Head: 4, Digest: r.fed.TopicDigest("orders")}
	old, _ := r.target.OpenMirror(t.Context(), "eu-west", open)
	now, _ := r.target.OpenMirror(t.Context(), "eu-west", open)
	b := regions.MirrorBatch{Incarnation: "inc-1", Serial: 1, Revision: "1-a", Items: r.home.items[:2]}
	if reply := old.Apply(t.Context(), b); reply.Refused == "" {
		t.Error("the old stream still applies")
	}
	if reply := now.Apply(t.Context(), b); reply.Refused != "" || reply.Cursor.Sequence != 2 {
		t.Errorf("the new stream: %+v", reply)
	}
	if reply := now.Apply(t.Context(), b); reply.Refused == "" {
		t.Error("the same batch was applied twice")
	}
}

func TestOpenMirrorRefusals(t *testing.T) {
	r := newRig(t)
	r.stopSource()
	good := regions.MirrorOpen{Log: orders, Incarnation: "inc-1", Epoch: r.home.epoch(), Digest: r.fed.TopicDigest("orders")}
	change := func(f func(*regions.MirrorOpen)) regions.MirrorOpen { o := good; f(&o); return o }
	for name, test := range map[string]struct {
		peer  string
		open  regions.MirrorOpen
		code  string
		field string
	}{
		"not the home":  {"ap-south", good, "PERMISSION_DENIED", "home"},
		"digest":        {"eu-west", change(func(o *regions.MirrorOpen) { o.Digest = "x" }), "MANIFEST_MISMATCH", "digest"},
		"unknown topic": {"eu-west", change(func(o *regions.MirrorOpen) { o.Log.Topic = "x"; o.Digest = "" }), "MANIFEST_MISMATCH", "topic"},
		"our own log":   {"eu-west", change(func(o *regions.MirrorOpen) { o.Log.Slot = "us-east" }), "PERMISSION_DENIED", "log"},
		"epoch":         {"eu-west", change(func(o *regions.MirrorOpen) { o.Epoch.Counter = 9 }), "PERMISSION_DENIED", "epoch"},
	} {
		sink, reply := r.target.OpenMirror(t.Context(), test.peer, test.open)
		if sink != nil || string(reply.Refused) != test.code || reply.Field != test.field {
			t.Errorf("%s: %v %+v", name, sink, reply)
		}
	}
}
