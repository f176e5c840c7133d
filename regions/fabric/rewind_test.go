package fabric_test

import (
	"context"
	"slices"
	"testing"

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
