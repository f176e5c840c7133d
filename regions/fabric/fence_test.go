package fabric_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"domicile/api"
	"domicile/regions"
	"domicile/regions/fabric"
	"domicile/regions/fabric/fabrictest"
)

// epoch is the n-th epoch of a log; the first is the static one of region "here".
func epoch(n int) api.Epoch {
	if n == 1 {
		return api.StaticEpoch("here")
	}
	return api.Epoch{Term: 1, Counter: uint64(n), Issuer: "q"}
}

func logIn(t testing.TB, e api.Epoch, change ...func(*fabric.LogConfig)) fabric.LogConfig {
	c := fabric.LogConfig{ID: mustID(t, "orders@here"), Epoch: e, MaxBytes: 64 << 20}
	for _, f := range change {
		f(&c)
	}
	return c
}

func homeIn(t testing.TB, f *fabric.Fabric, e api.Epoch, change ...func(*fabric.LogConfig)) regions.HomeLog {
	t.Helper()
	l, err := f.Home(context.Background(), logIn(t, e, change...))
	if err != nil {
		t.Fatalf("open home in %s: %v", e, err)
	}
	return l
}

func fence(t testing.TB, f *fabric.Fabric, e api.Epoch, op string) fabric.Cut {
	t.Helper()
	cut, err := f.Fence(context.Background(), mustID(t, "orders@here"), e, op)
	if err != nil {
		t.Fatalf("fence %s: %v", e, err)
	}
	return cut
}

// writers append until stop; what they were told is by record.
type writers struct {
	stop atomic.Bool
	wg   sync.WaitGroup
	mu   sync.Mutex
	told map[int]regions.Stored
}

func startWriters(l regions.HomeLog, n int) *writers {
	w := &writers{told: map[int]regions.Stored{}}
	var next atomic.Int64
	for range n {
		w.wg.Go(func() {
			for !w.stop.Load() {
				i := int(next.Add(1)) - 1
				done := make(chan regions.Stored, 1)
				l.Append(regions.Draft{Record: record(i)}, func(s regions.Stored) { done <- s })
				s := <-done
				w.mu.Lock()
				w.told[i] = s
				w.mu.Unlock()
			}
		})
	}
	return w
}

func (w *writers) count() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.told)
}

func (w *writers) end() map[int]regions.Stored {
	w.stop.Store(true)
	w.wg.Wait()
	return w.told
}

// noneAbove fails unless the log holds exactly what ends at the cut, and every record that
// was acknowledged is in it.
func noneAbove(t testing.TB, l regions.Log, told map[int]regions.Stored, cut fabric.Cut) {
	t.Helper()
	byID := map[string]uint64{}
	for _, it := range readPatiently(t, l) {
		if it.Sequence > cut.Sequence {
			t.Fatalf("sequence %d lies above the cut %d", it.Sequence, cut.Sequence)
		}
		byID[it.Record.ID] = it.Sequence
	}
	if uint64(len(byID)) != cut.Sequence {
		t.Fatalf("%d records below the cut %d", len(byID), cut.Sequence)
	}
	acked := 0
	for i, s := range told {
		switch {
		case s.Err == nil && (s.Position.Sequence > cut.Sequence || byID[record(i).ID] != s.Position.Sequence):
			t.Fatalf("record %d was acknowledged at %d, the cut is %d, it lies at %d", i, s.Position.Sequence, cut.Sequence, byID[record(i).ID])
		case s.Err == nil:
			acked++
		case !api.CodeOf(s.Err).Retryable():
			t.Fatalf("record %d: %v", i, s.Err)
		}
	}
	t.Logf("%d acknowledged, cut at %d", acked, cut.Sequence)
}

// R14g: a fence under load: nothing is acknowledged above the marker, nothing below it is
// lost, every later call and start has the same cut, and no closed instant passes it.
func TestR14g_FenceUnderLoad(t *testing.T) {
	dir := t.TempDir()
	f := fabrictest.Open(t, func(c *fabric.Config) { c.Dir = dir })
	l := homeIn(t, f, epoch(1))
	w := startWriters(l, 16)
	eventually(t, "a load", func() bool { return w.count() > 500 })
	start := time.Now()
	cut := fence(t, f, epoch(1), "op-1")
	t.Logf("the fence took %v", time.Since(start))
	if at := l.ClosedInstant(); at.After(cut.Closed) {
		t.Errorf("closed instant %v after the last one there may be, %v", at, cut.Closed)
	}
	told := w.end()
	refused := 0
	for _, s := range told {
		if s.Err != nil {
			wantCode(t, s.Err, api.Fenced)
			refused++
		}
	}
	if refused == 0 {
		t.Error("nobody met the fence")
	}
	noneAbove(t, l, told, cut)
	if again := fence(t, f, epoch(1), "op-2"); again != cut {
		t.Fatalf("asked again: %+v, first %+v", again, cut)
	}
	if s, err := f.Sweep(context.Background(), l.ID()); err != nil || s.To != 0 {
		t.Errorf("retention of a fenced log: %+v %v", s, err)
	}
	f = reopen(t, f, dir)
	_, err := f.Home(context.Background(), logIn(t, epoch(1)))
	wantCode(t, err, api.StaleEpoch)
	c, err := f.Copy(context.Background(), logIn(t, api.Epoch{}))
	if err != nil {
		t.Fatal(err)
	}
	if again := fence(t, f, epoch(1), "op-1"); again != cut {
		t.Fatalf("after a start: %+v, first %+v", again, cut)
	}
	noneAbove(t, c, told, cut)
	if at := c.Cursor(); at.Sequence != cut.Sequence || at.Epoch != epoch(1) || at.Ledger.Sum() != at.Sequence {
		t.Fatalf("cursor %+v", at)
	}
}

// S2: a fenced epoch never opens again, nor an earlier or a rival one; a later one goes on
// right behind the cut, stamps no record below what was closed, and knows all ids.
func TestS2_FencedEpochNeverReopens(t *testing.T) {
	dir := t.TempDir()
	clock := regions.NewManualClock(time.Unix(1_800_000_000, 0))
	f := fabrictest.Open(t, func(c *fabric.Config) { c.Dir, c.Clock = dir, clock })
	allStored(t, appendMany(t, homeIn(t, f, epoch(2)), 0, 100))
	cut := fence(t, f, epoch(2), "op")
	rival := epoch(2)
	rival.Issuer = "rival"
	for name, e := range map[string]api.Epoch{"the same": epoch(2), "an earlier one": epoch(1), "a rival": rival} {
		for range 2 {
			f = reopen(t, f, dir, func(c *fabric.Config) { c.Clock = clock })
			if h, ok, err := f.Held(context.Background(), logIn(t, e).ID); err != nil || !ok || !h.Ended || h.Epoch != epoch(2) {
				t.Fatalf("not open, the store holds %+v %v %v", h, ok, err)
			}
			if _, err := f.Home(context.Background(), logIn(t, e)); api.CodeOf(err) != api.StaleEpoch {
				t.Fatalf("%s: %v", name, err)
			}
		}
	}
	_, err := f.Home(context.Background(), logIn(t, api.Epoch{}))
	wantCode(t, err, api.ConfigInvalid)
	clock.Advance(time.Minute)
	sealed := homeIn(t, f, epoch(2), func(c *fabric.LogConfig) { c.Sealed = true })
	if s := fabrictest.Append(t, sealed, record(600)); api.CodeOf(s.Err) != api.Fenced {
		t.Fatalf("a sealed home took a record: %+v", s)
	}
	if at := sealed.ClosedInstant(); !at.Equal(cut.Closed) {
		t.Fatalf("a sealed home calls %s closed, its fence %s", at, cut.Closed)
	}
	if items := fabrictest.ReadAll(t, sealed, 0); len(items) != 100 || fence(t, f, epoch(2), "op") != cut {
		t.Fatalf("a sealed home gives %d records", len(items))
	}
	closeLog(t, f)
	clock.Advance(-time.Hour)
	l := homeIn(t, f, epoch(3), func(c *fabric.LogConfig) { c.NotBefore = cut.Closed })
	if s := fabrictest.Append(t, l, record(7)); !s.Duplicate || s.Position.Sequence != 8 || s.Position.Epoch != epoch(2) {
		t.Fatalf("a retry: %+v", s)
	}
	s := fabrictest.Append(t, l, record(500))
	if s.Err != nil || s.Position.Sequence != cut.Sequence+1 || s.Position.Epoch != epoch(3) || s.Time.Before(cut.Closed) {
		t.Fatalf("the first of the next epoch: %+v, cut %+v", s, cut)
	}
	f = reopen(t, f, dir, func(c *fabric.Config) { c.Clock = clock })
	if h, ok, err := f.Held(context.Background(), l.ID()); err != nil || !ok || h.Role != regions.RoleHome || h.Epoch != epoch(3) || h.Ended || h.Incarnation != s.Position.Incarnation {
		t.Fatalf("not open, the store holds %+v %v %v", h, ok, err)
	}
	_, err = f.Home(context.Background(), logIn(t, epoch(2)))
	wantCode(t, err, api.StaleEpoch)
	l = homeIn(t, f, epoch(3))
	if h := l.Head(); h.Sequence != 101 || h.Epoch != epoch(3) {
		t.Fatalf("head %+v", h)
	}
	denseAndOnce(t, l, 101)
}

// A fence whose answers are lost has its cut from the log itself.
func TestR14g_FenceReadsItsMarkerBack(t *testing.T) {
	var drop atomic.Int32
	f := fabrictest.Open(t, func(c *fabric.Config) {
		c.Hooks.DropAck = func(api.LogID) bool { return drop.Add(-1) >= 0 }
		c.Hooks.Step = func(step string) {
			if step == "admission stopped" {
				drop.Store(2)
			}
		}
	})
	l := homeIn(t, f, epoch(1))
	allStored(t, appendMany(t, l, 0, 50))
	if cut := fence(t, f, epoch(1), "op"); cut.Sequence != 50 || cut.Op != "op" {
		t.Fatalf("cut %+v", cut)
	}
	if n := len(fabrictest.ReadAll(t, l, 0)); n != 50 {
		t.Fatalf("%d items", n)
	}
}

// R14g: killed at any step of a fence, the log is either in its epoch as before, or ended at
// a cut that every later call names.
func TestR14g_KilledDuringFence(t *testing.T) {
	for step, ended := range map[string]bool{"admission stopped": false, "fenced": true} {
		t.Run(step, func(t *testing.T) {
			dir := died(t, "fence", step)
			f := fabrictest.Open(t, func(c *fabric.Config) { c.Dir = dir })
			l, err := f.Home(context.Background(), logIn(t, epoch(1)))
			if !ended {
				if err != nil {
					t.Fatal(err)
				}
				denseAndOnce(t, l, 100)
			} else {
				wantCode(t, err, api.StaleEpoch)
				if _, err := f.Copy(context.Background(), logIn(t, api.Epoch{})); err != nil {
					t.Fatal(err)
				}
			}
			if cut := fence(t, f, epoch(1), "op"); cut.Sequence != 100 {
				t.Fatalf("cut %+v", cut)
			}
		})
	}
}

// The last marker counts, also when retention has taken what lies around it, and a log
// whose marker is gone is refused.
func TestS2_MarkerOutlivesRetention(t *testing.T) {
	dir := t.TempDir()
	clock := regions.NewManualClock(time.Unix(1_800_000_000, 0))
	open := func(f *fabric.Fabric) *fabric.Fabric {
		return reopen(t, f, dir, func(c *fabric.Config) { c.Clock = clock })
	}
	f := fabrictest.Open(t, func(c *fabric.Config) { c.Dir, c.Clock = dir, clock })
	hour := func(c *fabric.LogConfig) { c.MaxAge = time.Hour }
	allStored(t, appendMany(t, homeIn(t, f, epoch(1), hour), 0, 50))
	fence(t, f, epoch(1), "op")
	f = open(f)
	l := homeIn(t, f, epoch(2), hour)
	allStored(t, appendMany(t, l, 50, 100))
	for i := range 3 {
		clock.Advance(2 * time.Hour)
		allStored(t, appendMany(t, l, 100+i, 101+i))
		if s, err := f.Sweep(context.Background(), l.ID()); err != nil || s.To != uint64(100+i) {
			t.Fatalf("swept %+v %v", s, err)
		}
	}
	f = open(f)
	_, err := f.Home(context.Background(), logIn(t, epoch(1)))
	wantCode(t, err, api.StaleEpoch)
	if h := homeIn(t, f, epoch(2), hour).Head(); h.Sequence != 103 || h.Records != 1 {
		t.Fatalf("head %+v", h)
	}
	if err := f.DropMarkers(context.Background(), l.ID()); err != nil {
		t.Fatal(err)
	}
	f = open(f)
	_, err = f.Home(context.Background(), logIn(t, epoch(2)))
	wantCode(t, err, api.StorageFailed)
	t.Log(err)
}

// Scenario 11: the stream's leader steps down while the marker is being appended, and so
// does the seat. No record is acknowledged above the marker, and whoever holds the seat
// next finds the same cut.
func TestScenario11_LeaderStepsDownDuringFence(t *testing.T) {
	t.Parallel() // it mostly waits for elections
	r := fabrictest.NewTrio(t)
	var once sync.Once
	for node, c := range r.Configs {
		c.Hooks.Step = func(step string) {
			if step == "admission stopped" {
				once.Do(func() { r.Node(node).MoveLeader(context.Background(), mustID(t, "orders@here")) })
			}
		}
		r.Configs[node] = c
	}
	r.Start()
	holder := r.Holder()
	f := r.Node(holder)
	l := homeIn(t, f, epoch(1))
	w := startWriters(l, 16)
	eventually(t, "a load", func() bool { return w.count() > 300 })
	id := mustID(t, "orders@here")
	cut, err := f.Fence(context.Background(), id, epoch(1), "op")
	t.Logf("first answer: %+v %v", cut, err)
	told := w.end()
	if err := f.StepDown(context.Background()); err != nil {
		t.Log(err)
	}
	for range 2 { // by the next holder, and by the one after it
		_ = f.Vacate(context.Background())
		holder = r.Holder(holder)
		f = r.Node(holder)
		again, l := fencedAt(t, r, f, id)
		if err == nil && again != cut {
			t.Fatalf("the cut was %+v and is %+v", cut, again)
		}
		cut, err = again, nil
		noneAbove(t, l, told, cut)
		_ = f.StepDown(context.Background())
	}
}

// fencedAt goes on with the fence at a node that took the seat, as its owner would: a log
// that is not fenced yet opens as a home, another one as a copy.
func fencedAt(t *testing.T, r *fabrictest.Trio, f *fabric.Fabric, id api.LogID) (cut fabric.Cut, l regions.Log) {
	t.Helper()
	eventually(t, "the fence is answered", func() bool {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		home, err := f.Home(ctx, logIn(t, epoch(1)))
		if l = home; api.CodeOf(err) == api.StaleEpoch {
			l, err = f.Copy(ctx, logIn(t, api.Epoch{}))
		}
		if err == nil || api.CodeOf(err) == api.ConfigInvalid { // it is open
			cut, err = f.Fence(ctx, id, epoch(1), "op")
		}
		if err != nil {
			t.Log(err)
			_ = f.CloseLog(ctx, id)
		}
		return err == nil
	})
	return cut, l
}
