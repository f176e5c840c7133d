package fabric_test

import (
	"context"
	"slices"
	"testing"

	"domicile/regions"
	"domicile/regions/fabric"
	"domicile/regions/fabric/fabrictest"
)

// twoEpochs has a log of two epochs: 30 records, a fence, 20 records.
func twoEpochs(t *testing.T, f *fabric.Fabric) regions.HomeLog {
	t.Helper()
	allStored(t, appendMany(t, homeIn(t, f, epoch(1)), 0, 30))
	fence(t, f, epoch(1), "op")
	closeLog(t, f)
	l := homeIn(t, f, epoch(2))
	allStored(t, appendMany(t, l, 30, 50))
	return l
}

// RA1: the marker that ended an epoch is damaged on disk. No record is, and an audit says so:
// the log is not intact.
func TestRA1_AuditFindsADamagedMarker(t *testing.T) {
	dir := t.TempDir()
	f := openAt(t, dir)
	l := twoEpochs(t, f)
	v, err := f.Verify(context.Background(), l.ID())
	if err != nil || v.Markers != 0 || v.Records != 50 {
		t.Fatalf("%+v, %v", v, err)
	}
	closeNow(t, f)
	flip(t, dir, l.ID(), "Domicile-Control: fence", 20)
	flip(t, dir, l.ID(), "body 7", 2) // and a record before it
	f = openAt(t, dir)
	homeIn(t, f, epoch(2))
	v, err = f.Verify(context.Background(), l.ID())
	if err != nil || v.Markers != 1 || v.Damaged != 1 || v.Records != 49 {
		t.Fatalf("%+v, %v", v, err)
	}
}

// RA1: it is damaged on the disk of a node of three that does not hold the seat. The audit
// names that node, which goes after no seat until it was filled again.
func TestRA1_AuditFindsADamagedMarkerOfAReplica(t *testing.T) {
	t.Parallel() // it mostly waits for elections
	r := fabrictest.NewTrio(t)
	r.Start()
	holder := r.Holder()
	eventually(t, "all nodes have met", func() bool { return r.Node("a").ID() != "" && r.Node("b").ID() != "" && r.Node("c").ID() != "" })
	l := twoEpochs(t, r.Node(holder))
	names := []string{"a", "b", "c"}
	bad := names[(slices.Index(names, holder)+1)%3]
	eventually(t, "every node has all", func() bool {
		return !slices.ContainsFunc(r.Node(holder).Members(), func(m fabric.Member) bool { return m.Lacks != "" })
	})
	if err := r.Close(bad); err != nil {
		t.Log(err)
	}
	flip(t, r.Configs[bad].Dir, l.ID(), "Domicile-Control: fence", 20)
	r.Start(bad)
	eventually(t, "the audit names the node", func() bool {
		v, err := r.Node(holder).Verify(context.Background(), l.ID())
		if err != nil {
			t.Log(err)
			return false
		}
		at := slices.IndexFunc(v.Replicas, func(v fabric.Verified) bool { return v.Node == bad })
		x := v.Replicas[at]
		if x.Stopped == "" && (x.Markers != 1 || x.Damaged != 0 || x.Records != 50) || v.Markers != 0 {
			t.Fatalf("%+v", v)
		}
		return x.Stopped == ""
	})
	if why := r.Node(bad).Spoilt(); len(why) != 1 {
		t.Errorf("the node notes %v", why)
	}
}
