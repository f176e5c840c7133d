package fabric_test

import (
	"context"
	"slices"
	"testing"

	"domicile/api"
	"domicile/regions"
	"domicile/regions/fabric/fabrictest"
)

// What operators purged of an epoch says nothing of the records that get the same
// sequences in the next one, and a copy of which nothing is stored any more goes on where
// its epoch ended.
func TestR14g_PurgedCopyGoesBackAndOn(t *testing.T) {
	for _, to := range []uint64{9, 10} {
		dir := t.TempDir()
		f := openAt(t, dir)
		c := copyOf(t, f, nil)
		var items []regions.Item
		for i := range 10 {
			items = append(items, itemIn(1, i))
		}
		mirror(t, c, "inc-1", items)
		id := mustID(t, "orders@here")
		if _, err := f.Purge(context.Background(), id, to); err != nil {
			t.Fatal(err)
		}
		if err := f.Learn(context.Background(), id, ended(7)); err != nil {
			t.Fatal(err)
		}
		if at := c.Cursor(); at.Sequence != 7 || at.Ledger.Sum() != 7 || at.Epoch != epoch(1) {
			t.Fatalf("purged to %d: cursor %+v", to, at)
		}
		items = items[:0]
		for i := 7; i < 14; i++ {
			items = append(items, itemIn(2, i))
		}
		mirror(t, c, "inc-1", items)
		for range 2 {
			if _, err := f.Sweep(context.Background(), id); err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, it := range fabrictest.ReadAll(t, c, 0) {
				if it.Gap == nil {
					got = append(got, it.Record.ID)
				} else if it.Gap.To > 7 {
					t.Errorf("purged to %d: gap %+v", to, it.Gap)
				}
			}
			if !slices.Equal(got, ids(7, 14)) {
				t.Errorf("purged to %d: read %v", to, got)
			}
			f = reopen(t, f, dir)
			c = copyOf(t, f, nil)
		}
	}
}

// TestFC3_AnOlderHistoryChangesNothing: a copy that was given a row of epochs is given the
// one before it again, as by a node that was started and hears anew what was decided. It
// goes by the later one, whether it is open or opened then, and takes what that tells of.
func TestFC3_AnOlderHistoryChangesNothing(t *testing.T) {
	ctx, dir, id := context.Background(), t.TempDir(), mustID(t, "orders@here")
	f := openAt(t, dir)
	c := copyOf(t, f, nil)
	mirror(t, c, "inc-1", []regions.Item{itemIn(1, 0), itemIn(1, 1)})
	for _, h := range []regions.History{ended(2), ended(2, 2), ended(2), ended(2, 2)[:1]} {
		if err := f.Learn(ctx, id, h); err != nil {
			t.Fatalf("learn %v: %v", h, err)
		}
	}
	byLatest := func(when string) {
		t.Helper()
		tenure, _, err := f.Tenure(id)
		if err != nil || tenure.Latest() != epoch(3) || !slices.Equal(tenure.History, ended(2, 2)) {
			t.Fatalf("%s: tenure %+v %v", when, tenure, err)
		}
	}
	byLatest("an older one learned")
	closeLog(t, f)
	if h, ok, err := f.Held(ctx, id); err != nil || !ok || h.Latest != epoch(3) {
		t.Fatalf("closed, it is held as %+v %v %v", h, ok, err)
	}
	c = copyOf(t, f, ended(2))
	byLatest("opened with an older one")
	mirror(t, c, "inc-1", []regions.Item{itemIn(3, 2)})
	f = reopen(t, f, dir)
	c = copyOf(t, f, ended(2))
	if at := c.Cursor(); at.Sequence != 3 || at.Epoch != epoch(3) {
		t.Fatalf("cursor %+v", at)
	}
}

// TestFC3_ALaterEpochThatEndedLowerContradictsNothing: a log moved on at 10, its next home
// died with all that it had, and a region that has 8 took over. Whoever has 10 goes back, as
// for any end; two rows that no single authority can have given are still for a person.
func TestFC3_ALaterEpochThatEndedLowerContradictsNothing(t *testing.T) {
	f := openAt(t, t.TempDir())
	c, id := copyOf(t, f, nil), mustID(t, "orders@here")
	for i := range 10 {
		mirror(t, c, "inc-1", []regions.Item{itemIn(1, i)})
	}
	if err := f.Learn(t.Context(), id, ended(10)); err != nil {
		t.Fatal(err)
	}
	rival := regions.History{{Epoch: epoch(1), End: 8}, {Epoch: api.Epoch{Term: 1, Counter: 2, Issuer: "other"}, End: 8}, {Epoch: epoch(3), Open: true}}
	wantCode(t, f.Learn(t.Context(), id, rival), api.Contested)
	wantCode(t, f.Learn(t.Context(), id, ended(9, 10)), api.Contested)
	if err := f.Learn(t.Context(), id, ended(8, 8)); err != nil {
		t.Fatal(err)
	}
	if at := c.Cursor(); at.Sequence != 8 || at.Ledger.Sum() != 8 {
		t.Fatalf("cursor %+v", at)
	}
	checkVoid(t, f, epoch(1), 9, ids(8, 10))
}
