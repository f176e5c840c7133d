package fabric_test

import (
	"bytes"
	"context"
	"errors"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"domicile/api"
	"domicile/regions"
	"domicile/regions/fabric"
	"domicile/regions/fabric/fabrictest"
)

// RA1: a log that is opened while the disk fails is told so at once.
func TestRA1_OpenOnAFailingDiskIsToldAtOnce(t *testing.T) {
	var broken atomic.Bool
	f := fabrictest.Open(t, func(c *fabric.Config) {
		c.Hooks.Sync = func(d *os.File) error {
			if broken.Load() {
				return errors.New("input/output error")
			}
			return fabric.Syncfs(d)
		}
	})
	broken.Store(true)
	ctx, cancel := context.WithTimeout(context.Background(), 4*time.Second)
	defer cancel()
	_, err := f.Home(ctx, fabric.LogConfig{ID: mustID(t, "orders@here"), Epoch: api.StaticEpoch("here"), MaxBytes: 1 << 20})
	wantCode(t, err, api.StorageFailed)
	if ctx.Err() != nil {
		t.Error("told only when the caller gave up")
	}
}

// Close may be called twice at once and while logs are being opened and written to: all
// callers return, and every append is answered.
func TestRA1_CloseFromSeveralSides(t *testing.T) {
	for range 5 {
		dir := t.TempDir()
		f := fabrictest.Open(t, func(c *fabric.Config) { c.Dir = dir })
		l := fabrictest.Home(t, f, "orders@here")
		var wg sync.WaitGroup
		for i := range 300 {
			wg.Add(1)
			l.Append(regions.Draft{Record: record(i)}, func(regions.Stored) { wg.Done() })
		}
		for _, name := range []string{"a@here", "b@here"} {
			wg.Go(func() {
				l, err := f.Home(context.Background(), fabric.LogConfig{ID: mustID(t, name), Epoch: api.StaticEpoch("here"), MaxBytes: 1 << 20})
				if err != nil {
					return
				}
				wg.Add(1)
				l.Append(regions.Draft{Record: record(1)}, func(regions.Stored) { wg.Done() })
			})
			wg.Go(func() { closeNow(t, f) })
		}
		start := time.Now()
		wg.Wait()
		if took := time.Since(start); took > 4*time.Second {
			t.Errorf("the last was told after %s", took)
		}
		f = fabrictest.Open(t, func(c *fabric.Config) { c.Dir = dir }) // it let go of everything
		closeNow(t, f)
	}
}

// RA5: a read that the broker answers with nothing is not taken for the log's end: the
// record it did not give out is not stored again, and no reader steps over it: what the
// broker holds is read from its files then.
func TestRA5_EmptyReadIsNotTheEnd(t *testing.T) {
	var drop, lies atomic.Int32
	f := fabrictest.Open(t, func(c *fabric.Config) {
		c.Hooks.DropAck = func(api.LogID) bool { return drop.Add(-1) >= 0 }
		c.Hooks.Wire = func(conn net.Conn) net.Conn { return lyingConn{conn, &lies} }
	})
	l := fabrictest.Home(t, f, "orders@here")
	lies.Store(1)
	drop.Store(1)
	allStored(t, appendMany(t, l, 0, 5))
	r, err := l.Reader(context.Background(), 0)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	lies.Store(1)
	if items, err := r.Next(context.Background(), regions.ReadLimit{Records: 10, Bytes: 1 << 20}); err != nil || len(items) != 5 {
		t.Errorf("%d items, %v", len(items), err)
	}
	denseAndOnce(t, l, 5)
}

// lyingConn has the broker look for the sequences below 10 where there are none, which
// is how a failed read is answered.
type lyingConn struct {
	net.Conn
	lies *atomic.Int32
}

func (c lyingConn) Write(b []byte) (int, error) {
	if at := bytes.Index(b, []byte(`"seq":`)); at >= 0 && bytes.Contains(b, []byte("DIRECT.GET")) && c.lies.Add(-1) >= 0 {
		if at += len(`"seq":`); b[at+1] == '}' {
			b = bytes.Clone(b)
			b[at] = '9'
		}
	}
	return c.Conn.Write(b)
}
