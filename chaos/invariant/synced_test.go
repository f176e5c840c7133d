package invariant_test

import (
	"slices"
	"testing"

	"domicile/chaos/invariant"
	"domicile/chaos/ledger"
)

// TestR14j_AnAckThatNamesCopiesIsJudged: every region that an ack names must have the
// record, else the run is red.
func TestR14j_AnAckThatNamesCopiesIsJudged(t *testing.T) {
	named := func() *run {
		r := spoilable(1)
		copied := map[uint64]bool{}
		for _, i := range r.shelf("orders@us", "eu").Items {
			copied[i.Sequence] = true
		}
		for i := range r.h.Events {
			if e := r.h.Events[i].Entry; e != nil && e.Outcome == ledger.Acked && e.Log == "orders@us" && copied[e.Sequence] {
				said := *e
				said.Copies = []string{"eu"}
				r.h.Events[i].Entry = &said
			}
		}
		return r
	}
	r := named()
	if v := invariant.Check(r.h, r.final, limits); v.Broken[invariant.Synced] > 0 || v.Judged[invariant.Synced] < 10 {
		t.Errorf("a good run: %v, %d judged", v.Violations, v.Judged[invariant.Synced])
	}
	r = named()
	s := r.shelf("orders@us", "eu")
	s.Items = slices.Delete(slices.Clone(s.Items), 5, 6)
	if v := invariant.Check(r.h, r.final, limits); v.Broken[invariant.Synced] == 0 {
		t.Error("a record that an ack places in eu is not there, and nobody says so")
	}
}
