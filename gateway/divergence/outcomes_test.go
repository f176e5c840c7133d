package divergence

import (
	"bytes"
	"maps"
	"testing"

	"pgregory.net/rapid"

	"domicile/api"
	"domicile/regions/loss"
)

// Whatever is noted in whatever order, the last word on each record stands, in memory and
// in the journal.
func TestR14g_JournalKeepsTheLastWordOnEachRecord(t *testing.T) {
	fates := []loss.Fate{loss.Republished, loss.Present, loss.Kept, loss.Refused}
	rapid.Check(t, func(t *rapid.T) {
		const records = 40
		want := map[uint64]Outcome{}
		var o outcomes
		for range rapid.IntRange(0, 60).Draw(t, "notes") {
			n := rapid.Uint64Range(1, records).Draw(t, "sequence")
			out := Outcome{From: n, To: n, Fate: rapid.SampledFrom(fates).Draw(t, "fate")}
			switch out.Fate {
			case loss.Refused:
				out.Code = api.BadTag
			case loss.Republished:
				out.Epoch, out.At = "1.2.q", n+rapid.Uint64Range(100, 102).Draw(t, "at")
			}
			o.set(out)
			want[n] = out
		}
		text, err := o.text()
		if err != nil {
			t.Fatal(err)
		}
		again, err := readOutcomes(bytes.NewReader(text))
		if err != nil {
			t.Fatal(err)
		}
		counts := map[loss.Fate]uint64{loss.Open: records - uint64(len(want))}
		for n := uint64(1); n <= records; n++ {
			out, ok := want[n]
			if !ok {
				out = Outcome{From: n, To: n, Fate: loss.Open}
			} else {
				counts[out.Fate]++
			}
			if got := again.of(n); got != out {
				t.Fatalf("%d: %+v instead of %+v in %+v", n, got, out, again)
			}
		}
		if got := again.count(records, false); !maps.Equal(got, counts) {
			t.Fatalf("%v instead of %v", got, counts)
		}
	})
}

func FuzzJournal(f *testing.F) {
	f.Add([]byte(`{"from":1,"to":3,"fate":"republished","epoch":"1.2.q","at":7}` + "\n" + `{"from":2,"to":2,"fate":"refused"}` + "\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		o, err := readOutcomes(bytes.NewReader(text))
		if err != nil {
			return
		}
		last := uint64(0)
		for _, out := range o {
			if out.From <= last || out.To < out.From {
				t.Fatalf("%+v after %d", out, last)
			}
			last = out.To
		}
	})
}
