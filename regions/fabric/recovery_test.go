package fabric_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"domicile/api"
	"domicile/regions"
	"domicile/regions/fabric"
	"domicile/regions/fabric/fabrictest"
)

func reopen(t *testing.T, f *fabric.Fabric, dir string, change ...func(*fabric.Config)) *fabric.Fabric {
	t.Helper()
	closeNow(t, f)
	return fabrictest.Open(t, append([]func(*fabric.Config){func(c *fabric.Config) { c.Dir = dir }}, change...)...)
}

func closeNow(t *testing.T, f *fabric.Fabric) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	start := time.Now()
	if err := f.Close(ctx); err != nil && api.CodeOf(err) != api.OutcomeUnknown {
		t.Fatalf("close: %v", err)
	}
	if took := time.Since(start); took > 8*time.Second {
		t.Errorf("close took %s", took)
	}
}

// denseAndOnce fails unless the log holds sequences 1 to n, each id once.
func denseAndOnce(t *testing.T, l regions.Log, n int) []regions.Item {
	t.Helper()
	items := fabrictest.ReadAll(t, l, 0)
	ids := map[string]bool{}
	for i, it := range items {
		if it.Sequence != uint64(i+1) || it.Gap != nil || ids[it.Record.ID] {
			t.Fatalf("item %d: sequence %d, gap %v, seen %v", i, it.Sequence, it.Gap, ids[it.Record.ID])
		}
		ids[it.Record.ID] = true
	}
	if len(items) != n {
		t.Fatalf("%d items, want %d", len(items), n)
	}
	return items
}

// RA5: the broker took a batch and its answer was lost. The log is read back by id;
// callers get one clear answer and nothing is stored twice.
func TestRA5_LostBatchAnswerIsReadBack(t *testing.T) {
	var drop atomic.Int32
	f := fabrictest.Open(t, func(c *fabric.Config) {
		c.Hooks.DropAck = func(api.LogID) bool { return drop.Add(-1) >= 0 }
	})
	l := fabrictest.Home(t, f, "orders@here")
	allStored(t, appendMany(t, l, 0, 10))
	drop.Store(3)
	allStored(t, appendMany(t, l, 10, 2500))
	denseAndOnce(t, l, 2500)
}

// RA5: the writer's connection dies at any moment under load.
func TestRA5_LostConnectionIsReadBack(t *testing.T) {
	f := fabrictest.Open(t)
	l := fabrictest.Home(t, f, "orders@here")
	stop := make(chan struct{})
	cut := make(chan struct{})
	go func() {
		defer close(cut)
		tick := time.NewTicker(3 * time.Millisecond)
		defer tick.Stop()
		for n := 0; n < 30; n++ {
			select {
			case <-tick.C:
				f.CutWire()
			case <-stop:
				return
			}
		}
	}()
	for from := 0; from < 6000; from += 2000 {
		allStored(t, appendMany(t, l, from, from+2000))
	}
	close(stop)
	<-cut
	denseAndOnce(t, l, 6000)
}

// Decision 11: whoever takes over appends a marker; the stale writer stops there.
func TestR14g_StaleWriterStops(t *testing.T) {
	f := fabrictest.Open(t)
	l := fabrictest.Home(t, f, "orders@here")
	got := appendMany(t, l, 0, 5)
	allStored(t, got)
	if err := f.ForeignTakeOver(context.Background(), l.ID(), got[4].Position, 9); err != nil {
		t.Fatal(err)
	}
	for _, s := range appendMany(t, l, 5, 8) {
		wantCode(t, s.Err, api.NotReady)
	}
	wantCode(t, fabrictest.Append(t, l, record(9)).Err, api.NotReady)
	if h := l.Head(); h.Sequence != 5 {
		t.Fatalf("head %+v", h)
	}
	if h := f.Health(); h.Failed || h.Logs[0].Stopped == "" {
		t.Fatalf("health %+v", h)
	}
}

func TestRA1_CleanStartKeepsTermAndIDs(t *testing.T) {
	dir := t.TempDir()
	f := fabrictest.Open(t, func(c *fabric.Config) { c.Dir = dir })
	l := fabrictest.Home(t, f, "Orders.EU@here")
	first := appendMany(t, l, 0, 50)
	allStored(t, first)
	id := f.ID()
	f = reopen(t, f, dir)
	if f.ID() != id {
		t.Error("the fabric's id changed")
	}
	l = fabrictest.Home(t, f, "Orders.EU@here")
	if h := l.Head(); h.Term != 1 || h.Sequence != 50 || h.Records != 50 || h.Incarnation != first[0].Position.Incarnation {
		t.Fatalf("head %+v", h)
	}
	for i, s := range appendMany(t, l, 0, 50) {
		if s.Err != nil || !s.Duplicate || s.Position != first[i].Position {
			t.Fatalf("append %d again: %+v", i, s)
		}
	}
	if s := fabrictest.Append(t, l, record(50)); s.Err != nil || s.Position.Sequence != 51 || s.Time.Before(first[49].Time) {
		t.Fatalf("next: %+v", s)
	}
}

// Decision 2: a failed sync is final for the run; in the same boot the tail is written
// anew, with the same sequences and ids under a new term.
func TestRA1_FailedSyncFencesAndRewrites(t *testing.T) {
	for _, reboot := range []bool{false, true} {
		t.Run(map[bool]string{false: "same boot", true: "after a reboot"}[reboot], func(t *testing.T) { failedSync(t, reboot) })
	}
}

func failedSync(t *testing.T, reboot bool) {
	dir := t.TempDir()
	var broken atomic.Bool
	f := fabrictest.Open(t, func(c *fabric.Config) {
		c.Dir = dir
		c.Hooks.Sync = func(d *os.File) error {
			if broken.Load() {
				return errors.New("input/output error")
			}
			return fabric.Syncfs(d)
		}
	})
	l := fabrictest.Home(t, f, "orders@here")
	allStored(t, appendMany(t, l, 0, 100))
	broken.Store(true)
	unknown := 0
	for _, s := range appendMany(t, l, 100, 150) {
		switch api.CodeOf(s.Err) {
		case api.OutcomeUnknown:
			unknown++
		case api.StorageFailed:
		default:
			t.Fatalf("outcome %v while the disk fails", s.Err)
		}
	}
	wantCode(t, fabrictest.Append(t, l, record(200)).Err, api.StorageFailed)
	if h := f.Health(); !h.Failed || h.Since.IsZero() || !strings.Contains(h.Reason, "sync") {
		t.Fatalf("health %+v", h)
	}
	if h := l.Head(); h.Sequence != 100 || unknown == 0 {
		t.Fatalf("head %+v, unknown %d", h, unknown)
	}
	f = reopen(t, f, dir, func(c *fabric.Config) {
		if reboot {
			c.Hooks.BootID = "another"
		}
	})
	l = fabrictest.Home(t, f, "orders@here")
	h := l.Head()
	if h.Term < 2 || h.Sequence < 100 || h.Records != h.Sequence {
		t.Fatalf("head %+v", h)
	}
	items := denseAndOnce(t, l, int(h.Sequence))
	for i, it := range items {
		if it.Record.ID != record(i).ID {
			t.Fatalf("sequence %d changed its id", it.Sequence)
		}
		if rewritten := it.Term == 2; rewritten != (!reboot && i >= 100) {
			t.Fatalf("sequence %d has term %d", it.Sequence, it.Term)
		}
	}
	for _, s := range appendMany(t, l, 0, int(h.Sequence)) {
		if s.Err != nil || !s.Duplicate {
			t.Fatalf("retry: %+v", s)
		}
	}
}

// Decision 2 again: the rewrite itself is cut short, at its own sync, and done over.
func TestRA1_RewriteCutShortIsDoneOver(t *testing.T) {
	dir := t.TempDir()
	var broken atomic.Bool
	var left atomic.Int32 // syncs that still go well
	syncfs := func(d *os.File) error {
		if broken.Load() && left.Add(-1) < 0 {
			return errors.New("input/output error")
		}
		return fabric.Syncfs(d)
	}
	hook := func(c *fabric.Config) { c.Dir, c.Hooks.Sync = dir, syncfs }
	f := fabrictest.Open(t, hook)
	l := fabrictest.Home(t, f, "orders@here")
	cp := fabrictest.Copy(t, f, "orders@there")
	allStored(t, appendMany(t, l, 0, 20))
	apply(t, cp, copied(1), gap(regions.Withheld, 2, 3))
	broken.Store(true)
	if _, err := cp.Apply(context.Background(), "inc-1", []regions.Item{copied(4), gap(regions.Withheld, 5, 6), copied(7)}); err == nil {
		t.Fatal("applied on a broken disk")
	}
	closeNow(t, f)
	left.Store(1) // of the start; the one inside the rewrite fails
	cfg := fabrictest.Config(t)
	hook(&cfg)
	if _, err := fabric.Open(context.Background(), cfg); err == nil {
		t.Fatal("opened on a broken disk")
	}
	broken.Store(false)
	f = fabrictest.Open(t, hook)
	cp = fabrictest.Copy(t, f, "orders@there")
	c := cp.Cursor()
	if c.Sequence != 7 || c.Ledger != (regions.Ledger{Mirrored: 3, Withheld: 4}) {
		t.Fatalf("cursor %+v", c)
	}
	items := fabrictest.ReadAll(t, cp, 0)
	if len(items) != 5 || items[4].Sequence != 7 || items[4].Term != 3 {
		t.Fatalf("%d items: %+v", len(items), items)
	}
	denseAndOnce(t, fabrictest.Home(t, f, "orders@here"), 20)
	apply(t, cp, copied(8))
}

// RA1: the hooks alone can see whether the barrier works: before each release a sync
// began that came after the record was written.
func TestRA1_HooksSeeTheBarrier(t *testing.T) {
	for _, noBarrier := range []bool{false, true} {
		var mu sync.Mutex
		var written, covered uint64
		early := 0
		f := fabrictest.Open(t, func(c *fabric.Config) {
			c.Hooks.NoBarrier = noBarrier
			c.Hooks.Written = func(_ api.LogID, seq uint64) { mu.Lock(); defer mu.Unlock(); written = seq }
			c.Hooks.Sync = func(d *os.File) error {
				mu.Lock()
				began := written
				mu.Unlock()
				err := fabric.Syncfs(d)
				mu.Lock()
				defer mu.Unlock()
				covered = began
				return err
			}
			c.Hooks.Released = func(_ api.LogID, seq uint64) {
				mu.Lock()
				defer mu.Unlock()
				if seq > covered {
					early++
				}
			}
		})
		allStored(t, appendMany(t, fabrictest.Home(t, f, "orders@here"), 0, 2000))
		mu.Lock()
		if (early > 0) != noBarrier {
			t.Errorf("barrier off %v: %d releases before their sync", noBarrier, early)
		}
		mu.Unlock()
	}
}

// A hole that is not retention's is what the disk lost; a reader says so and goes on.
func TestR14d_HoleIsAGap(t *testing.T) {
	f := fabrictest.Open(t)
	l := fabrictest.Home(t, f, "orders@here")
	allStored(t, appendMany(t, l, 0, 10))
	s, err := f.JetStream().Stream(context.Background(), fabric.StreamName(l.ID()))
	if err != nil {
		t.Fatal(err)
	}
	for _, seq := range []uint64{4, 5} {
		if err := s.DeleteMsg(context.Background(), seq); err != nil {
			t.Fatal(err)
		}
	}
	items := fabrictest.ReadAll(t, l, 0)
	if len(items) != 9 || items[3].Gap == nil || items[3].Gap.Kind != regions.Damaged || items[3].Gap.From != 4 || items[3].Gap.To != 5 {
		t.Fatalf("%d items, fourth %+v", len(items), items[3])
	}
}

// What the store's format can't hold is refused; it does not hold up what follows.
func TestRT3_TooLargeForTheFormat(t *testing.T) {
	f := fabrictest.Open(t)
	l := fabrictest.Home(t, f, "orders@here")
	r := record(0)
	r.Headers = []api.Header{{Name: "big", Value: strings.Repeat("x", 70<<10)}}
	wantCode(t, fabrictest.Append(t, l, r).Err, api.HeadersTooLarge)
	largest := record(1)
	largest.Body = make([]byte, api.MaxBody)
	largest.Headers = []api.Header{{Name: "big", Value: strings.Repeat("x", api.MaxHeaderBytes-3)}}
	allStored(t, append(appendMany(t, l, 2, 5), fabrictest.Append(t, l, largest)))
}

func TestRA1_MarksAreChecked(t *testing.T) {
	dir := t.TempDir()
	f := fabrictest.Open(t, func(c *fabric.Config) { c.Dir = dir })
	fabrictest.Home(t, f, "orders@here")
	open := func(change func(*fabric.Config)) error {
		cfg := fabrictest.Config(t)
		cfg.Dir = dir
		change(&cfg)
		f, err := fabric.Open(context.Background(), cfg)
		if err == nil {
			_ = f.Close(context.Background())
		}
		return err
	}
	wantCode(t, open(func(*fabric.Config) {}), api.ConfigInvalid) // in use
	closeNow(t, f)
	edit := func(field string, value any) {
		t.Helper()
		path := filepath.Join(dir, "identity.json")
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		m := map[string]any{}
		if err := json.Unmarshal(b, &m); err != nil {
			t.Fatal(err)
		}
		old := m[field]
		m[field] = value
		write := func() {
			b, _ := json.Marshal(m)
			if err := os.WriteFile(path, b, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		write()
		err = open(func(*fabric.Config) {})
		wantCode(t, err, api.ConfigInvalid)
		var e *api.Error
		if !errors.As(err, &e) || e.Field != field {
			t.Errorf("%s: the error names %q", field, e.Field)
		}
		m[field] = old
		write()
	}
	edit("mode", "quorum")
	edit("format", 99)
	edit("region", "elsewhere")
	edit("federation", "other")
	wantCode(t, open(func(c *fabric.Config) { c.Dir = filepath.Dir(dir) }), api.ConfigInvalid) // not empty
	if err := open(func(*fabric.Config) {}); err != nil {
		t.Fatalf("unchanged: %v", err)
	}
}

// A log that the store's list knows is never made anew.
func TestRA1_MissingLogIsRefused(t *testing.T) {
	dir := t.TempDir()
	f := fabrictest.Open(t, func(c *fabric.Config) { c.Dir = dir })
	l := fabrictest.Home(t, f, "orders@here")
	if err := f.DeleteStream(context.Background(), l.ID()); err != nil {
		t.Fatal(err)
	}
	closeNow(t, f)
	f = fabrictest.Open(t, func(c *fabric.Config) { c.Dir = dir })
	_, err := f.Home(context.Background(), fabric.LogConfig{ID: l.ID(), Epoch: api.StaticEpoch("here"), MaxBytes: 1 << 20})
	wantCode(t, err, api.ConfigInvalid)
}

func TestRA1_KindIsChecked(t *testing.T) {
	dir := t.TempDir()
	f := fabrictest.Open(t, func(c *fabric.Config) { c.Dir = dir })
	fabrictest.Home(t, f, "orders@here")
	f = reopen(t, f, dir)
	id, _ := api.ParseLogID("orders@here")
	_, err := f.Copy(context.Background(), fabric.LogConfig{ID: id, MaxBytes: 1 << 20})
	wantCode(t, err, api.ConfigInvalid)
	_, err = f.Home(context.Background(), fabric.LogConfig{ID: id})
	wantCode(t, err, api.ConfigInvalid)
	_, err = f.Home(context.Background(), fabric.LogConfig{ID: api.LogID{Topic: "x", Slot: "here"}, Epoch: api.StaticEpoch("here"), MaxBytes: 2 << 30})
	wantCode(t, err, api.ConfigInvalid)
}

// R14d: the closed instant is never past a record that is still to come, and ingest
// times never go back, whatever the clock does.
func TestR14d_ClosedInstant(t *testing.T) {
	clock := regions.NewManualClock(time.Unix(1_800_000_000, 0))
	f := fabrictest.Open(t, func(c *fabric.Config) { c.Clock = clock })
	l := fabrictest.Home(t, f, "orders@here")
	if got := l.ClosedInstant(); !got.Equal(clock.Now()) {
		t.Fatalf("idle: %s", got)
	}
	clock.Advance(-time.Hour)
	s := fabrictest.Append(t, l, record(0))
	if s.Err != nil || s.Time.Before(time.Unix(1_800_000_000, 0)) {
		t.Fatalf("stamp %s (%v) lies before a closed instant", s.Time, s.Err)
	}
}

// RD1: the ids of the last ten minutes are known again after a start, also when they
// are more than the index keeps at any age; older ones only up to that number.
func TestRD1_StartKeepsTheIDsOfTenMinutes(t *testing.T) {
	dir := t.TempDir()
	clock := regions.NewManualClock(time.Unix(1_800_000_000, 0))
	open := func(c *fabric.Config) { c.Dir, c.Clock = dir, clock }
	f := fabrictest.Open(t, open)
	l := fabrictest.Home(t, f, "orders@here")
	allStored(t, appendMany(t, l, 0, 500))
	clock.Advance(5 * time.Minute)
	allStored(t, appendMany(t, l, 500, 1000))
	for _, step := range []struct {
		later time.Duration
		ids   int
	}{{0, 1000}, {6 * time.Minute, 500}, {time.Hour, 100}} {
		clock.Advance(step.later)
		closeNow(t, f)
		f = fabrictest.Open(t, open)
		f.KeepIDs(100)
		l = fabrictest.Home(t, f, "orders@here")
		if ids := f.Health().Usage.IDs; ids != step.ids {
			t.Fatalf("%s later %d ids are known, want %d", step.later, ids, step.ids)
		}
		if s := fabrictest.Append(t, l, record(1000-step.ids)); s.Err != nil || !s.Duplicate {
			t.Fatalf("%s later: %+v", step.later, s)
		}
	}
}

// Decision 2 on a store whose logs fill all that it may use: the tail is twice there for
// a while, and that must not keep the region from starting.
func TestRA1_RewriteNeedsNoSpareStore(t *testing.T) {
	dir := t.TempDir()
	var broken atomic.Bool
	hook := func(c *fabric.Config) {
		c.Dir, c.MaxStore = dir, 2<<20
		c.Hooks.Sync = func(d *os.File) error {
			if broken.Load() {
				return errors.New("input/output error")
			}
			return fabric.Syncfs(d)
		}
	}
	log := fabric.LogConfig{ID: mustID(t, "orders@here"), Epoch: api.StaticEpoch("here"), MaxBytes: 1 << 20}
	f := fabrictest.Open(t, hook)
	l, err := f.Home(context.Background(), log)
	if err != nil {
		t.Fatal(err)
	}
	allStored(t, appendMany(t, l, 0, 10))
	broken.Store(true)
	appendMany(t, l, 10, 500)
	closeNow(t, f)
	broken.Store(false)
	f = fabrictest.Open(t, hook)
	if l, err = f.Home(context.Background(), log); err != nil {
		t.Fatal(err)
	}
	denseAndOnce(t, l, int(l.Head().Sequence))
	if h := l.Head(); h.Sequence < 11 || h.Term < 2 {
		t.Fatalf("head %+v", h)
	}
}

// Decision 2: the mark of the failed sync reaches the next start also when the disk has
// no room for another file.
func TestRA1_FailedSyncIsMarkedOnAFullDisk(t *testing.T) {
	dir := t.TempDir()
	var broken atomic.Bool
	f := fabrictest.Open(t, func(c *fabric.Config) {
		c.Dir = dir
		c.Hooks.Sync = func(*os.File) error {
			if broken.Load() {
				return errors.New("input/output error")
			}
			return nil
		}
	})
	l := fabrictest.Home(t, f, "orders@here")
	allStored(t, appendMany(t, l, 0, 5))
	blocker := filepath.Join(dir, "run.json.new")
	if err := os.Mkdir(blocker, 0o700); err != nil {
		t.Fatal(err)
	}
	broken.Store(true)
	wantCode(t, fabrictest.Append(t, l, record(5)).Err, api.OutcomeUnknown)
	closeNow(t, f)
	if err := os.Remove(blocker); err != nil {
		t.Fatal(err)
	}
	f = fabrictest.Open(t, func(c *fabric.Config) { c.Dir = dir })
	items := denseAndOnce(t, fabrictest.Home(t, f, "orders@here"), 6)
	if items[4].Term != 1 || items[5].Term != 2 {
		t.Fatalf("terms %d and %d: the tail was not written anew", items[4].Term, items[5].Term)
	}
}

// Decision 11: a writer that stops gives back what its callers held.
func TestR14g_StoppedWriterHoldsNothing(t *testing.T) {
	f := fabrictest.Open(t)
	l := fabrictest.Home(t, f, "orders@here")
	s := fabrictest.Append(t, l, record(0))
	if err := f.ForeignTakeOver(context.Background(), l.ID(), s.Position, 9); err != nil {
		t.Fatal(err)
	}
	for _, s := range appendMany(t, l, 1, 5000) {
		wantCode(t, s.Err, api.NotReady)
	}
	waitFor(t, 60*time.Second, func() bool { return f.Health().Usage.Held == 0 })
}
