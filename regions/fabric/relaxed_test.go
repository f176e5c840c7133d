package fabric_test

import (
	"context"
	"net"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"domicile/api"
	"domicile/regions"
	"domicile/regions/fabric"
	"domicile/regions/fabric/fabrictest"
)

func relaxedHome(t *testing.T, f *fabric.Fabric) regions.HomeLog {
	t.Helper()
	l, err := f.Home(context.Background(), fabric.LogConfig{ID: mustID(t, "metrics@here"), Epoch: api.StaticEpoch("here"), MaxBytes: 64 << 20, Relaxed: true})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// RA6: a relaxed record is acknowledged before it is synced, and the ack says so. Until it
// is, nobody reads it, no closed instant passes it, and its id is known.
func TestRA6_RelaxedIsToldBeforeItIsSynced(t *testing.T) {
	gate := make(chan struct{})
	var hold atomic.Bool
	f := fabrictest.Open(t, func(c *fabric.Config) {
		c.Hooks.Sync = func(d *os.File) error {
			if hold.Load() {
				<-gate
			}
			return fabric.Syncfs(d)
		}
	})
	l := relaxedHome(t, f)
	hold.Store(true)
	first := fabrictest.Append(t, l, record(0))
	if first.Err != nil || first.Done != api.OS1 || first.Position.Sequence != 1 {
		t.Fatalf("%+v", first)
	}
	if got := l.Head().Sequence; got != 0 || len(fabrictest.ReadAll(t, l, 0)) != 0 {
		t.Errorf("head %d before a sync", got)
	}
	if at := l.ClosedInstant(); at.After(first.Time) {
		t.Errorf("closed at %s, a record of %s is not durable", at, first.Time)
	}
	if s := fabrictest.Append(t, l, record(0)); s.Err != nil || !s.Duplicate || s.Done != api.OS1 || s.Position != first.Position {
		t.Errorf("again: %+v", s)
	}
	hold.Store(false)
	close(gate)
	waitFor(t, 30*time.Second, func() bool { return l.Head().Sequence == 1 })
	if s := fabrictest.Append(t, l, record(0)); s.Err != nil || !s.Duplicate || s.Done != api.Disk1 {
		t.Errorf("once it is synced: %+v", s)
	}
	if s := fabrictest.Append(t, fabrictest.Home(t, f, "orders@here"), record(0)); s.Err != nil || s.Done != api.Disk1 {
		t.Errorf("another log: %+v", s)
	}
}

// RA6: relaxed records share a sync; there is one about every second, none when nothing
// waits, and none is left out at the end.
func TestRA6_RelaxedSharesSyncs(t *testing.T) {
	dir := t.TempDir()
	var syncs atomic.Int32
	f := fabrictest.Open(t, func(c *fabric.Config) {
		c.Dir = dir
		c.Hooks.Sync = func(d *os.File) error { syncs.Add(1); return fabric.Syncfs(d) }
	})
	l := relaxedHome(t, f)
	before, start := syncs.Load(), time.Now()
	for i := range 1000 {
		if s := fabrictest.Append(t, l, record(i)); s.Err != nil {
			t.Fatal(s.Err)
		}
	}
	if n, most := syncs.Load()-before, int32(time.Since(start)/time.Second)+1; n > most {
		t.Errorf("%d syncs for records that can wait, at most %d are due", n, most)
	}
	closeNow(t, f)
	f = fabrictest.Open(t, func(c *fabric.Config) { c.Dir = dir })
	l = relaxedHome(t, f)
	denseAndOnce(t, l, 1000)
	if h := l.Head(); h.Term != 1 {
		t.Errorf("term %d after a clean end", h.Term)
	}
}

// RA6: a killed process loses no relaxed record that was acknowledged; the next start is
// under a new writer term.
func TestRA6_KillLosesNoRelaxedRecord(t *testing.T) {
	dir := t.TempDir()
	c := startChild(t, nil, childDir+"="+dir, childWindow+"=500", childBody+"=512", childBytes+"=67108864", childRelaxed+"=1")
	c.waitAcks(t, 2000)
	c.kill()
	if lost, _ := c.verify(t, dir, 512); lost > 0 {
		t.Fatalf("%d of %d acknowledged records are lost", lost, len(c.acked))
	}
}

// RA6: the disk fails after the ack and before the sync: the store says so, and what was
// told stays os-1, never more.
func TestRA6_FailedSyncOfRelaxedIsSaid(t *testing.T) {
	var broken atomic.Bool
	f := fabrictest.Open(t, func(c *fabric.Config) {
		c.Pace = 0.25
		c.Hooks.Sync = func(d *os.File) error {
			if broken.Load() {
				return os.ErrInvalid
			}
			return fabric.Syncfs(d)
		}
	})
	l := relaxedHome(t, f)
	broken.Store(true)
	if s := fabrictest.Append(t, l, record(0)); s.Err != nil || s.Done != api.OS1 {
		t.Fatalf("%+v", s)
	}
	waitFor(t, 30*time.Second, func() bool { return f.Health().Failed })
	wantCode(t, fabrictest.Append(t, l, record(1)).Err, api.StorageFailed)
	if h := l.Head(); h.Sequence != 0 {
		t.Errorf("head %+v", h)
	}
}

// RA6: a retry of a record that is not synced is never told more, also when the record
// can't be read just then.
func TestRA6_RetryOfRelaxedIsNotToldMore(t *testing.T) {
	gate := make(chan struct{})
	var hold, deaf atomic.Bool
	f := fabrictest.Open(t, func(c *fabric.Config) {
		c.Hooks.Sync = func(d *os.File) error {
			if hold.Load() {
				<-gate
			}
			return fabric.Syncfs(d)
		}
		c.Hooks.Wire = func(conn net.Conn) net.Conn {
			if deaf.Load() {
				_ = conn.Close()
			}
			return conn
		}
	})
	l := relaxedHome(t, f)
	hold.Store(true)
	if s := fabrictest.Append(t, l, record(0)); s.Err != nil || s.Done != api.OS1 {
		t.Fatalf("%+v", s)
	}
	deaf.Store(true)
	f.CutWire()
	s := fabrictest.Append(t, l, record(0))
	deaf.Store(false)
	hold.Store(false)
	close(gate)
	if s.Err != nil || !s.Duplicate || s.Done != api.OS1 {
		t.Errorf("%+v", s)
	}
}
