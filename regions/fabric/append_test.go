package fabric_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"domicile/api"
	"domicile/regions"
	"domicile/regions/fabric"
	"domicile/regions/fabric/fabrictest"
	"domicile/regions/testenv"
)

func TestMain(m *testing.M) {
	if runChild() || runActChild() || runMove() {
		return
	}
	fabrictest.VerifyTestMain(m)
}

func record(i int) api.Record {
	return api.Record{ID: fmt.Sprintf("id-%06d", i), Key: fmt.Sprintf("k%d", i%7), Body: fmt.Appendf(nil, "body %d", i),
		Tags:    []api.Tag{{Name: "class", Value: "order"}, {Name: "residency", Value: "eu"}},
		Headers: []api.Header{{Name: "Trace", Value: "ü=1"}, {Name: "Trace", Value: " two "}}, EventTime: time.Unix(1e9, 7).UTC()}
}

// appendMany appends records from to to-1, pipelined, and returns the outcomes by
// number.
func appendMany(t testing.TB, l regions.HomeLog, from, to int) []regions.Stored {
	t.Helper()
	return appendRecords(t, l, from, to, record)
}

func appendRecords(t testing.TB, l regions.HomeLog, from, to int, record func(int) api.Record) []regions.Stored {
	t.Helper()
	out := make([]regions.Stored, to-from)
	var wg sync.WaitGroup
	for i := from; i < to; i++ {
		wg.Add(1)
		l.Append(regions.Draft{Record: record(i), Revision: "7-abc"}, func(s regions.Stored) {
			out[i-from] = s
			wg.Done()
		})
	}
	wg.Wait()
	return out
}

func allStored(t testing.TB, got []regions.Stored) {
	t.Helper()
	for i, s := range got {
		if s.Err != nil {
			t.Fatalf("append %d: %v", i, s.Err)
		}
	}
}

func wantCode(t testing.TB, err error, want api.Code) {
	t.Helper()
	if got := api.CodeOf(err); got != want {
		t.Fatalf("code %q (%v), want %q", got, err, want)
	}
	var e *api.Error
	if errors.As(err, &e) && e.Hint == "" {
		t.Errorf("error %v has no hint", err)
	}
}

func TestAppendThenRead(t *testing.T) {
	f := fabrictest.Open(t)
	l := fabrictest.Home(t, f, "orders@here")
	got := appendMany(t, l, 0, 3000)
	allStored(t, got)
	for i, s := range got {
		if s.Position.Sequence != uint64(i+1) || s.Term != 1 || s.Done != api.Disk1 || s.Duplicate {
			t.Fatalf("append %d: %+v", i, s)
		}
	}
	head := l.Head()
	if head.Sequence != 3000 || head.First != 1 || head.Records != 3000 || head.Bytes == 0 {
		t.Fatalf("head %+v", head)
	}
	items := fabrictest.ReadAll(t, l, 0)
	if len(items) != 3000 {
		t.Fatalf("read %d items", len(items))
	}
	for i, it := range items {
		want := record(i)
		want.Topic = "orders"
		if diff := cmp.Diff(want, it.Record); diff != "" {
			t.Fatalf("record %d: %s", i, diff)
		}
		if it.Sequence != uint64(i+1) || !it.Time.Equal(got[i].Time) || it.Revision != "7-abc" || it.Epoch != api.StaticEpoch("here") {
			t.Fatalf("item %d: %+v", i, it)
		}
	}
	if rest := fabrictest.ReadAll(t, l, 2990); len(rest) != 10 || rest[0].Sequence != 2991 {
		t.Fatalf("from 2990: %d items", len(rest))
	}
	at, err := l.After(context.Background(), got[1500].Time)
	if err != nil {
		t.Fatal(err)
	}
	if at >= 1501 || !got[at].Time.Equal(got[1500].Time) || at > 0 && !got[at-1].Time.Before(got[1500].Time) {
		t.Fatalf("After = %d", at)
	}
	if _, err := l.Reader(context.Background(), 3001); api.CodeOf(err) != api.CursorAhead {
		t.Fatalf("reader beyond the head: %v", err)
	}
}

// R14a: the broker inside a region can be reached by nobody: no port is open.
func TestR14a_NoOpenPort(t *testing.T) {
	before := listening(t)
	f := fabrictest.Open(t)
	allStored(t, appendMany(t, fabrictest.Home(t, f, "orders@here"), 0, 1))
	for port := range listening(t) {
		if !before[port] {
			t.Errorf("a new port is open: %s", port)
		}
	}
	if c, err := net.DialTimeout("tcp", "127.0.0.1:4222", time.Second); err == nil {
		c.Close()
		t.Error("the broker's usual port answers")
	}
}

// listening is the set of listening TCP sockets of this process's network.
func listening(t *testing.T) map[string]bool {
	out := map[string]bool{}
	mine := mySockets(t)
	for _, name := range []string{"/proc/self/net/tcp", "/proc/self/net/tcp6"} {
		b, err := os.ReadFile(name)
		if err != nil {
			continue
		}
		for line := range strings.Lines(string(b)) {
			if f := strings.Fields(line); len(f) > 9 && f[3] == "0A" && mine[f[9]] {
				out[f[1]] = true
			}
		}
	}
	return out
}

func mySockets(t *testing.T) map[string]bool {
	out := map[string]bool{}
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		testenv.Missing(t, "no /proc/self/fd")
	}
	for _, e := range entries {
		to, err := os.Readlink("/proc/self/fd/" + e.Name())
		if inode, ok := strings.CutPrefix(to, "socket:["); err == nil && ok {
			out[strings.TrimSuffix(inode, "]")] = true
		}
	}
	return out
}

func TestRD1_SameIDIsOneRecord(t *testing.T) {
	f := fabrictest.Open(t)
	l := fabrictest.Home(t, f, "orders@here")
	first := fabrictest.Append(t, l, record(1))
	again := fabrictest.Append(t, l, record(1))
	if first.Err != nil || again.Err != nil || !again.Duplicate || again.Position != first.Position ||
		!again.Time.Equal(first.Time) || again.Revision != "test-1" {
		t.Fatalf("first %+v, again %+v", first, again)
	}
	changed := record(1)
	changed.Body = []byte("other")
	wantCode(t, fabrictest.Append(t, l, changed).Err, api.IDReused)
	if h := l.Head(); h.Sequence != 1 {
		t.Fatalf("head %+v", h)
	}
}

// A second caller with an id that is in flight waits for the first one's outcome.
func TestRD1_SameIDInFlight(t *testing.T) {
	f, block, unblock := openBlocked(t, 1)
	l := fabrictest.Home(t, f, "orders@here")
	got := make(chan regions.Stored, 3)
	block()
	other := record(1)
	other.Body = []byte("other")
	for _, r := range []api.Record{record(1), record(1), other} {
		l.Append(regions.Draft{Record: r}, func(s regions.Stored) { got <- s })
	}
	unblock()
	var stored, duplicate, reused int
	for range 3 {
		switch s := <-got; {
		case api.CodeOf(s.Err) == api.IDReused:
			reused++
		case s.Err != nil:
			t.Fatal(s.Err)
		case s.Duplicate:
			duplicate++
		default:
			stored++
		}
	}
	if stored != 1 || duplicate != 1 || reused != 1 {
		t.Fatalf("stored %d, duplicate %d, reused %d", stored, duplicate, reused)
	}
}

// openBlocked opens a fabric whose syncs hang between block and unblock.
func openBlocked(t *testing.T, pace regions.Pace) (f *fabric.Fabric, block, unblock func()) {
	t.Helper()
	var disk sync.Mutex
	f = fabrictest.Open(t, func(c *fabric.Config) {
		c.Pace = pace
		c.Hooks.Sync = func(d *os.File) error { disk.Lock(); defer disk.Unlock(); return fabric.Syncfs(d) }
	})
	unblock = sync.OnceFunc(disk.Unlock)
	block = func() {
		disk.Lock()
		t.Cleanup(unblock)
	}
	return f, block, unblock
}

// The disk stands still: a bounded number of appends waits, each one more is refused while it
// does, and what waited is stored once it goes on.
func TestRT3_Decision11_OverloadIsRefusedAtOnce(t *testing.T) {
	f, block, unblock := openBlocked(t, 4) // a slow machine must not reach the deadline
	l := fabrictest.Home(t, f, "orders@here")
	block()
	results := make(chan regions.Stored, fabric.MaxQueued+10)
	began := time.Now()
	for i := range fabric.MaxQueued + 10 {
		l.Append(regions.Draft{Record: record(i)}, func(s regions.Stored) { results <- s })
	}
	for range 10 {
		wantCode(t, (<-results).Err, api.Overloaded)
	}
	refused := time.Since(began)
	unblock()
	began = time.Now()
	for range fabric.MaxQueued {
		if s := <-results; s.Err != nil {
			t.Fatal(s.Err)
		}
	}
	t.Logf("%d waited, the others were refused within %s; stored %s after the disk went on", fabric.MaxQueued, refused, time.Since(began))
}

// RA5: a deadline that passes while the disk hangs is an unknown outcome, told in time.
func TestRA5_HangingDiskIsUnknown(t *testing.T) {
	f, block, unblock := openBlocked(t, 0.25)
	l := fabrictest.Home(t, f, "orders@here")
	allStored(t, appendMany(t, l, 0, 1))
	block()
	start := time.Now()
	s := fabrictest.Append(t, l, record(1))
	wantCode(t, s.Err, api.OutcomeUnknown)
	if took := time.Since(start); took > 4*time.Second {
		t.Fatalf("told after %s", took)
	}
	if c := l.ClosedInstant(); c.After(time.Now().Add(-time.Second)) {
		t.Errorf("closed instant %s is past an unreleased append", c)
	}
	if h := l.Head(); h.Sequence != 1 {
		t.Fatalf("head %+v", h)
	}
	if items := fabrictest.ReadAll(t, l, 0); len(items) != 1 {
		t.Fatalf("%d items are readable beyond the durable head", len(items))
	}
	changed := l.Changed(1)
	select {
	case <-changed:
		t.Error("the head moved before the disk answered")
	default:
	}
	unblock()
	<-changed
	if s := fabrictest.Append(t, l, record(1)); s.Err != nil || !s.Duplicate {
		t.Fatalf("retry: %+v", s)
	}
}
