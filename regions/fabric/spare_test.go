package fabric_test

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"domicile/regions/fabric"
	"domicile/regions/fabric/fabrictest"
)

// A node whose replicas are empty has no vote that counts before they are filled: were the
// holder stopped meanwhile, the region would stand still until it is back, with two of three
// nodes up. Whoever is stopped in order waits, so the seat moves.
func TestRA1_PlannedStopWaitsForTheNodeThatCatchesUp(t *testing.T) {
	t.Parallel() // it mostly waits for an election
	r := fabrictest.NewTrio(t)
	r.Start()
	d := newDesk(t, r, "orders@here")
	stored := d.append(0, 300)
	holder := r.Holder()
	late := "c"
	if holder == late {
		late = "b"
	}
	if err := r.Close(late); err != nil {
		t.Logf("close %s: %v", late, err)
	}
	stored = append(stored, d.append(300, 600)...)
	groups, err := filepath.Glob(filepath.Join(r.Configs[late].Dir, "broker/jetstream/SYS/_js_/S-*"))
	if err != nil || len(groups) < 2 {
		t.Fatalf("the replicas of %s: %v %v", late, groups, err)
	}
	for _, g := range groups {
		if err := os.RemoveAll(g); err != nil {
			t.Fatal(err)
		}
	}
	r.Configs[late].Cluster.Rejoin = true
	r.Start(late)
	d.attend(late)
	eventually(t, "the holder hears "+late, func() bool {
		return slices.ContainsFunc(r.Node(holder).Members(), func(m fabric.Member) bool { return m.Node == late && m.Up })
	})
	began := time.Now()
	if err := r.Node(holder).Spare(context.Background()); err != nil {
		t.Fatal(err)
	}
	for _, m := range r.Node(holder).Members() {
		if m.Node == late && m.Lacks != "" {
			t.Fatalf("spared although %s lacks something: %s", late, m.Lacks)
		}
	}
	if err := r.Close(holder); err != nil {
		t.Logf("close %s: %v", holder, err)
	}
	t.Logf("spared and closed after %v", time.Since(began))
	next := r.Holder(holder)
	t.Logf("from %s to %s after %v", holder, next, time.Since(began))
	more := d.append(600, 610)
	checkLog(t, d.log(), append(stored, more...))
	t.Logf("taking records after %v", time.Since(began))
}
