package fabric_test

import (
	"context"
	"testing"

	"domicile/api"
	"domicile/regions/fabric/fabrictest"
)

// RA6, RD1: an ack of a record that is stored already claims nothing that is not known. What
// this writer stored it knows by heart; what an earlier one stored it has to read; and of
// what retention took since, epoch and term are not said.
func TestRD1_DuplicateClaimsOnlyWhatIsKnown(t *testing.T) {
	dir := t.TempDir()
	f := openAt(t, dir)
	before := appendMany(t, fabrictest.Home(t, f, "orders@here"), 0, 20)
	allStored(t, before)
	closeNow(t, f)
	markFailed(t, dir, map[string]uint64{}) // so that the next writer has a term of its own
	f = openAt(t, dir)
	l := fabrictest.Home(t, f, "orders@here")
	after := appendMany(t, l, 20, 30)
	allStored(t, after)
	if after[0].Term == before[0].Term {
		t.Fatal("the term did not change")
	}
	again := func(i int) (told api.Cursor, term uint64, err error) {
		s := fabrictest.Append(t, l, record(i))
		if s.Err == nil && !s.Duplicate {
			t.Fatalf("record %d: %+v", i, s)
		}
		return s.Position, s.Term, s.Err
	}
	if at, term, err := again(15); err != nil || at != before[15].Position || term != before[15].Term {
		t.Errorf("of an earlier writer: %+v under %d, %v", at, term, err)
	}
	if _, err := f.Purge(context.Background(), l.ID(), 10); err != nil {
		t.Fatal(err)
	}
	if at, term, err := again(5); err != nil || at.Sequence != 6 || at.Epoch != (api.Epoch{}) || term != 0 {
		t.Errorf("of an earlier writer, and purged: %+v under %d, %v", at, term, err)
	}
	f.StopBroker() // nothing can be read any more
	if at, term, err := again(25); err != nil || at != after[5].Position || term != after[5].Term {
		t.Errorf("of this writer, unread: %+v under %d, %v", at, term, err)
	}
	_, _, err := again(15)
	wantCode(t, err, api.OutcomeUnknown)
}
