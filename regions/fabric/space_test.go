package fabric_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"domicile/api"
	"domicile/regions"
	"domicile/regions/fabric"
	"domicile/regions/fabric/fabrictest"
)

const gib = 1 << 30

// volume is a file system that tests fill. The reserve of its 100 GiB is 1 GiB.
func volume(free *atomic.Int64) func(*fabric.Config) {
	return func(c *fabric.Config) {
		c.Hooks.Free = func(string) (int64, int64, error) { return free.Load(), 100 * gib, nil }
	}
}

// Report B39: the high-water mark. New records are refused with the figures before the
// disk is full; what is stored is read, a retry is answered, and appends are taken again
// only when there is room to spare.
func TestB39_HighWaterRefusesNewRecordsOnly(t *testing.T) {
	var free atomic.Int64
	free.Store(50 * gib)
	f := fabrictest.Open(t, volume(&free), func(c *fabric.Config) { c.Pace = 0.25 })
	l := fabrictest.Home(t, f, "orders@here")
	cp := fabrictest.Copy(t, f, "orders@there")
	allStored(t, appendMany(t, l, 0, 20))
	apply(t, cp, copied(1))
	low := func(want bool) func() bool {
		return func() bool { v := f.Health().Volume; return v.Known && v.Free == free.Load() && v.Low.IsZero() != want }
	}
	free.Store(gib - 1)
	waitFor(t, 30*time.Second, low(true))
	err := fabrictest.Append(t, l, record(20)).Err
	wantCode(t, err, api.StorageFull)
	var e *api.Error
	if !errors.As(err, &e) || e.RetryAfter <= 0 {
		t.Errorf("refused without a time to retry: %v", err)
	}
	_, err = cp.Apply(context.Background(), "inc-1", []regions.Item{copied(2)})
	wantCode(t, err, api.StorageFull)
	if s := fabrictest.Append(t, l, record(3)); s.Err != nil || !s.Duplicate {
		t.Errorf("a retry of a stored record: %+v", s)
	}
	denseAndOnce(t, l, 20)
	if h := f.Health(); h.Failed || h.Volume.Reserve != gib || h.Volume.Low.IsZero() {
		t.Errorf("health %+v", h)
	}
	free.Store(gib + gib/8) // above the mark, and not by enough
	waitFor(t, 30*time.Second, low(true))
	wantCode(t, fabrictest.Append(t, l, record(20)).Err, api.StorageFull)
	free.Store(2 * gib)
	waitFor(t, 30*time.Second, low(false))
	allStored(t, appendMany(t, l, 20, 30))
	apply(t, cp, copied(2))
}

// Between two looks at the volume what is written and waits to be is counted: a burst
// does not run past the mark.
func TestB39_HighWaterCountsWhatIsWritten(t *testing.T) {
	var free atomic.Int64
	free.Store(gib + 1<<20)
	f := fabrictest.Open(t, volume(&free), func(c *fabric.Config) { c.Pace = 1000 })
	l := fabrictest.Home(t, f, "orders@here")
	var stored, refused int64
	for i := range 64 {
		s := fabrictest.Append(t, l, childRecord(i, 64<<10))
		switch {
		case s.Err == nil:
			stored++
		default:
			wantCode(t, s.Err, api.StorageFull)
			refused++
		}
	}
	if stored == 0 || stored > 16 || refused == 0 {
		t.Fatalf("%d of 64 KiB were stored into 1 MiB, %d refused", stored, refused)
	}
}

// A region is not started on a disk without room, and nothing is touched then.
func TestB39_NoStartOnAFullDisk(t *testing.T) {
	dir := t.TempDir()
	var free atomic.Int64
	free.Store(50 * gib)
	set := func(c *fabric.Config) { c.Dir = dir; volume(&free)(c) }
	f := fabrictest.Open(t, set)
	allStored(t, appendMany(t, fabrictest.Home(t, f, "orders@here"), 0, 20))
	closeNow(t, f)
	before := fabrictest.TreeSum(t, dir)
	free.Store(gib / 8)
	cfg := fabrictest.Config(t)
	set(&cfg)
	f, err := fabric.Open(context.Background(), cfg)
	if err == nil {
		closeNow(t, f)
	}
	wantCode(t, err, api.StorageFull)
	if fabrictest.TreeSum(t, dir) != before {
		t.Error("the store was changed")
	}
	free.Store(gib / 2) // enough for a start, not for records
	f = fabrictest.Open(t, set)
	l := fabrictest.Home(t, f, "orders@here")
	denseAndOnce(t, l, 20)
	wantCode(t, fabrictest.Append(t, l, record(20)).Err, api.StorageFull)
}

// follow is the owner of a solo region's logs: it opens one log under each seat and
// vacates when the seat is lost. The log of the present seat is in the pointer.
func follow(t *testing.T, f *fabric.Fabric, cfg fabric.LogConfig) *atomic.Pointer[regions.HomeLog] {
	t.Helper()
	var now atomic.Pointer[regions.HomeLog]
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			seat, changed := f.Seat()
			if seat.Mine {
				l, err := f.Home(ctx, cfg)
				if err != nil {
					t.Errorf("open under seat %d: %v", seat.Term, err)
					return
				}
				now.Store(&l)
			}
			select {
			case <-changed:
			case <-ctx.Done():
				return
			}
			now.Store(nil)
			_ = f.Vacate(ctx)
		}
	}()
	t.Cleanup(func() { cancel(); <-done })
	waitFor(t, 30*time.Second, func() bool { return now.Load() != nil })
	return &now
}

// Report B39: the disk runs full under the broker, past the high-water mark. Every append
// is answered with a code in time, later ones are refused at once, what was acknowledged
// stays readable, the broker is not started again while the disk is full, and takes
// records again by itself once it is not.
func TestB39_ComesBackByItselfFromAFullDisk(t *testing.T) {
	withoutDetector(t)
	needRoot(t, "unshare", "mount", "umount")
	inNamespace(t, comesBack)
}

func comesBack(t *testing.T) {
	disk := t.TempDir()
	must(t, "mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", disk)
	defer func() { must(t, "umount", "-l", disk) }()
	var honest atomic.Bool
	f := fabrictest.Open(t, func(c *fabric.Config) {
		c.Dir = filepath.Join(disk, "data")
		c.Hooks.Free = func(dir string) (int64, int64, error) {
			if honest.Load() {
				return fabric.Statfs(dir)
			}
			return 50 * gib, 100 * gib, nil
		}
	})
	defer closeNow(t, f)
	now := follow(t, f, fabric.LogConfig{ID: mustID(t, "orders@here"), Epoch: api.StaticEpoch("here"), MaxBytes: 64 << 20})
	l := *now.Load()
	acked, codes, slowest := fill(t, l, 4096)
	t.Logf("%d acknowledged; then %v, the slowest told after %s", len(acked), codes, slowest)
	if codes[api.StorageFull] > 0 {
		t.Fatal("the high-water mark held; the broker never met the end of the disk")
	}
	honest.Store(true)
	waitFor(t, 30*time.Second, func() bool { return f.Health().Failed })
	wantCode(t, fabrictest.Append(t, l, record(1<<20)).Err, api.StorageFailed)
	if h := f.Health(); !h.Passes || h.Reason == "" {
		t.Errorf("health %+v", h)
	}
	if got := len(fabrictest.ReadAll(t, l, 0)); got < len(acked) {
		t.Errorf("%d records are readable, %d were acknowledged", got, len(acked))
	}
	waitFor(t, 30*time.Second, func() bool { return !f.Health().Volume.Low.IsZero() })
	if seat, _ := f.Seat(); !seat.Mine || seat.Term != 1 {
		t.Errorf("seat %+v while the disk is full", seat)
	}
	must(t, "mount", "-o", "remount,size=96m", disk)
	waitFor(t, 60*time.Second, func() bool {
		seat, _ := f.Seat()
		return seat.Mine && seat.Term == 2 && now.Load() != nil
	})
	l = *now.Load()
	ackedThere(t, l, acked)
	if h := f.Health(); h.Failed || l.Head().Term < 2 {
		t.Errorf("health %+v, term %d", h, l.Head().Term)
	}
	allStored(t, []regions.Stored{fabrictest.Append(t, l, record(1<<20))})
}

// fill appends until something is not acknowledged, and says what was, under which
// sequence, which codes came, and how long the last of them took.
func fill(t *testing.T, l regions.HomeLog, body int) (acked map[int]uint64, codes map[api.Code]int, slowest time.Duration) {
	t.Helper()
	acked, codes = map[int]uint64{}, map[api.Code]int{}
	for n := 0; len(codes) == 0; n += 500 {
		if n > 20000 {
			t.Fatal("the disk never ran full")
		}
		var mu sync.Mutex
		var wg sync.WaitGroup
		for i := n; i < n+500; i++ {
			wg.Add(1)
			start := time.Now()
			l.Append(regions.Draft{Record: childRecord(i, body)}, func(s regions.Stored) {
				defer wg.Done()
				mu.Lock()
				defer mu.Unlock()
				if s.Err == nil {
					acked[i] = s.Position.Sequence
					return
				}
				codes[api.CodeOf(s.Err)]++
				slowest = max(slowest, time.Since(start))
			})
		}
		wg.Wait()
	}
	return acked, codes, slowest
}

// ackedThere fails unless every acknowledged record lies at its sequence.
func ackedThere(t *testing.T, l regions.Log, acked map[int]uint64) {
	t.Helper()
	at := map[uint64]string{}
	for _, it := range fabrictest.ReadAll(t, l, 0) {
		at[it.Sequence] = it.Record.ID
	}
	for n, seq := range acked {
		if at[seq] != record(n).ID {
			t.Fatalf("record %d was acknowledged at %d, there lies %q", n, seq, at[seq])
		}
	}
}

// A slow sync: health says how long it has lasted while it does, and callers are told by
// their deadline.
func TestRA5_SlowSyncIsSaid(t *testing.T) {
	gate, entered := make(chan struct{}), make(chan struct{}, 8)
	var slow atomic.Bool
	f := fabrictest.Open(t, func(c *fabric.Config) {
		c.Pace = 0.25
		c.Hooks.Sync = func(d *os.File) error {
			if slow.Load() {
				entered <- struct{}{}
				<-gate
			}
			return fabric.Syncfs(d)
		}
	})
	l := fabrictest.Home(t, f, "orders@here")
	slow.Store(true)
	told := make(chan regions.Stored, 1)
	l.Append(regions.Draft{Record: record(0)}, func(s regions.Stored) { told <- s })
	<-entered
	waitFor(t, 30*time.Second, func() bool { return f.Health().Sync > 10*time.Millisecond })
	wantCode(t, (<-told).Err, api.OutcomeUnknown)
	slow.Store(false)
	close(gate)
	waitFor(t, 30*time.Second, func() bool { return f.Health().Sync == 0 && l.Head().Sequence == 1 })
	if s := fabrictest.Append(t, l, record(0)); s.Err != nil || !s.Duplicate {
		t.Fatalf("%+v", s)
	}
}

// While the broker is started again nobody who asks for room meets one that is not there,
// and a sync that failed meanwhile is not forgotten.
func TestB39_AskedWhileTheBrokerStartsAgain(t *testing.T) {
	f := fabrictest.Open(t)
	fabrictest.Home(t, f, "orders@here")
	ctx := context.Background()
	f.Fail("no space left on device", true)
	if err := f.Vacate(ctx); err != nil {
		t.Fatal(err)
	}
	f.StopBroker()
	wantCode(t, f.Fits(ctx, 1), api.NotReady)
	f.Fail("a sync of the data volume failed", false)
	if err := f.Restart(); err == nil {
		t.Error("started again after a failed sync")
	}
	if h := f.Health(); !h.Failed || h.Passes {
		t.Errorf("health %+v", h)
	}
}

// A deletion that was under way when the disk ran full does not keep the store from coming
// back.
func TestB39_ComesBackAfterADeletion(t *testing.T) {
	entered, gate := make(chan struct{}), make(chan struct{})
	f := fabrictest.Open(t, func(c *fabric.Config) {
		c.Pace = 0.25
		c.Hooks.Step = func(step string) {
			if step == "writer stopped" {
				close(entered)
				<-gate
			}
		}
	})
	l := fabrictest.Home(t, f, "orders@here")
	done := make(chan struct{})
	go func() { defer close(done); _, _ = f.Delete(context.Background(), l.ID()) }()
	<-entered
	f.FailStore("no space left on device")
	waitFor(t, 30*time.Second, func() bool { seat, _ := f.Seat(); return !seat.Mine })
	if err := f.Vacate(context.Background()); err != nil {
		t.Fatal(err)
	}
	waitFor(t, 30*time.Second, func() bool { return !f.Waits() })
	close(gate)
	<-done
	waitFor(t, 30*time.Second, func() bool { seat, _ := f.Seat(); return seat.Mine && seat.Term == 2 })
}

// Report B39: the disk runs full between the start of the store and the opening of a log
// whose last end was unclean, so that the marker that opens it can't be written. The opening
// fails soon and says why, and the store comes back by itself once there is space.
func TestB39_ComesBackFromADiskThatFillsWhileLogsOpen(t *testing.T) {
	needRoot(t, "unshare", "mount", "umount", "cp")
	inNamespace(t, fillsWhileLogsOpen)
}

func fillsWhileLogsOpen(t *testing.T) {
	disk := t.TempDir()
	must(t, "mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", disk)
	defer func() { must(t, "umount", "-l", disk) }()
	in := func(name string) func(*fabric.Config) {
		return func(c *fabric.Config) {
			c.Dir, c.Pace = filepath.Join(disk, name), 0.25
			c.Hooks.Free = func(dir string) (int64, int64, error) {
				free, _, err := fabric.Statfs(dir)
				return free, 8 << 20, err // so that a full disk is seen, and a start on it is none
			}
		}
	}
	first := fabrictest.Open(t, in("first"))
	l := fabrictest.Home(t, first, "orders@here")
	acked := map[int]uint64{}
	for i, s := range appendMany(t, l, 0, 200) {
		acked[i] = s.Position.Sequence
	}
	// The last page of the log is full, so that a marker needs another.
	block := filepath.Join(disk, "first", "broker", "jetstream", "default", "streams", "orders__here", "msgs", "1.blk")
	before := sizeOf(t, block)
	probe := record(200)
	probe.Body = make([]byte, 4096)
	allStored(t, []regions.Stored{fabrictest.Append(t, l, probe)})
	over := sizeOf(t, block) - before - 4096
	last := record(201)
	last.Body = make([]byte, 4096+4090-(sizeOf(t, block)+over)%4096)
	allStored(t, []regions.Stored{fabrictest.Append(t, l, last)})
	must(t, "cp", "-a", filepath.Join(disk, "first"), filepath.Join(disk, "second")) // as a killed process leaves it
	closeNow(t, first)

	f := fabrictest.Open(t, in("second"))
	defer closeNow(t, f)
	stuffing := filepath.Join(disk, "stuffing")
	stuff(t, stuffing)
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	cfg := fabric.LogConfig{ID: mustID(t, "orders@here"), Epoch: api.StaticEpoch("here"), MaxBytes: 64 << 20}
	_, err := f.Home(ctx, cfg)
	wantCode(t, err, api.StorageFailed)
	if h := f.Health(); !h.Failed || !h.Passes {
		t.Errorf("health %+v", h)
	}
	if err := os.Remove(stuffing); err != nil {
		t.Fatal(err)
	}
	waitFor(t, 30*time.Second, func() bool { seat, _ := f.Seat(); return seat.Mine && seat.Term == 2 })
	l = fabrictest.Home(t, f, "orders@here")
	ackedThere(t, l, acked)
	allStored(t, []regions.Stored{fabrictest.Append(t, l, record(1<<20))})
	if h := f.Health(); h.Failed || l.Head().Term < 2 {
		t.Errorf("health %+v, term %d", h, l.Head().Term)
	}
}

func sizeOf(t *testing.T, path string) int64 {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	return info.Size()
}

// stuff takes all the space of a disk.
func stuff(t *testing.T, path string) {
	t.Helper()
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for block := make([]byte, 1<<16); len(block) > 0; {
		if _, err := file.Write(block); err != nil {
			block = block[:len(block)/2] // the last bits too
		}
	}
}
