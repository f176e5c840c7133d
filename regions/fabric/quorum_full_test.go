package fabric_test

import (
	"sync/atomic"
	"testing"

	"domicile/api"
	"domicile/regions/fabric"
	"domicile/regions/fabric/fabrictest"
)

// Report B39, RA4: the disk of the node that holds the seat is full. It does not keep the
// region from taking records: the seat goes to a node that has room, and nothing
// acknowledged is lost. When all disks are full the seat stays, for the readers, and
// appends are refused; with room on one of them they are taken again.
func TestB39_FullHolderGivesTheSeatUp(t *testing.T) {
	t.Parallel() // it mostly waits for elections
	const gib = 1 << 30
	free := map[string]*atomic.Int64{}
	r := fabrictest.NewTrio(t, func(c *fabric.Config) {
		n := &atomic.Int64{}
		n.Store(50 * gib)
		free[c.Cluster.Node] = n
		c.Hooks.Free = func(string) (int64, int64, error) { return n.Load(), 100 * gib, nil }
	})
	r.Start()
	d := newDesk(t, r, "orders@here")
	stored := d.append(0, 200)
	for range 2 {
		holder := r.Holder()
		free[holder].Store(gib / 2)
		next := r.Holder(holder)
		if seat, _ := r.Node(holder).Seat(); seat.Mine {
			t.Fatalf("%s and %s hold the seat", holder, next)
		}
		n := len(stored)
		stored = append(stored, d.append(n, n+100)...)
		t.Logf("the seat went from %s, whose disk is full, to %s", holder, next)
	}
	last := r.Holder()
	free[last].Store(gib / 2)
	eventually(t, "all disks are full", func() bool { return !r.Node(last).Health().Volume.Low.IsZero() })
	seat, _ := r.Node(last).Seat()
	refused := appendMany(t, d.log(), len(stored), len(stored)+50)
	for _, s := range refused {
		wantCode(t, s.Err, api.StorageFull)
	}
	checkLog(t, d.log(), stored)
	if now, _ := r.Node(last).Seat(); now != seat {
		t.Errorf("the seat moved while every disk is full: %+v, then %+v", seat, now)
	}
	for _, n := range free {
		n.Store(50 * gib)
		break // one of them has room again
	}
	stored = append(stored, d.append(len(stored), len(stored)+50)...)
	checkLog(t, d.log(), stored)
}
