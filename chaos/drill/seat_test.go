package drill_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"domicile/chaos/drill"
	"domicile/chaos/drill/history"
	"domicile/chaos/lab"
)

// TestR14i_ADrillFollowsTheSeat: the seat of a region of three moves to another node after the
// controller has looked who has it. Probes, the move to that region and the way back are asked
// of the new one, and the drill is whole.
func TestR14i_ADrillFollowsTheSeat(t *testing.T) {
	long(t)
	r := open(t, "us-east")
	p := r.plan(t)
	r.ready(t, p)
	region := r.lab.Region("us-east")
	old := region.Holder()
	p.For, p.Exercise = 15*time.Second, []drill.Exercise{{Topic: catalog, To: "us-east"}}
	p.Expect = slices.DeleteFunc(slices.Clone(p.Expect), func(e drill.Expect) bool { return e.Topic == catalog })
	judged := r.judged(t, drill.Config{ID: "seat", Plan: p, Confirmed: true, Say: func(line string) {
		if line != string(history.Baseline) {
			return
		}
		if err := errors.Join(old.Stop(t.Context()), old.Start(t.Context())); err != nil {
			t.Error(err)
		}
		if err := lab.Poll(t.Context(), 3*time.Minute, func() error {
			if h := region.Holder(); h == nil || h == old {
				return errors.New("nobody else holds the seat")
			}
			return r.lab.Linked(t.Context())
		}); err != nil {
			t.Error(err)
		}
	}})
	if now := region.Holder(); now == old {
		t.Skip("the seat went back to where it was")
	}
	for _, m := range judged.Moves {
		if m.RTO == nil {
			t.Errorf("%+v", m)
		}
	}
	if len(judged.Moves) != 2 {
		t.Errorf("%d moves: %+v", len(judged.Moves), judged.Moves)
	}
	r.clean(t, "seat", time.Minute)
}
