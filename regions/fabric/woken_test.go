package fabric_test

import (
	"context"
	"testing"
	"time"

	"domicile/api"
	"domicile/regions"
	"domicile/regions/fabric"
	"domicile/regions/fabric/fabrictest"
)

// A holder stands still between the decision to delete a log and the deletion itself. The
// next holder finishes the deletion, and the log is made anew. When the first one wakes up,
// its deletion reaches the broker and finds nothing that it could take.
func TestRA1_WokenHolderDeletesNothingThatWasMadeAnew(t *testing.T) {
	t.Parallel() // it mostly waits for an election
	decided, wake := make(chan string, 3), make(chan struct{})
	r := fabrictest.NewTrio(t, func(c *fabric.Config) {
		node := c.Cluster.Node
		c.Hooks.Step = func(step string) {
			if step == "deletion decided" {
				decided <- node
				<-wake
			}
		}
	})
	r.Start()
	holder := r.Holder()
	old := r.Node(holder)
	allStored(t, appendMany(t, fabrictest.Home(t, old, "orders@here"), 0, 10))
	over := make(chan error, 1)
	go func() {
		_, err := old.Delete(context.Background(), mustID(t, "orders@here"))
		over <- err
	}()
	<-decided
	r.Cut(holder)
	r.Holder(holder)
	// It comes back while it still stands in its decision: the broker places no new log while
	// a node is away of which its leader has not heard since their connection was made.
	r.Heal(holder)
	eventually(t, "the old holder knows the new one", func() bool {
		seat, _ := old.Seat()
		if seat.Node == "" || seat.Node == holder {
			return false
		}
		_, err := old.JetStream().AccountInfo(t.Context()) // its broker has found its leader, too
		return err == nil
	})
	var made regions.HomeLog
	// The deletion is finished first, which takes as long as a sweep, by whoever has the seat.
	for patience, tick := time.Now().Add(2*time.Minute), time.NewTicker(100*time.Millisecond); ; <-tick.C {
		var err error
		if made, err = r.Node(r.Holder(holder)).Home(t.Context(), fabric.LogConfig{ID: mustID(t, "orders@here"), Epoch: api.StaticEpoch("here"), MaxBytes: 64 << 20}); err == nil {
			tick.Stop()
			break
		}
		if time.Now().After(patience) {
			close(wake)
			t.Fatal("the log is not made anew: ", err)
		}
	}
	stored := appendMany(t, made, 0, 100)
	allStored(t, stored)
	close(wake)
	if err := <-over; err == nil {
		t.Error("the woken holder says that it deleted the log")
	}
	checkLog(t, made, stored)
	allStored(t, appendMany(t, made, 100, 110))
}

// What a former holder changed in a log's stream, and what reached the broker after the next
// one had opened it, is undone.
func TestRA1_LateChangeOfBoundsIsUndone(t *testing.T) {
	r := fabrictest.NewTrio(t)
	r.Start()
	f := r.Node(r.Holder())
	id := mustID(t, "orders@here")
	l := fabrictest.Home(t, f, "orders@here")
	allStored(t, appendMany(t, l, 0, 10))
	stream, err := f.JetStream().Stream(t.Context(), fabric.StreamName(id))
	if err != nil {
		t.Fatal(err)
	}
	was := stream.CachedInfo().Config
	late := was
	late.MaxBytes, late.Metadata = 1<<20, map[string]string{"domicile-purged": "1-5"}
	for k, v := range was.Metadata {
		late.Metadata[k] = v
	}
	late.Metadata["domicile-purged"] = "1-5"
	if _, err := f.JetStream().UpdateStream(t.Context(), late); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Sweep(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	if stream, err = f.JetStream().Stream(t.Context(), fabric.StreamName(id)); err != nil {
		t.Fatal(err)
	}
	if now := stream.CachedInfo().Config; now.MaxBytes != was.MaxBytes || now.Metadata["domicile-purged"] != "" {
		t.Fatalf("%d bytes, purged %q", now.MaxBytes, now.Metadata["domicile-purged"])
	}
}

// RA5: an append reaches the leader, the quorum goes before the answer, and when it is back
// the broker commits the record after its producer was told that nobody knows. A retry with
// the same id is that record.
func TestRA5_LateCommitFoundByID(t *testing.T) {
	t.Parallel() // it mostly waits
	r := fabrictest.NewTrio(t)
	r.Start()
	d := newDesk(t, r, "orders@here")
	told := d.append(0, 10)
	late := 0
	// Whether the leader comes back before another is elected, who does not have the record,
	// is not in our hands: tried until it did.
	for try := 0; try < 10 && late == 0; try++ {
		n := len(told)
		l, holder := d.log(), r.Holder()
		r.Cut(holder)
		got := make(chan regions.Stored, 1)
		l.Append(regions.Draft{Record: record(n), Revision: "7-abc"}, func(s regions.Stored) { got <- s })
		s := <-got
		r.Heal(holder)
		if s.Err == nil {
			t.Fatalf("acknowledged without a quorum: %+v", s)
		}
		next := d.append(n+1, n+2) // the region is at rest again
		at := uint64(0)
		for _, it := range readPatiently(t, d.log()) {
			if it.Record.ID == record(n).ID {
				at = it.Sequence
			}
		}
		again := d.append(n, n+1)[0]
		if again.Duplicate != (at > 0) || at > 0 && again.Position.Sequence != at {
			t.Fatalf("the record is at %d, and its retry was told %+v", at, again)
		}
		if at > 0 && api.CodeOf(s.Err) == api.OutcomeUnknown {
			late++
		}
		told = append(told, again, next[0])
	}
	if late == 0 {
		t.Fatal("no append was committed late")
	}
	checkLog(t, d.log(), told)
}
