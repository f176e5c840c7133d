package fabric_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"domicile/api"
	"domicile/regions"
	"domicile/regions/fabric"
	"domicile/regions/fabric/fabrictest"
	"domicile/regions/testenv"
)

// toldWithin is how long a broken disk may keep a producer waiting: 2 s, and three times that
// on a machine that does other things too.
const toldWithin = 3 * 2 * time.Second

// refusedSoon waits until the child is refused, which has to be soon after start, with a
// code and by a store that says that it failed, and why.
func refusedSoon(t *testing.T, c *child, start time.Time) {
	t.Helper()
	waitFor(t, 30*time.Second, func() bool { return c.refusedWith() != "" })
	took := time.Since(start)
	t.Logf("%d acknowledged; %s after %s", c.count(), c.refusedWith(), took)
	if took > toldWithin {
		t.Errorf("told after %s", took)
	}
	if said, ok := strings.CutPrefix(c.refusedWith(), "refused STORAGE_FAILED failed true "); !ok || said == "" {
		t.Errorf("told %q", c.refusedWith())
	}
}

// RA5, RA1: from one moment on the disk refuses writes to the log's files, or syncs. The
// child that writes there acknowledges nothing more, is told so by errors, and after a
// start on the healed disk everything it acknowledged is there.
func TestRA5_DiskErrorsLoseNothingAcked(t *testing.T) {
	needRoot(t, "strace", "pgrep", "kill")
	for _, call := range []string{"pwrite64,write", "syncfs"} {
		t.Run(call, func(t *testing.T) { brokenCalls(t, call) })
	}
}

func brokenCalls(t *testing.T, calls string) {
	dir := filepath.Join(t.TempDir(), "data")
	c := startChild(t, nil, childDir+"="+dir, childWindow+"=50", childBody+"=512", childBytes+"=33554432", childTells+"=1")
	c.waitAcks(t, 500)
	args := []string{"-f", "-o", os.DevNull, "-e", "trace=" + calls, "-e", "inject=" + calls + ":error=EIO", "-p", fmt.Sprint(c.cmd.Process.Pid)}
	if calls != "syncfs" {
		for _, path := range blockFiles(t, dir, mustID(t, "orders@here")) {
			args = append(args, "-P", path)
		}
	}
	strace := exec.Command("strace", args...)
	if err := strace.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = strace.Process.Kill(); _ = strace.Wait() }()
	refusedSoon(t, c, time.Now())
	n := c.count()
	_ = strace.Process.Signal(os.Interrupt)
	_ = strace.Wait()
	c.kill()
	if lost, _ := c.verify(t, dir, 512); lost > 0 {
		t.Errorf("%d of %d acknowledged records are lost", lost, n)
	}
}

// RA5, RA1: the kernel takes the volume's writing away after an error of the disk, as ext4
// does. The same holds.
func TestRA5_ReadOnlyDiskLosesNothingAcked(t *testing.T) {
	needRoot(t, "unshare", "mkfs.ext4", "mount", "umount")
	inNamespace(t, readOnlyDisk)
}

func readOnlyDisk(t *testing.T) {
	work := t.TempDir()
	image, disk := filepath.Join(work, "image"), filepath.Join(work, "disk")
	must(t, "mkdir", disk)
	must(t, "truncate", "-s", "192M", image)
	must(t, "mkfs.ext4", "-q", "-F", image)
	must(t, "mount", "-o", "loop,errors=remount-ro", image, disk)
	defer exec.Command("umount", "-l", disk).Run()
	dir := filepath.Join(disk, "data")
	c := startChild(t, nil, childDir+"="+dir, childWindow+"=50", childBody+"=512", childBytes+"=33554432", childTells+"=1")
	defer c.kill()
	c.waitAcks(t, 500)
	must(t, "mount", "-o", "remount,abort", disk)
	refusedSoon(t, c, time.Now())
	n := c.count()
	c.kill()
	must(t, "umount", disk)
	must(t, "mount", "-o", "loop", image, disk)
	if lost, _ := c.verify(t, dir, 512); lost > 0 {
		t.Errorf("%d of %d acknowledged records are lost", lost, n)
	}
}

// RA5: the disk does not give out a part of a log. Whoever reads it is told so soon, with a
// code; nothing is taken for lost; records are taken on; the store says what can't be read;
// and with the disk healed all of it is there.
func TestRA5_ReadErrorIsNoLoss(t *testing.T) {
	withoutDetector(t)
	needRoot(t, "strace")
	if out, err := exec.Command("strace", "-o", os.DevNull, "true").CombinedOutput(); err != nil {
		testenv.Missing(t, "strace can't attach here: ", string(out))
	}
	dir := t.TempDir()
	const n, body = 9000, 4096
	f := fabrictest.Open(t, func(c *fabric.Config) { c.Dir = dir })
	l := fabrictest.Home(t, f, "orders@here")
	for from := 0; from < n; from += 1000 {
		allStored(t, appendRecords(t, l, from, from+1000, func(i int) api.Record { return childRecord(i, body) }))
	}
	closeNow(t, f)
	files := blockFiles(t, dir, mustID(t, "orders@here"))
	if len(files) < 4 {
		t.Fatalf("%d blocks", len(files))
	}
	bad := files[1] // neither the start nor the end, which an opening reads
	c := startChild(t, []string{"strace", "-f", "-o", os.DevNull, "-e", "trace=read,pread64", "-e", "inject=read,pread64:error=EIO", "-P", bad, "--"},
		childDir+"="+dir, childBytes+"=67108864", childReads+"=1")
	<-c.done
	_ = c.cmd.Wait()
	t.Log(c.refusedWith())
	var read, took int
	var code, rest string
	if _, err := fmt.Sscanf(c.refusedWith(), "read %d %s %d", &read, &code, &took); err != nil {
		t.Fatalf("%v: %s", err, c.refusedWith())
	}
	_, rest, _ = strings.Cut(c.refusedWith(), "said ")
	if read >= n || code != string(api.StorageFailed) || time.Duration(took) > toldWithin {
		t.Errorf("read %d, then %s after %s", read, code, time.Duration(took))
	}
	if !strings.Contains(rest, "input/output error") || !strings.Contains(rest, "damaged 0") || !strings.Contains(rest, "appended true") {
		t.Errorf("said %s", rest)
	}
	f = fabrictest.Open(t, func(c *fabric.Config) { c.Dir = dir })
	l = fabrictest.Home(t, f, "orders@here")
	denseAndOnce(t, l, n+1)
	if h := f.Health().Logs[0]; h.Unread != "" || h.Damaged != 0 {
		t.Errorf("%+v", h)
	}
}

// readChild reads a log from its start until that fails, then appends a record, and prints
// what it met.
func readChild(f *fabric.Fabric, l regions.HomeLog) {
	ctx := context.Background()
	n, start := 0, time.Now()
	r, err := l.Reader(ctx, 0)
	for err == nil {
		var items []regions.Item
		start = time.Now()
		if items, err = r.Next(ctx, regions.ReadLimit{Records: 500, Bytes: 1 << 20}); len(items) == 0 {
			break
		}
		n += len(items)
	}
	took := time.Since(start)
	done := make(chan error, 1)
	l.Append(regions.Draft{Record: record(1 << 20)}, func(s regions.Stored) { done <- s.Err })
	h := f.Health().Logs[0]
	fmt.Println("read", n, api.CodeOf(err), int64(took), "said", h.Unread, "damaged", h.Damaged, "appended", <-done == nil)
	_ = f.Close(ctx)
	os.Exit(0)
}
