package fabric_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"domicile/api"
	"domicile/regions/fabric"
	"domicile/regions/fabric/fabrictest"
)

// refusedStart opens a node that must not take part in its region, and returns what it says.
func refusedStart(t *testing.T, cfg fabric.Config) (why string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	f, err := fabric.Open(ctx, cfg)
	if err != nil {
		wantCode(t, err, api.ConfigInvalid)
		return err.Error()
	}
	defer closeNow(t, f)
	eventually(t, "the node is refused", func() bool { return f.Health().Failed })
	return f.Health().Reason
}

func wipe(t *testing.T, dir string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if err := os.RemoveAll(filepath.Join(dir, e.Name())); err != nil {
			t.Fatal(err)
		}
	}
}

// seatTo moves the seat to a node. Whoever gives it away does not choose who takes it: that
// may need several elections.
func seatTo(t *testing.T, r *fabrictest.Trio, node string) {
	t.Helper()
	within(t, 2*time.Minute, "the seat is at "+node, func() bool {
		seat, _ := r.Node(node).Seat()
		if holder := r.Node(seat.Node); holder != nil && seat.Node != node {
			_ = holder.StepDown(context.Background())
		}
		return seat.Mine
	})
}

// RA1, RA4: what two of three nodes acknowledged is held by two disks, and one of them is
// wiped. The third, which has not got it, must not find a majority with the empty one: that
// is refused, waits as long as not both of its siblings are up when it is told to rejoin,
// and is filled when they are. Then it counts: with one of the others gone all is there.
func TestRA1_WipedNodeDoesNotVote(t *testing.T) {
	t.Parallel() // it mostly waits for elections
	r := fabrictest.NewTrio(t)
	r.Start()
	d := newDesk(t, r, "orders@here")
	stored := d.append(0, 200)
	eventually(t, "all nodes have met", func() bool { return r.Node("a").ID() != "" && r.Node("b").ID() != "" && r.Node("c").ID() != "" })
	seatTo(t, r, "a")
	if err := r.Close("c"); err != nil {
		t.Log(err)
	}
	stored = append(stored, d.append(200, 400)...) // on the disks of a and b alone
	for _, node := range []string{"b", "a"} {
		if err := r.Close(node); err != nil {
			t.Log(err)
		}
	}
	wipe(t, r.Configs["b"].Dir)
	r.Start("c")
	d.attend("c")
	if why := refusedStart(t, r.Configs["b"]); !strings.Contains(why, "--rejoin") {
		t.Errorf("refused with %s", why)
	}

	wipe(t, r.Configs["b"].Dir)
	r.Configs["b"].Cluster.Rejoin = true
	r.Start("b")
	d.attend("b")
	eventually(t, "the empty node waits for both", func() bool {
		seat, _ := r.Node("b").Seat()
		return strings.Contains(seat.Reason, "has to meet node a first")
	})
	if seat, _ := r.Node("c").Seat(); seat.Mine || seat.Node != "" {
		t.Fatalf("c sees a seat although only it and an empty node are up: %+v", seat)
	}
	r.Start("a")
	d.attend("a")
	stored = append(stored, d.append(400, 450)...)
	checkLog(t, d.log(), stored)
	eventually(t, "b takes part", func() bool {
		seat, _ := r.Node("b").Seat()
		return seat.Node != ""
	})
	seatTo(t, r, "b")
	stored = append(stored, d.append(450, 500)...)
	checkLog(t, d.log(), stored)
	if err := r.Close("a"); err != nil {
		t.Log(err)
	}
	stored = append(stored, d.append(500, 600)...)
	checkLog(t, d.log(), stored)
}

// RA1, report B41: the folder of one log, or of its votes, is gone from one node of three.
// It is not filled without a word: the start is refused and names what is gone; told to
// rejoin, the node is filled and has everything again.
func TestRA1_VanishedFolderOfOneNodeIsRefused(t *testing.T) {
	t.Parallel() // it mostly waits for elections
	r := fabrictest.NewTrio(t)
	r.Start()
	d := newDesk(t, r, "orders@here")
	stored := d.append(0, 3000)
	seatTo(t, r, "a")
	cfg := r.Configs["b"]
	folders := filepath.Join(cfg.Dir, "broker", "jetstream")
	eventually(t, "b has listed its folders", func() bool {
		b, _ := os.ReadFile(filepath.Join(cfg.Dir, "folders.json"))
		return strings.Contains(string(b), "orders__here") && strings.Contains(string(b), "votes/S-")
	})
	for name, pattern := range map[string]string{"orders@here": "*/streams/orders__here", "votes/S-": "SYS/_js_/S-*"} {
		cfg.Cluster.Rejoin = false
		if err := r.Close("b"); err != nil {
			t.Log(err)
		}
		gone, err := filepath.Glob(filepath.Join(folders, pattern))
		if err != nil || len(gone) == 0 {
			t.Fatalf("%v: %v", gone, err)
		}
		for _, path := range gone {
			if err := os.RemoveAll(path); err != nil {
				t.Fatal(err)
			}
		}
		if why := refusedStart(t, cfg); !strings.Contains(why, name) && !strings.Contains(why, "orders__here") || !strings.Contains(why, "--rejoin") {
			t.Errorf("without %s: refused with %s", pattern, why)
		}
		cfg.Cluster.Rejoin = true
		r.Start("b")
		d.attend("b")
		seatTo(t, r, "b")
		stored = append(stored, d.append(len(stored), len(stored)+100)...)
		checkLog(t, d.log(), stored)
		seatTo(t, r, "a")
	}
}

// A directory that was replaced while it was away comes back: it is told, and takes no part.
func TestRA1_ReplacedDirectoryIsExpelled(t *testing.T) {
	t.Parallel() // it mostly waits for elections
	r := fabrictest.NewTrio(t)
	r.Start()
	d := newDesk(t, r, "orders@here")
	stored := d.append(0, 50)
	seatTo(t, r, "a")
	eventually(t, "b has met the region", func() bool { return r.Node("b").ID() != "" })
	if err := r.Close("b"); err != nil {
		t.Log(err)
	}
	old := r.Configs["b"]
	fresh := old
	fresh.Dir = t.TempDir()
	cluster := *old.Cluster
	cluster.Rejoin = true
	fresh.Cluster = &cluster
	r.Configs["b"] = fresh
	r.Start("b")
	d.attend("b")
	eventually(t, "the new store takes part", func() bool {
		seat, _ := r.Node("b").Seat()
		return seat.Node != ""
	})
	if err := r.Close("b"); err != nil {
		t.Log(err)
	}
	if why := refusedStart(t, old); !strings.Contains(why, "another data directory") {
		t.Errorf("refused with %s", why)
	}
	r.Start("b")
	d.attend("b")
	seatTo(t, r, "b")
	stored = append(stored, d.append(50, 100)...)
	checkLog(t, d.log(), stored)
}

// RA1: a bit flips on the disk of a node that does not hold the seat. An audit reads every
// node's disk and names the record and the node; that node does not go after the seat; told
// to rejoin it sets the damaged copy aside, is filled, and has everything.
func TestRA1_DamagedReplicaIsFoundAndFilled(t *testing.T) {
	t.Parallel() // it mostly waits for elections
	r := fabrictest.NewTrio(t)
	r.Start()
	d := newDesk(t, r, "orders@here")
	stored := d.append(0, 400)
	id := mustID(t, "orders@here")
	eventually(t, "b has met the region", func() bool { return r.Node("b").ID() != "" })
	seatTo(t, r, "a")
	stored = append(stored, d.append(400, 450)...)
	if err := r.Close("b"); err != nil {
		t.Log(err)
	}
	lost := stored[30].Position.Sequence
	flip(t, r.Configs["b"].Dir, id, "Domicile-Id: id-000030", 15)
	r.Start("b")
	d.attend("b")
	audit := func() (v fabric.Verified) {
		t.Helper()
		seatTo(t, r, "a") // nothing keeps b from it before the damage is known
		eventually(t, "all disks are read", func() bool {
			var err error
			v, err = r.Node("a").Verify(context.Background(), id)
			for _, x := range v.Replicas {
				if x.Stopped != "" {
					err = errors.New(x.Stopped)
				}
			}
			if err != nil {
				t.Log(err)
			}
			return err == nil
		})
		return v
	}
	v := audit()
	for _, x := range append(v.Replicas, v) {
		want := uint64(0)
		if x.Node == "b" {
			want = 1
		}
		if x.Damaged != want || x.Records != 450-want || x.Checked != x.Records || want == 1 && x.Ranges[0] != (fabric.Range{From: lost, To: lost}) {
			t.Errorf("node %s: %+v", x.Node, x)
		}
	}
	if err := r.Close("b"); err != nil {
		t.Log(err)
	}
	r.Configs["b"].Cluster.Rejoin = true
	r.Start("b")
	d.attend("b")
	eventually(t, "b takes part", func() bool {
		seat, _ := r.Node("b").Seat()
		return seat.Node != ""
	})
	eventually(t, "b is whole", func() bool {
		for _, x := range append(audit().Replicas, v) {
			if x.Node == "b" {
				return x.Damaged == 0 && x.Records == 450
			}
		}
		return false
	})
	if _, err := os.Stat(filepath.Join(r.Configs["b"].Dir, "quarantine", fabric.StreamName(id), "msgs")); err != nil {
		t.Error(err)
	}
	seatTo(t, r, "b")
	stored = append(stored, d.append(450, 500)...)
	checkLog(t, d.log(), stored)
}
