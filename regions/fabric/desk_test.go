package fabric_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"domicile/api"
	"domicile/regions"
	"domicile/regions/fabric"
	"domicile/regions/fabric/fabrictest"
)

// desk does what a node does above the store: on each of a trio's nodes it opens a log
// while that node holds the seat, and vacates it after.
type desk struct {
	t    testing.TB
	r    *fabrictest.Trio
	name string

	mu   sync.Mutex
	home regions.HomeLog
	term uint64
}

// newDesk attends to all nodes that run.
func newDesk(t testing.TB, r *fabrictest.Trio, log string) *desk {
	d := &desk{t: t, r: r, name: log}
	for _, node := range []string{"a", "b", "c"} {
		if r.Node(node) != nil {
			d.attend(node)
		}
	}
	return d
}

// attend follows a node's seat until the test ends.
func (d *desk) attend(node string) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	f := d.r.Node(node)
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			seat, changed := f.Seat()
			again := make(<-chan time.Time)
			if seat.Mine && !d.turn(ctx, f, seat.Term) {
				again = time.After(200 * time.Millisecond)
			}
			select {
			case <-changed:
			case <-again:
			case <-ctx.Done():
			}
			if seat.Mine {
				_ = f.Vacate(ctx)
			}
		}
	}()
	d.t.Cleanup(func() { cancel(); <-done })
}

func (d *desk) turn(ctx context.Context, f *fabric.Fabric, term uint64) bool {
	id, err := api.ParseLogID(d.name)
	if err != nil {
		d.t.Error(err)
		return true
	}
	l, err := f.Home(ctx, fabric.LogConfig{ID: id, Epoch: api.StaticEpoch("here"), MaxBytes: 64 << 20})
	if err != nil {
		d.t.Logf("term %d: %v", term, err)
		return false
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if term > d.term {
		d.home, d.term = l, term
	}
	return true
}

// log is the log as the last holder that opened it has it.
func (d *desk) log() regions.HomeLog {
	d.t.Helper()
	var l regions.HomeLog
	eventually(d.t, "the log is open", func() bool {
		d.mu.Lock()
		defer d.mu.Unlock()
		l = d.home
		return l != nil
	})
	return l
}

// append appends records from to to-1 as a patient producer does: what fails with a code
// that allows it is sent again, with the same id, to whoever has the log then.
func (d *desk) append(from, to int) []regions.Stored {
	d.t.Helper()
	deadline := time.Now().Add(90 * time.Second)
	out := make([]regions.Stored, to-from)
	var wg sync.WaitGroup
	for i := range out {
		wg.Add(1)
		var try func()
		try = func() {
			d.log().Append(regions.Draft{Record: record(from + i), Revision: "7-abc"}, func(s regions.Stored) {
				if s.Err != nil && api.CodeOf(s.Err).Retryable() && time.Now().Before(deadline) {
					time.AfterFunc(50*time.Millisecond, try)
					return
				}
				out[i] = s
				wg.Done()
			})
		}
		try()
	}
	wg.Wait()
	allStored(d.t, out)
	return out
}
