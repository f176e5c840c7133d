package fabric_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"domicile/api"
	"domicile/regions"
	"domicile/regions/clock"
	"domicile/regions/fabric"
	"domicile/regions/fabric/fabrictest"
)

// wrongBy is a node's clock that was wrong when it started.
func wrongBy(d time.Duration) regions.Clock {
	return regions.NewSteadyClockOn(func() time.Time { return time.Now().Add(d) })
}

func weekLog(t testing.TB) fabric.LogConfig {
	return fabric.LogConfig{ID: mustID(t, "orders@here"), Epoch: api.StaticEpoch("here"), MaxBytes: 8 << 20, MaxAge: 7 * 24 * time.Hour}
}

// filled is a data directory with 400 acknowledged records of a log that keeps them a week.
func filled(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	f := fabrictest.Open(t, func(c *fabric.Config) { c.Dir, c.Clock = dir, wrongBy(0) })
	allStored(t, appendMany(t, homeOf(t, f, weekLog(t)), 0, 400))
	if err := f.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
	return dir
}

func homeOf(t testing.TB, f *fabric.Fabric, c fabric.LogConfig) regions.HomeLog {
	t.Helper()
	l, err := f.Home(context.Background(), c)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// A store that ran a moment ago is opened by a node whose clock is far off: nothing goes by
// age, however often it is looked at, and the right clock finds everything.
func TestFG1_AWrongClockAtBootDeletesNothing(t *testing.T) {
	for name, off := range map[string]time.Duration{"8 days": 192 * time.Hour,
		"300 days": 7200 * time.Hour, "12 years": 105120 * time.Hour, "back": -192 * time.Hour} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := filled(t)
			for range 2 { // a second start on the same wrong clock is no proof of it
				f := fabrictest.Open(t, func(c *fabric.Config) { c.Dir, c.Clock = dir, wrongBy(off) })
				l := homeOf(t, f, weekLog(t))
				if s, err := f.Sweep(context.Background(), l.ID()); err != nil || s.To != 0 {
					t.Fatalf("swept %+v %v", s, err)
				}
				if h := l.Head(); h.First != 1 || h.Records != 400 {
					t.Fatalf("head %+v", h)
				}
				if err := f.Close(context.Background()); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

// peers is evidence of other regions' clocks, by what they are ahead of the node's.
func peers(offsets ...time.Duration) clock.Evidence {
	var e clock.Evidence
	for i, offset := range offsets {
		e.Peers = append(e.Peers, clock.Peer{Region: fmt.Sprint("peer-", i), Offset: offset, Known: true})
	}
	return e
}

// told is a fabric on dir whose clock was off at its start, and what its node knows of that.
func told(t *testing.T, dir string, c regions.Clock, first clock.Evidence) (*fabric.Fabric, *atomic.Pointer[clock.Evidence]) {
	t.Helper()
	known := &atomic.Pointer[clock.Evidence]{}
	known.Store(&first)
	f := fabrictest.Open(t, func(cfg *fabric.Config) {
		cfg.Dir, cfg.Clock, cfg.Evidence = dir, c, func() clock.Evidence { return *known.Load() }
	})
	return f, known
}

func sweepNow(t *testing.T, f *fabric.Fabric, l regions.Log) fabric.Swept {
	t.Helper()
	s, err := f.Sweep(context.Background(), l.ID())
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// A stop of eight days: nobody can tell it from a clock that is eight days ahead, until two
// peers, the kernel or a person agree. One peer is not enough. Meanwhile what is past its age
// is told, and what was stamped in doubt is kept as long as any record.
func TestFG1_TheDoubtEndsOnceOthersAgree(t *testing.T) {
	const stop = 192 * time.Hour
	now := wrongBy(stop)
	for name, e := range map[string]clock.Evidence{"two peers": peers(0, time.Second),
		"the kernel": {Synced: true, Machine: now.Now()}, "a person": {Checked: true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f, known := told(t, filled(t), now, peers(0))
			l := homeOf(t, f, weekLog(t))
			allStored(t, appendMany(t, l, 400, 410))
			if at := l.Head().Time; at.Sub(now.Now()).Abs() > time.Minute {
				t.Fatalf("stamped %v at %v: a copy that believes its clock would take it for old", at, now.Now())
			}
			if s := sweepNow(t, f, l); s.To != 0 || !f.Clock().Doubt {
				t.Fatalf("swept %+v in %+v", s, f.Clock())
			}
			if h := f.Health().Logs[0]; h.Overdue < 23*time.Hour || h.Overdue > 25*time.Hour {
				t.Fatalf("overdue %v", h.Overdue)
			}
			known.Store(&e)
			if s := sweepNow(t, f, l); s.From != 1 || s.To != 400 || f.Clock().Doubt {
				t.Fatalf("swept %+v in %+v", s, f.Clock())
			}
			if h := f.Health().Logs[0]; h.Overdue != 0 {
				t.Fatalf("overdue %v", h.Overdue)
			}
			allStored(t, appendMany(t, l, 410, 411))
			if at := l.Head().Time; at.Sub(now.Now()).Abs() > time.Minute {
				t.Fatalf("stamped %v at %v", at, now.Now())
			}
		})
	}
}

// One peer that lies, of two: it ends no doubt, and raises none.
func TestFG1_OneLyingPeer(t *testing.T) {
	t.Parallel()
	f, _ := told(t, filled(t), wrongBy(192*time.Hour), peers(0, -192*time.Hour))
	if s := sweepNow(t, f, homeOf(t, f, weekLog(t))); s.To != 0 || !f.Clock().Doubt {
		t.Fatalf("a peer that agrees with a wrong clock ended the doubt: %+v", s)
	}
	dir := filled(t)
	f, known := told(t, dir, wrongBy(0), peers(-192*time.Hour))
	if f.Believe(); !f.Clock().Doubt {
		t.Fatal("in a federation of two disagreement is doubt")
	}
	e := peers(-192*time.Hour, 0)
	known.Store(&e)
	if v := f.Believe(); v.Doubt {
		t.Fatalf("a liar keeps a right clock in doubt: %s", v.Reason)
	}
}

// Retention by bytes asks no clock.
func TestFG1_RetentionByBytesGoesOn(t *testing.T) {
	t.Parallel()
	f, _ := told(t, filled(t), wrongBy(192*time.Hour), clock.Evidence{})
	c := weekLog(t)
	c.MaxBytes = 256 << 10
	l := homeOf(t, f, c)
	for n := 400; l.Head().First < 400; n += 100 {
		for _, s := range appendMany(t, l, n, n+100) {
			if s.Err != nil && api.CodeOf(s.Err) != api.StorageFull {
				t.Fatal(s.Err)
			}
		}
		sweepNow(t, f, l)
		if n > 4000 {
			t.Fatalf("head %+v", l.Head())
		}
	}
	if !f.Clock().Doubt {
		t.Fatal("not in doubt")
	}
}

// What is stamped in doubt is never earlier than it may be, and the right clock finds nothing to
// wait for.
func TestFG1_StampsOfAWrongBootPoisonNothing(t *testing.T) {
	for name, off := range map[string]time.Duration{"ahead": 7200 * time.Hour, "back": -7200 * time.Hour} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := filled(t)
			f, _ := told(t, dir, wrongBy(off), clock.Evidence{})
			l := homeOf(t, f, weekLog(t))
			allStored(t, appendMany(t, l, 400, 410))
			stamped := max(0, off) // a clock that is ahead over a boot may be right: too early a stamp would have copies delete
			if at := l.Head().Time; (time.Until(at)-stamped).Abs() > time.Minute || (time.Until(l.ClosedInstant())-stamped).Abs() > time.Minute {
				t.Fatalf("stamped %v, closed %v", at, l.ClosedInstant())
			}
			f, _ = told(t, closed(t, f, dir), wrongBy(0), clock.Evidence{})
			l = homeOf(t, f, weekLog(t))
			allStored(t, appendMany(t, l, 410, 420))
			if s := sweepNow(t, f, l); s.To != 0 || f.Clock().Doubt || time.Since(l.Head().Time).Abs() > time.Minute {
				t.Fatalf("swept %+v in %+v, stamped %v", s, f.Clock(), l.Head().Time)
			}
		})
	}
}

func closed(t *testing.T, f *fabric.Fabric, dir string) string {
	t.Helper()
	closeNow(t, f)
	return dir
}

// A first run on a clock that is 300 days ahead: nothing tells. Once the kernel knows better,
// stamps come back to the clock, and what was stamped ahead goes when what follows it does.
func TestFG1_StampsAheadOfTheClockAreNotWaitedFor(t *testing.T) {
	t.Parallel()
	start := time.Unix(1_800_000_000, 0)
	dir := t.TempDir()
	f, _ := told(t, dir, regions.NewManualClock(start.Add(7200*time.Hour)), clock.Evidence{})
	allStored(t, appendMany(t, homeOf(t, f, weekLog(t)), 0, 100))
	right := regions.NewManualClock(start)
	closeNow(t, f)
	f = fabrictest.Open(t, func(c *fabric.Config) {
		c.Dir, c.Clock = dir, right
		c.Evidence = func() clock.Evidence { return clock.Evidence{Synced: true, Machine: right.Now()} }
	})
	l := homeOf(t, f, weekLog(t))
	allStored(t, appendMany(t, l, 100, 150))
	if at := l.Head().Time; at.Sub(start).Abs() > clock.Apart || l.ClosedInstant().Sub(start).Abs() > clock.Apart {
		t.Fatalf("stamped %v, closed %v", at, l.ClosedInstant())
	}
	if s := sweepNow(t, f, l); s.To != 0 {
		t.Fatalf("swept %+v", s)
	}
	right.Advance(192 * time.Hour)
	allStored(t, appendMany(t, l, 150, 160))
	if s := sweepNow(t, f, l); s.From != 1 || s.To != 150 || s.Records != 150 {
		t.Fatalf("swept %+v", s)
	}
	if h := l.Head(); h.Records != 10 {
		t.Fatalf("head %+v", h)
	}
}

// A machine that was suspended leaves its node's clock behind, until the node is started again.
func TestFG1_ASuspendedMachine(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var slept atomic.Int64
	began := time.Now()
	boot := func() time.Duration { return time.Since(began) + time.Duration(slept.Load()) }
	open := func() *fabric.Fabric {
		return fabrictest.Open(t, func(c *fabric.Config) {
			c.Dir, c.Clock, c.Boot = dir, wrongBy(time.Duration(slept.Load())), boot
		})
	}
	f := open()
	l := homeOf(t, f, weekLog(t))
	slept.Store(int64(2 * time.Hour))
	v := f.Believe()
	if allStored(t, appendMany(t, l, 0, 1)); !v.Doubt || (time.Until(l.Head().Time)-2*time.Hour).Abs() > time.Minute {
		t.Fatalf("%+v, stamped %v", v, l.Head().Time)
	}
	closeNow(t, f)
	if f = open(); f.Clock().Doubt {
		t.Fatalf("%+v", f.Clock())
	}
}

// A region of three whose nodes are all started with their clocks eight days ahead, and a copy:
// what goes by age there goes by the same clock.
func TestFG1_ARegionOfThreeAndACopy(t *testing.T) {
	t.Parallel()
	r := fabrictest.NewTrio(t, func(c *fabric.Config) { c.Clock = wrongBy(0) })
	r.Start()
	f := r.Node(r.Holder())
	allStored(t, appendMany(t, homeOf(t, f, weekLog(t)), 0, 50))
	there := weekLog(t)
	there.ID = mustID(t, "orders@there")
	item := copied(1)
	item.Time = time.Now().UTC()
	copyLog := func(f *fabric.Fabric) regions.CopyLog {
		t.Helper()
		l, err := f.Copy(context.Background(), there)
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	apply(t, copyLog(f), item)
	for _, node := range []string{"a", "b", "c"} {
		if err := r.Close(node); err != nil {
			t.Fatal(err)
		}
		c := r.Configs[node]
		c.Clock = wrongBy(192 * time.Hour)
		r.Configs[node] = c
	}
	r.Start()
	f = r.Node(r.Holder())
	home := homeOf(t, f, weekLog(t))
	for _, l := range []regions.Log{home, copyLog(f)} {
		if s := sweepNow(t, f, l); s.To != 0 || !f.Clock().Doubt {
			t.Fatalf("swept %+v of %s in %+v", s, l.ID(), f.Clock())
		}
	}
	allStored(t, appendMany(t, home, 50, 60))
	if at := home.Head().Time; time.Since(at).Abs() > time.Minute || time.Until(home.ClosedInstant()) > time.Minute {
		t.Fatalf("stamped %v, closed %v", at, home.ClosedInstant())
	}
}
