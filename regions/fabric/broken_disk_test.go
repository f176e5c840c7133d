package fabric_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

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
	start := time.Now()
	defer func() { _ = strace.Process.Kill(); _ = strace.Wait() }()
	waitFor(t, 30*time.Second, func() bool { return c.refusedWith() != "" })
	t.Logf("%d acknowledged; %s after %s", c.count(), c.refusedWith(), time.Since(start))
	if !strings.Contains(c.refusedWith(), "STORAGE_FAILED") {
		t.Errorf("told %s", c.refusedWith())
	}
	n := c.count()
	_ = strace.Process.Signal(os.Interrupt)
	_ = strace.Wait()
	c.kill()
	if lost, _ := c.verify(t, dir, 512); lost > 0 {
		t.Errorf("%d of %d acknowledged records are lost", lost, n)
	}
}
