package fabric_test

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"domicile/regions/fabric"
	"domicile/regions/fabric/fabrictest"
)

// Report B39, RA4, RA5: the disk of a node that follows runs full, until its broker can't
// write its replicas. The region goes on acknowledging with the two others, the node says
// that it lacks something for as long as it does, and once there is space it has all again,
// without a restart and without a person.
func TestB39_ReplicaOfAFullDiskIsFilledAgain(t *testing.T) {
	needRoot(t, "unshare", "mount", "umount")
	inNamespace(t, replicaOfAFullDisk)
}

func replicaOfAFullDisk(t *testing.T) {
	disks := map[string]string{}
	r := fabrictest.NewTrio(t, func(c *fabric.Config) {
		disk := t.TempDir()
		must(t, "mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", disk)
		t.Cleanup(func() { must(t, "umount", "-l", disk) })
		disks[c.Cluster.Node] = disk
		c.Dir = filepath.Join(disk, "data")
	})
	r.Start()
	d := newDesk(t, r, "orders@here")
	stored := d.append(0, 200)
	holder := r.Holder()
	names := []string{"a", "b", "c"}
	full := names[(slices.Index(names, holder)+1)%3]
	lacks := func() string {
		for _, m := range r.Node(holder).Members() {
			if m.Node == full {
				return m.Lacks
			}
		}
		return ""
	}
	eventually(t, "every node lacks nothing", func() bool { return lacks() == "" })
	stuffing := filepath.Join(disks[full], "stuffing")
	stuff(t, stuffing)
	stored = append(stored, d.append(200, 1200)...)
	eventually(t, "the node on the full disk lacks something", func() bool { return lacks() != "" })
	eventually(t, "its store failed, for a while", func() bool { h := r.Node(full).Health(); return h.Failed && h.Passes })
	stored = append(stored, d.append(1200, 1300)...)
	if now := r.Holder(); now != holder {
		t.Errorf("the seat went from %s to %s although the disk of %s is full", holder, now, full)
	}
	if err := os.Remove(stuffing); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the node works again and lacks nothing", func() bool { return !r.Node(full).Health().Failed && lacks() == "" })
	checkLog(t, d.log(), stored)
	id := mustID(t, "orders@here")
	eventually(t, "its disk is read and holds all", func() bool {
		v, err := r.Node(holder).Verify(context.Background(), id)
		if err != nil {
			t.Fatal(err)
		}
		at := slices.IndexFunc(v.Replicas, func(v fabric.Verified) bool { return v.Node == full })
		return at >= 0 && v.Replicas[at].Stopped == "" && v.Replicas[at].Damaged == 0 && v.Replicas[at].Records == 1300
	})
}
