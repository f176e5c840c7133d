package fabric_test

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"domicile/api"
	"domicile/regions"
	"domicile/regions/fabric"
	"domicile/regions/fabric/fabrictest"
)

// R14d: the clock is set back by an hour between two runs, after a clean end and after a
// kill. No record gets an ingest time before an instant that was given out as closed.
func TestR14d_ClockSetBackBetweenRuns(t *testing.T) {
	for _, killed := range []bool{false, true} {
		dir := t.TempDir()
		clock := regions.NewManualClock(time.Unix(1_800_000_000, 0))
		f := fabrictest.Open(t, func(c *fabric.Config) { c.Dir, c.Clock = dir, clock })
		l := fabrictest.Home(t, f, "orders@here")
		allStored(t, appendMany(t, l, 0, 3))
		clock.Advance(time.Minute)
		var closed time.Time
		waitFor(t, 30*time.Second, func() bool { // the log is idle, and closed further and further
			closed = l.ClosedInstant()
			return closed.Equal(clock.Now())
		})
		clock.Advance(time.Hour)
		closed = l.ClosedInstant() // as far as the mark on disk lets it
		if killed {
			left := t.TempDir()
			if err := os.CopyFS(left, os.DirFS(dir)); err != nil {
				t.Fatal(err)
			}
			dir = left
		} else {
			closeNow(t, f)
		}
		clock = regions.NewManualClock(time.Unix(1_800_000_000, 0).Add(-time.Hour))
		f = fabrictest.Open(t, func(c *fabric.Config) { c.Dir, c.Clock = dir, clock })
		s := fabrictest.Append(t, fabrictest.Home(t, f, "orders@here"), record(3))
		if s.Err != nil || s.Time.Before(closed) {
			t.Errorf("killed %v: stamped %s, %s was called closed (%v)", killed, s.Time, closed, s.Err)
		}
		closeNow(t, f)
	}
}

// RA1: the end of a log's file is cut off behind the store's back. The start notices: what
// is left is served, what is lost is named, and no sequence is given a second time.
func TestRA1_CutOffEndIsNamed(t *testing.T) {
	dir := t.TempDir()
	f := fabrictest.Open(t, func(c *fabric.Config) { c.Dir = dir })
	allStored(t, appendMany(t, fabrictest.Home(t, f, "orders@here"), 0, 60))
	closeNow(t, f)
	path := blockFiles(t, dir, mustID(t, "orders@here"))[0]
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, int64(find(b, "body 40"))); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		f = fabrictest.Open(t, func(c *fabric.Config) { c.Dir = dir })
		l := fabrictest.Home(t, f, "orders@here")
		if h := l.Head(); h.Sequence != 60 || h.Term < 2 {
			t.Fatalf("head %+v", h)
		}
		holed(t, l, 60, fabric.Range{From: 41, To: 60})
		closeNow(t, f)
	}
	f = fabrictest.Open(t, func(c *fabric.Config) { c.Dir = dir })
	l := fabrictest.Home(t, f, "orders@here")
	if s := fabrictest.Append(t, l, record(60)); s.Err != nil || s.Position.Sequence != 61 {
		t.Fatalf("next: %+v", s)
	}
	holed(t, l, 61, fabric.Range{From: 41, To: 60})
}

// RA1, report B41: the broker's own files are damaged or gone. Its index is made anew from
// the records; a log whose description can't be read, or that is gone, stays shut and is
// named, and takes no other log with it.
func TestB41_DamagedFilesOfTheBroker(t *testing.T) {
	id := mustID(t, "orders@here")
	stream := filepath.Join("broker", "jetstream", api.DefaultTenant, "streams", fabric.StreamName(id))
	for name, c := range map[string]struct {
		change func(dir string) error
		starts bool
	}{
		"index.db is garbage": {func(dir string) error {
			return os.WriteFile(filepath.Join(dir, stream, "msgs", "index.db"), bytes.Repeat([]byte("x"), 200), 0o600)
		}, true},
		"index.db is empty": {func(dir string) error {
			return os.Truncate(filepath.Join(dir, stream, "msgs", "index.db"), 0)
		}, true},
		"meta.inf is garbage": {func(dir string) error {
			return os.WriteFile(filepath.Join(dir, stream, "meta.inf"), []byte("{"), 0o600)
		}, false},
		"the folder is gone": {func(dir string) error { return os.RemoveAll(filepath.Join(dir, stream)) }, false},
	} {
		dir := t.TempDir()
		f := fabrictest.Open(t, func(c *fabric.Config) { c.Dir = dir })
		allStored(t, appendMany(t, fabrictest.Home(t, f, "orders@here"), 0, 60))
		allStored(t, appendMany(t, fabrictest.Home(t, f, "bills@here"), 0, 60))
		closeNow(t, f)
		if err := c.change(dir); err != nil {
			t.Fatal(name, err)
		}
		if c.starts {
			f = fabrictest.Open(t, func(c *fabric.Config) { c.Dir = dir })
			denseAndOnce(t, fabrictest.Home(t, f, "orders@here"), 60)
			closeNow(t, f)
			continue
		}
		f = fabrictest.Open(t, func(c *fabric.Config) { c.Dir = dir })
		_, err := f.Home(context.Background(), fabric.LogConfig{ID: id, Epoch: api.StaticEpoch("here"), MaxBytes: 1 << 20})
		wantCode(t, err, api.ConfigInvalid)
		denseAndOnce(t, fabrictest.Home(t, f, "bills@here"), 60)
		if h := f.Health(); h.Logs[0].Shut != "" || h.Logs[1].Log != id.String() || !strings.Contains(h.Logs[1].Shut, "its data is gone") {
			t.Errorf("%s: %+v", name, h.Logs)
		}
		closeNow(t, f)
		if !bytes.Contains([]byte(err.Error()), []byte(id.String())) {
			t.Errorf("%s: %v does not name the log", name, err)
		}
	}
}
