package mirror_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"domicile/api"
	"domicile/mirror"
	"domicile/regions"
)

// B31: the link was down for so short a time that only its Since tells. A flow that
// saw it down waits for a nudge, and must get one.
func TestB31_AFlapThatOnlyTheFlowSawWakesIt(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.publish(5, "global")
	r.mirrored()
	r.linkChanged()
	r.wire.cut() // nobody is told
	r.publish(5, "global")
	r.eventually("the flow has counted what waits, and sleeps", func() bool {
		o := r.origin()
		return o.RecordsKnown && o.Records == 5 && r.source.Running() == 0
	})
	r.wire.mu.Lock()
	r.wire.up, r.wire.since = true, r.clock.Now()
	r.wire.mu.Unlock()
	r.linkChanged()
	r.mirrored()
}

// RT8: a batch that waits for the link's credits when the policy changes is judged
// anew, and does not hold up the activation until the link moves.
func TestRT8_ABatchThatWaitsForCreditsIsJudgedAnew(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.publish(5, "us")
	r.mirrored()
	r.wire.dry.Store(true)
	r.publish(5, "us")
	r.eventually("a batch waits for credits", func() bool { return r.wire.dried.Load() > 0 })
	old := r.euPolicy.now.Load()
	next := *old
	next.serial, next.revision, next.forbidden = 2, "2-b", "us"
	r.usPolicy.now.Store(&next)
	r.euPolicy.now.Store(&next)
	r.eventually("nothing judged under the old policy is held", func() bool { return r.euPolicy.out(old) == 0 })
	if n := r.counts.rebuilt.Load(); n != 0 {
		t.Errorf("it took the watchdog (%d) to let the old policy go", n)
	}
	r.wire.dry.Store(false)
	r.mirrored()
	r.dense()
	if _, gaps := r.copy.contents(); len(gaps) != 1 || gaps[0].From != 6 || gaps[0].To != 10 || gaps[0].Revision != "2-b" {
		t.Errorf("gaps %+v", gaps)
	}
}

// A batch that waited long for its turn on a slow link has the watchdog's whole time
// for its answer: given up on the way, it would only be sent once more.
func TestB29_TheWatchdogOfABatchStartsWhenItIsSent(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.publish(1, "global")
	r.mirrored()
	r.wire.dry.Store(true)
	r.publish(5, "global")
	r.eventually("a batch waits for credits", func() bool { return r.wire.dried.Load() > 0 })
	mostOfTheTime := func() func() bool {
		began := time.Now()
		return func() bool { return time.Since(began) > r.pace.Of(7*time.Second) }
	}
	r.eventually("credits", mostOfTheTime())
	r.copy.mu.Lock()
	r.wire.dry.Store(false)
	r.eventually("an answer", mostOfTheTime())
	r.copy.mu.Unlock()
	r.mirrored()
	if n := r.counts.rebuilt.Load(); n != 0 {
		t.Errorf("given up %d times on the way", n)
	}
}

// RT3: a target that stores slowly gets fuller batches, not more of them.
func TestRT3_WindowIsBoundedInBatches(t *testing.T) {
	r := newRig(t, func(r *rig) { r.window = mirror.Window{Batches: 4} })
	r.publish(1, "global")
	r.mirrored()
	r.copy.mu.Lock() // the disk is slow
	n := 0
	r.eventually("much waits", func() bool { r.publish(1, "global"); n++; return n == 100 })
	r.copy.mu.Unlock()
	r.mirrored()
	r.dense()
	if most := r.wire.crowd.Load(); most < 2 || most > 4 {
		t.Errorf("%d batches were in flight at once", most)
	}
}

// RT3: a region that answers no open takes no room from the others.
func TestRT3_ADeafTargetDelaysNoOther(t *testing.T) {
	t.Parallel()
	fed := homeTopics(t, 70)
	clock := regions.NewManualClock(start)
	var good, bad, ended atomic.Int64
	var up atomic.Bool
	s, err := mirror.NewSource(mirror.SourceConfig{
		Self: "eu-west", Federation: fed, Enter: newBook(fed).Enter, Clock: clock, Pace: 0.25, Logger: quiet(),
		Targets: func(api.LogID) []string { return []string{"deaf", "us-east"} },
		Link: func(peer string) (regions.LinkStatus, bool) {
			return regions.LinkStatus{Peer: peer, Up: peer == "deaf" || up.Load()}, true
		},
		OpenMirror: func(ctx context.Context, peer string, _ regions.MirrorOpen) (regions.MirrorStream, error) {
			if peer == "us-east" {
				good.Add(1)
				return nil, errCut
			}
			bad.Add(1)
			<-ctx.Done()
			ended.Add(1)
			return nil, ctx.Err()
		},
		HomeLogs: func() (logs []regions.HomeLog) {
			for _, name := range fed.Topics() {
				logs = append(logs, newMemoryLog(api.LogID{Tenant: api.DefaultTenant, Topic: name, Slot: api.HomeSlot}, "inc", clock))
			}
			return logs
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	defer func() {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		if err := s.Close(ctx); err != nil {
			t.Error(err)
		}
	}()
	eventually(t, "the deaf region holds all it can", func() bool { return bad.Load() == 64 })
	up.Store(true)
	s.LinkChanged(regions.LinkStatus{Peer: "us-east", Up: true})
	eventually(t, "the other is asked for every log", func() bool { return good.Load() >= 70 })
	if ended.Load() > 0 {
		t.Error("not before the deaf region was given up")
	}
}

// A log that could not be read while the link was down is counted once it can be,
// also when nothing more is published.
func TestR14d_ExposureIsKnownAgainOnceTheLogCanBeRead(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.publish(3, "global")
	r.mirrored()
	r.cut()
	r.eventually("the flow sleeps", func() bool { return r.source.Running() == 0 })
	r.home.broken.Store(true)
	r.publish(2, "global")
	r.eventually("unknown, not zero", func() bool {
		o := r.origin()
		return !o.ExposureKnown && !o.RecordsKnown && r.home.denied.Load() > 0
	})
	r.eventually("the flow sleeps again", func() bool { return r.source.Running() == 0 })
	r.home.broken.Store(false)
	r.eventually("known again", func() bool { o := r.origin(); return o.ExposureKnown && o.RecordsKnown && o.Records == 2 })
}

// What a copy that could not be opened holds is not known: nothing of it is shown.
func TestR14d_ACopyThatIsNotOpenHasNoLagAndNotZero(t *testing.T) {
	fed := homeTopics(t, 1)
	clock := regions.NewManualClock(start)
	id := api.LogID{Tenant: api.DefaultTenant, Topic: fed.Topics()[0], Slot: api.HomeSlot}
	var opened regions.CopyLog
	target, err := mirror.NewTarget(mirror.TargetConfig{
		Self: "us-east", Federation: fed, Enter: newBook(fed).Enter, Clock: clock, Logger: quiet(),
		Link: func(peer string) (regions.LinkStatus, bool) {
			return regions.LinkStatus{Peer: peer, Up: true, OffsetOK: true}, true
		},
		Copy: func(context.Context, api.LogID, api.Epoch) (regions.CopyLog, error) {
			if opened == nil {
				return nil, &api.Error{Code: api.NotReady}
			}
			return opened, nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	target.Start(t.Context())
	target.Watermarks("eu-west", regions.Watermarks{Issued: start, All: true, Logs: []regions.LogMark{{
		Log: id, Incarnation: "inc", Epoch: api.StaticEpoch("eu-west"), Closed: start, Digest: fed.TopicDigest(id.Topic)}}})
	l, _ := target.Lag(id)
	if l.State != regions.LagStalled || l.Cause == "" || l.StalenessKnown || l.RecordsKnown || l.BytesKnown {
		t.Errorf("not open: %+v", l)
	}
	held := newMemoryLog(id, "inc", clock)
	held.cursor = regions.Cursor{Incarnation: "inc", Sequence: 7, Time: start.Add(-time.Hour), Ledger: regions.Ledger{Mirrored: 7}}
	opened = held
	target.Start(t.Context())
	if l, _ = target.Lag(id); !l.SafeTime.Equal(start.Add(-time.Hour)) || l.Cursor != 7 {
		t.Errorf("opened: %+v", l)
	}
}

func TestSafeIsNothingBeforeTheFirstFlow(t *testing.T) {
	r := newRig(t)
	s, err := mirror.NewSource(mirror.SourceConfig{
		Self: "eu-west", Federation: r.fed, Link: r.wire.status, Enter: r.euPolicy.Enter, Clock: r.clock, Logger: quiet(),
		OpenMirror: r.wire.open, HomeLogs: func() []regions.HomeLog { return []regions.HomeLog{r.home} },
	})
	if err != nil {
		t.Fatal(err)
	}
	if got := s.Safe(orders); got != 0 {
		t.Errorf("retention may take everything up to %d, and no target was asked", got)
	}
}
