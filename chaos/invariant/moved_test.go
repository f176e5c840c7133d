package invariant_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"domicile/chaos/invariant"
	"domicile/chaos/ledger"
)

// movedRun is a log that moved twice: from west, which was forced to end at 6 with two records
// beyond, to east, which was left in order at 9, and back.
type movedRun struct {
	entries []ledger.Entry
	ends    []invariant.Ended
	home    []ledger.Shelf
	void    []ledger.Item
}

func goodMoves() *movedRun {
	r := &movedRun{ends: []invariant.Ended{{Log: "orders", Epoch: "1", End: 6, Forced: true, Overlap: true}, {Log: "orders", Epoch: "2", End: 9}},
		home: []ledger.Shelf{{Region: "west", Log: "orders", Home: true}}}
	ack := func(region, epoch string, sequence uint64, at int) {
		r.entries = append(r.entries, ledger.Entry{ID: fmt.Sprintf("%s-%d", epoch, sequence), Outcome: ledger.Acked, Log: "orders", Region: region,
			Epoch: epoch, Sequence: sequence, Begin: time.Duration(at) * time.Second, End: time.Duration(at)*time.Second + time.Millisecond})
	}
	for seq := uint64(1); seq <= 8; seq++ {
		ack("west", "1", seq, int(seq)) // 7 and 8 while east writes already
	}
	for seq := uint64(7); seq <= 9; seq++ {
		ack("east", "2", seq, int(seq)-1)
	}
	for seq := uint64(10); seq <= 12; seq++ {
		ack("west", "3", seq, int(seq))
	}
	for i := range r.entries {
		e := &r.entries[i]
		it := ledger.Item{Log: e.Log, Sequence: e.Sequence, ID: e.ID, Epoch: e.Epoch}
		if e.Epoch == "1" && e.Sequence > 6 {
			r.void = append(r.void, it)
		} else {
			r.home[0].Items = append(r.home[0].Items, it)
		}
	}
	return r
}

func (r *movedRun) entry(id string) *ledger.Entry {
	for i := range r.entries {
		if r.entries[i].ID == id {
			return &r.entries[i]
		}
	}
	panic("no entry " + id)
}

// TestR14g_MovesAreJudged: a run in which a log moves is green, and each way to break what
// moves promise is red, with words that name it.
func TestR14g_MovesAreJudged(t *testing.T) {
	for name, c := range map[string]struct {
		spoil func(*movedRun)
		want  string // "": nothing
	}{
		"good":          {func(*movedRun) {}, ""},
		"nobody looked": {func(r *movedRun) { r.void = nil }, ""},
		"void and stored again": {func(r *movedRun) {
			r.void = r.void[1:]
			r.home[0].Items = append(r.home[0].Items, ledger.Item{Sequence: 13, ID: "1-7"})
		}, ""},
		"two regions, one epoch":   {func(r *movedRun) { r.entry("2-8").Region = "west" }, "too"},
		"beyond an ordinary end":   {func(r *movedRun) { r.ends[0].Forced = false }, "nobody had forced that"},
		"an overlap nobody wanted": {func(r *movedRun) { r.ends[0].Overlap = false }, "had begun"},
		"after a later one began":  {func(r *movedRun) { r.entry("2-9").Begin = time.Minute }, "had begun"},
		"not at its place":         {func(r *movedRun) { r.home[0].Items = r.home[0].Items[1:] }, "not at its place"},
		"another at its place":     {func(r *movedRun) { r.home[0].Items[2].ID = "other" }, "not at its place"},
		"void and gone":            {func(r *movedRun) { r.void = r.void[:1] }, "neither"},
	} {
		r := goodMoves()
		c.spoil(r)
		found := invariant.Moves(r.entries, r.ends, r.home, r.void)
		switch {
		case c.want == "" && len(found) > 0:
			t.Errorf("%s: %v", name, found)
		case c.want != "" && (len(found) == 0 || !strings.Contains(found[0].String(), c.want)):
			t.Errorf("%s: found %v, want %q", name, found, c.want)
		}
	}
}
