package fabric_test

import (
	"context"
	"testing"

	"domicile/api"
	"domicile/regions/fabric/fabrictest"
)

// A solo region's one node holds the seat from the start. Vacated logs are opened
// again, with all they held, and the old handles take nothing more.
func TestRA1_VacatedLogsOpenAgain(t *testing.T) {
	f := fabrictest.Open(t)
	seat, changed := f.Seat()
	if !seat.Mine || seat.Term == 0 || changed == nil {
		t.Fatalf("seat %+v", seat)
	}
	old := fabrictest.Home(t, f, "orders@here")
	allStored(t, appendMany(t, old, 0, 200))
	if err := f.Vacate(context.Background()); err != nil {
		t.Fatal(err)
	}
	again := fabrictest.Home(t, f, "orders@here")
	if got := again.Head().Sequence; got != 200 {
		t.Fatalf("head %d after the second opening", got)
	}
	lost := appendMany(t, old, 200, 201)[0]
	wantCode(t, lost.Err, api.NotReady)
	if s := appendMany(t, again, 199, 201); !s[0].Duplicate || s[1].Position.Sequence != 201 {
		t.Fatalf("%+v", s)
	}
}
