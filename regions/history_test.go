package regions_test

import (
	"testing"

	"pgregory.net/rapid"

	"domicile/api"
	"domicile/regions"
)

// world is a log as it really went: who wrote what in which epoch, and where each ended.
type world struct {
	history regions.History
	written map[api.Epoch]uint64 // the last sequence that was ever given in it
	begins  map[api.Epoch]uint64 // the first
}

func drawWorld(t *rapid.T) world {
	w := world{written: map[api.Epoch]uint64{}, begins: map[api.Epoch]uint64{}}
	end := uint64(0)
	n := rapid.IntRange(1, 5).Draw(t, "epochs")
	for i := range n {
		e := api.Epoch{Term: uint32(1 + i/3), Counter: uint64(i + 1), Issuer: "q"}
		w.begins[e] = end + 1
		end += uint64(rapid.IntRange(0, 5).Draw(t, "kept"))
		w.written[e] = end + uint64(rapid.IntRange(0, 4).Draw(t, "beyond"))
		w.history = append(w.history, regions.EpochEnd{Epoch: e, End: end, Open: i == n-1})
		if i == n-1 {
			w.written[e] = end
		}
	}
	return w
}

// Every sequence of the log counts in exactly one epoch; what was given beyond an end is
// void, and so is all of an epoch that a rival gave.
func TestR14g_EverySequenceCountsInOneEpoch(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := drawWorld(t)
		if err := w.history.Check(); err != nil {
			t.Fatal(err)
		}
		counts := map[uint64]int{}
		last := uint64(0)
		for e, to := range w.written {
			for s := w.begins[e]; s <= to; s++ {
				last = max(last, s)
				if w.history.Judge(e, s) == regions.Counts {
					counts[s]++
				}
			}
			rival := e
			rival.Issuer = "rival"
			if w.history.Judge(rival, w.begins[e]) != regions.Beyond {
				t.Fatalf("a rival's epoch %s counts", rival)
			}
		}
		now := w.history[len(w.history)-1]
		for s := uint64(1); s <= w.written[now.Epoch]; s++ {
			if counts[s] != 1 {
				t.Fatalf("sequence %d counts in %d epochs: %+v", s, counts[s], w)
			}
			if at, ok := w.history.At(s); !ok || w.history.Judge(at, s) != regions.Counts || w.begins[at] > s {
				t.Fatalf("sequence %d counts in %s? %+v", s, at, w)
			}
		}
		later := now.Epoch
		later.Counter++
		if w.history.Judge(later, 1) != regions.Unsettled {
			t.Fatal("an epoch that the history does not know was judged")
		}
	})
}

// A copy that walks the log by Leads passes from epoch to epoch exactly where one ended.
func TestR14g_LeadsOnlyWhereAnEpochEnded(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := drawWorld(t)
		from := rapid.IntRange(0, len(w.history)-1).Draw(t, "from")
		to := rapid.IntRange(0, len(w.history)-1).Draw(t, "to")
		last := uint64(rapid.IntRange(0, 25).Draw(t, "last"))
		span := uint64(rapid.IntRange(0, 5).Draw(t, "span"))
		want := from < to
		for _, line := range w.history[min(from, to):max(from, to)] {
			want = want && line.End >= last && line.End <= last+span
		}
		if got := w.history.Leads(w.history[from].Epoch, last, w.history[to].Epoch, last+span); got != want {
			t.Fatalf("leads %v, want %v: %+v from %d at %d to %d over %d", got, want, w.history, from, last, to, span)
		}
		if w.history.Leads(w.history[from].Epoch, last, api.Epoch{Term: 9, Counter: 9, Issuer: "q"}, last) {
			t.Fatal("it leads to an epoch that the history does not know")
		}
	})
}

func TestHistoryIsChecked(t *testing.T) {
	e := func(n uint64) api.Epoch { return api.Epoch{Term: 1, Counter: n, Issuer: "q"} }
	for name, h := range map[string]regions.History{
		"no name":        {{End: 1}},
		"same twice":     {{Epoch: e(1), End: 1}, {Epoch: e(1), End: 2}},
		"goes back":      {{Epoch: e(2), End: 1}, {Epoch: e(1), End: 2}},
		"end falls":      {{Epoch: e(1), End: 5}, {Epoch: e(2), End: 4}},
		"open, not last": {{Epoch: e(1), Open: true}, {Epoch: e(2), End: 4}},
	} {
		if h.Check() == nil {
			t.Errorf("%s: taken", name)
		}
	}
	h := regions.History{{Epoch: e(1), End: 5}, {Epoch: e(2), End: 5}, {Epoch: e(3), Open: true}}
	if err := h.Check(); err != nil {
		t.Error(err)
	}
	if epoch, differs := h.Contradicts(regions.History{{Epoch: e(1), End: 5}, {Epoch: e(2), End: 6}}); !differs || epoch != e(2) {
		t.Errorf("contradiction at %v: %v", epoch, differs)
	}
	later := regions.History{{Epoch: e(1), End: 3}, {Epoch: api.Epoch{Term: e(1).Term + 1, Counter: 2, Issuer: "x"}, Open: true}}
	if !later.Overrules(h) || h.Overrules(later) || h.Overrules(h) {
		t.Error("a later authority's history, and no other, overrules another one")
	}
	if got := h.From(e(2), 10); len(got) != 2 || got[0].Epoch != e(2) {
		t.Errorf("from the second: %+v", got)
	}
}
