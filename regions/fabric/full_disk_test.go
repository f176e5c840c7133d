package fabric_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"domicile/api"
	"domicile/regions"
	"domicile/regions/fabric"
	"domicile/regions/fabric/fabrictest"
)

// Report B39, RA5, RT3: a real disk fills under load. Appends are refused with
// STORAGE_FULL before the broker meets the end of it, what was acknowledged is read, a
// start while it is full takes nothing away, one without any room is refused, and all of
// it goes on once there is space again.
func TestB39_FullDiskRefusesInTimeAndLosesNothingAcked(t *testing.T) {
	withoutDetector(t)
	needRoot(t, "unshare", "mount", "umount")
	inNamespace(t, fullDisk)
}

func fullDisk(t *testing.T) {
	disk := t.TempDir()
	must(t, "mount", "-t", "tmpfs", "-o", "size=32m", "tmpfs", disk)
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
	acked, codes, slowest := fill(t, l, 4096)
	t.Logf("%d acknowledged; then %v, the slowest told after %s", len(acked), codes, slowest)
	if len(codes) != 1 || codes[api.StorageFull] == 0 {
		t.Errorf("refused with %v", codes)
	}
	if slowest > 4*time.Second {
		t.Errorf("told after %s", slowest)
	}
	ackedThere(t, l, acked)
	if h := f.Health(); h.Failed || h.Volume.Low.IsZero() {
		t.Errorf("health %+v", h)
	}
	f, l = again(t, f, open)
	ackedThere(t, l, acked)
	more, codes, _ := fill(t, l, 4096) // duplicates, and what still fits
	if codes[api.StorageFull] == 0 {
		t.Errorf("after a start: refused with %v", codes)
	}
	ackedThere(t, l, more)
	closeNow(t, f)

	v, _, err := fabric.Statfs(dir)
	if err != nil {
		t.Fatal(err)
	}
	stuffing := filepath.Join(disk, "stuffing")
	if err := os.WriteFile(stuffing, make([]byte, v-(64<<10)), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg := fabrictest.Config(t)
	cfg.Dir = dir
	if f, err = fabric.Open(context.Background(), cfg); err == nil {
		closeNow(t, f)
	}
	wantCode(t, err, api.StorageFull)
	if err := os.Remove(stuffing); err != nil {
		t.Fatal(err)
	}
	must(t, "mount", "-o", "remount,size=96m", disk)
	f, l = open()
	ackedThere(t, l, acked)
	allStored(t, []regions.Stored{fabrictest.Append(t, l, record(1<<20))})
	closeNow(t, f)
}

func again(t *testing.T, f *fabric.Fabric, open func() (*fabric.Fabric, regions.HomeLog)) (*fabric.Fabric, regions.HomeLog) {
	t.Helper()
	closeNow(t, f)
	return open()
}
