package fabric_test

import (
	"bufio"
	"context"
	"fmt"
	"math"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"domicile/api"
	"domicile/regions"
	"domicile/regions/clock"
	"domicile/regions/fabric"
	"domicile/regions/fabric/fabrictest"
)

const (
	childDir     = "FABRIC_TEST_CHILD_DIR"
	childWindow  = "FABRIC_TEST_CHILD_WINDOW"
	childBody    = "FABRIC_TEST_CHILD_BODY"
	childBytes   = "FABRIC_TEST_CHILD_MAX_BYTES"
	childUnsafe  = "FABRIC_TEST_CHILD_NO_BARRIER"
	childSweeps  = "FABRIC_TEST_CHILD_SWEEPS"
	childRelaxed = "FABRIC_TEST_CHILD_RELAXED"
	childTells   = "FABRIC_TEST_CHILD_TELLS"
	childDies    = "FABRIC_TEST_CHILD_DIES_IN_SYNC"
	childReads   = "FABRIC_TEST_CHILD_READS"
)

// runChild is the process that the crash tests kill: it appends without end and
// prints the number and sequence of each record once it is acknowledged.
func runChild() bool {
	dir := os.Getenv(childDir)
	if dir == "" {
		return false
	}
	number := func(name string) int { n, _ := strconv.Atoi(os.Getenv(name)); return n }
	ctx := context.Background()
	var now regions.Clock
	var evidence func() clock.Evidence
	if os.Getenv(childReads) != "" { // later, so that an opening reads back no more than it must
		now = regions.NewManualClock(time.Now().Add(24 * time.Hour))
		evidence = func() clock.Evidence { return clock.Evidence{Checked: true} }
	}
	f, err := fabric.Open(ctx, fabric.Config{Region: "here", Federation: "test", Dir: dir, MaxStore: 1 << 30, Clock: now, Evidence: evidence,
		Hooks: fabric.Hooks{NoBarrier: os.Getenv(childUnsafe) != "", Sync: deadlySync(number(childDies))}})
	if err != nil {
		fmt.Println("error", err)
		os.Exit(1)
	}
	if os.Getenv(childReads) != "" {
		f.KeepIDs(10)
	}
	id := api.LogID{Tenant: api.DefaultTenant, Topic: "orders", Slot: "here"}
	l, err := f.Home(ctx, fabric.LogConfig{ID: id, Epoch: api.StaticEpoch("here"),
		MaxBytes: int64(number(childBytes)), Relaxed: os.Getenv(childRelaxed) != "", Hold: true, Safe: func() uint64 {
			if os.Getenv(childSweeps) != "" {
				return math.MaxUint64
			}
			return 0
		}})
	if err != nil {
		fmt.Println("error", err)
		os.Exit(1)
	}
	if os.Getenv(childReads) != "" {
		readChild(f, l)
	}
	slots := make(chan struct{}, number(childWindow))
	var mu sync.Mutex
	for i := int(l.Head().Sequence); ; i++ {
		slots <- struct{}{}
		l.Append(regions.Draft{Record: childRecord(i, number(childBody))}, func(s regions.Stored) {
			if code := api.CodeOf(s.Err); code == api.StorageFailed && os.Getenv(childTells) != "" {
				h := f.Health()
				mu.Lock()
				fmt.Println("refused", code, "failed", h.Failed, h.Reason)
				mu.Unlock()
				return
			}
			if s.Err == nil {
				mu.Lock()
				fmt.Println("ack", i, s.Position.Sequence)
				mu.Unlock()
			} else if api.CodeOf(s.Err) == api.StorageFull && os.Getenv(childSweeps) == "" {
				return // the load ends here; the slot is not given back
			}
			<-slots
		})
	}
}

// deadlySync is a sync that fails at its n-th call, in a process that is killed before it
// learns of it; nil for 0.
func deadlySync(n int) func(*os.File) error {
	if n == 0 {
		return nil
	}
	var calls atomic.Int64
	return func(d *os.File) error {
		if calls.Add(1) < int64(n) {
			return fabric.Syncfs(d)
		}
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {}
	}
}

func childRecord(i, size int) api.Record {
	r := record(i)
	if pad := size - len(r.Body); pad > 0 {
		r.Body = append(r.Body, strings.Repeat("x", pad)...)
	}
	return r
}

type child struct {
	cmd   *exec.Cmd
	acked map[int]uint64
	mu    sync.Mutex
	done  chan struct{}
	err   string
}

func startChild(t *testing.T, wrap []string, env ...string) *child {
	t.Helper()
	args := append(wrap, os.Args[0])
	c := &child{cmd: exec.Command(args[0], args[1:]...), acked: map[int]uint64{}, done: make(chan struct{})}
	c.cmd.Env = append(os.Environ(), env...)
	c.cmd.Stderr = os.Stderr
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(c.done)
		for s := bufio.NewScanner(out); s.Scan(); {
			var n int
			var seq uint64
			c.mu.Lock()
			if _, err := fmt.Sscanf(s.Text(), "ack %d %d", &n, &seq); err == nil {
				c.acked[n] = seq
			} else {
				c.err = s.Text()
			}
			c.mu.Unlock()
		}
	}()
	return c
}

func (c *child) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.acked)
}

// refusedWith is the last line of the child that is no acknowledgement.
func (c *child) refusedWith() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

func (c *child) waitAcks(t *testing.T, n int) {
	t.Helper()
	waitFor(t, 60*time.Second, func() bool {
		select {
		case <-c.done:
			t.Fatalf("child ended early: %s", c.err)
		default:
		}
		return c.count() >= n
	})
}

func waitFor(t testing.TB, d time.Duration, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(d); !ok(); <-tick.C {
		if time.Now().After(end) {
			t.Fatal("condition did not come true in time")
		}
	}
}

func (c *child) kill() {
	_ = c.cmd.Process.Kill()
	<-c.done
	_ = c.cmd.Wait()
}

// verify opens the store the child left and compares it with what was acknowledged.
func (c *child) verify(t *testing.T, dir string, body int) (lost int, first uint64) {
	t.Helper()
	f := fabrictest.Open(t, func(cfg *fabric.Config) { cfg.Dir = dir })
	l := fabrictest.Home(t, f, "orders@here")
	bySeq := map[uint64]string{}
	ids := map[string]bool{}
	for _, it := range fabrictest.ReadAll(t, l, 0) {
		if it.Gap != nil {
			continue
		}
		if ids[it.Record.ID] {
			t.Errorf("sequence %d repeats an id", it.Sequence)
		}
		ids[it.Record.ID] = true
		bySeq[it.Sequence] = it.Record.ID + string(it.Record.Body)
	}
	first = l.Head().First
	for n, seq := range c.acked {
		if seq < first {
			continue // retention took it, and says so
		}
		want := childRecord(n, body)
		if bySeq[seq] != want.ID+string(want.Body) {
			lost++
		}
	}
	if h := l.Head(); h.Term < 2 {
		t.Errorf("writer term %d after an unclean end", h.Term)
	}
	return lost, first
}

func TestRA1_KillLosesNothingAcked(t *testing.T) {
	dir := t.TempDir()
	c := startChild(t, nil, childDir+"="+dir, childWindow+"=500", childBody+"=512", childBytes+"=67108864")
	c.waitAcks(t, 2000)
	c.kill()
	if lost, _ := c.verify(t, dir, 512); lost > 0 {
		t.Fatalf("%d of %d acknowledged records are lost", lost, len(c.acked))
	}
}

// RA1: a sync fails and the process is killed before it can leave a mark of it. The next
// start in the same boot has what was written since the last good sync written once more
// before it syncs; after a reboot, or where all was good, nothing is.
func TestRA1_KillInsideAFailedSyncIsMadeGood(t *testing.T) {
	for _, reboot := range []bool{false, true} {
		dir := t.TempDir()
		c := startChild(t, nil, childDir+"="+dir, childWindow+"=100", childBody+"=512", childBytes+"=67108864", childDies+"=20")
		<-c.done
		_ = c.cmd.Wait()
		if c.count() == 0 {
			t.Fatalf("nothing was acknowledged: %s", c.err)
		}
		id := mustID(t, "orders@here")
		files := blockFiles(t, dir, id)
		last := files[len(files)-1]
		written := func() time.Time {
			info, err := os.Stat(last)
			if err != nil {
				t.Fatal(err)
			}
			return info.ModTime()
		}
		before, atSync := written(), time.Time{}
		f := fabrictest.Open(t, func(cfg *fabric.Config) {
			cfg.Dir = dir
			if reboot {
				cfg.Hooks.BootID = "another"
			}
			cfg.Hooks.Sync = func(d *os.File) error {
				if atSync.IsZero() {
					atSync = written()
				}
				return fabric.Syncfs(d)
			}
		})
		if again := atSync.After(before); again == reboot {
			t.Errorf("reboot %v: the log was written at %s, and as of the start's sync at %s", reboot, before, atSync)
		}
		closeNow(t, f)
		if lost, _ := c.verify(t, dir, 512); lost > 0 {
			t.Errorf("%d of %d acknowledged records are lost", lost, len(c.acked))
		}
	}
}
