package fabric_test

import (
	"context"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"domicile/api"
	"domicile/regions"
	"domicile/regions/fabric"
	"domicile/regions/fabric/fabrictest"
)

// RA5, RT3: the disk runs full under load. Every append is answered with a code within
// two seconds (times two, on a shared machine), later ones are refused at once, what
// was acknowledged stays readable, and all of it is there once there is space again.
func TestRA5_FullDiskRefusesInTimeAndLosesNothingAcked(t *testing.T) {
	needRoot(t, "unshare", "mount", "umount")
	inNamespace(t, fullDisk)
}

func fullDisk(t *testing.T) {
	disk := t.TempDir()
	must(t, "mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", disk)
	defer func() { must(t, "umount", "-l", disk) }()
	dir := filepath.Join(disk, "data")
	log := fabric.LogConfig{ID: mustID(t, "orders@here"), Epoch: api.StaticEpoch("here"), MaxBytes: 64 << 20}
	open := func() (*fabric.Fabric, regions.HomeLog) {
		t.Helper()
		f := fabrictest.Open(t, func(c *fabric.Config) { c.Dir = dir })
		l, err := f.Home(context.Background(), log)
		if err != nil {
			t.Fatal(err)
		}
		return f, l
	}
	f, l := open()
	const body = 4096
	acked := map[int]uint64{}
	codes := map[api.Code]int{}
	var slowest time.Duration
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
	t.Logf("%d acknowledged; then %v, the slowest told after %s", len(acked), codes, slowest)
	if slowest > 4*time.Second {
		t.Errorf("told after %s", slowest)
	}
	start := time.Now()
	wantCode(t, fabrictest.Append(t, l, record(1<<20)).Err, api.StorageFailed)
	if took := time.Since(start); took > time.Second {
		t.Errorf("a later append is refused only after %s", took)
	}
	if got := len(fabrictest.ReadAll(t, l, 0)); got < len(acked) {
		t.Errorf("%d records are readable, %d were acknowledged", got, len(acked))
	}
	closeNow(t, f)
	must(t, "mount", "-o", "remount,size=96m", disk)
	f, l = open()
	at := map[uint64]string{}
	for _, it := range fabrictest.ReadAll(t, l, 0) {
		at[it.Sequence] = it.Record.ID
	}
	for n, seq := range acked {
		if at[seq] != record(n).ID {
			t.Fatalf("record %d was acknowledged at %d, there lies %q", n, seq, at[seq])
		}
	}
	allStored(t, []regions.Stored{fabrictest.Append(t, l, record(1<<20))})
	closeNow(t, f)
}
