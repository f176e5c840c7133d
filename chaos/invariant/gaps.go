package invariant

import (
	"fmt"
	"slices"

	"domicile/chaos/ledger"
	"domicile/regions"
)

// gaps judges 17: records and gaps of a shelf account for every sequence up to its end
// exactly once; a copy's own sum says the same; what it withheld may not rest there;
// and what it names as gone at the home is gone there.
func gaps(e *evidence) {
	for i := range e.final {
		s := &e.final[i]
		e.judged(Gaps)
		e.tiled(s)
		if s.Home {
			continue
		}
		if sum := s.Ledger.Sum(); sum != s.End {
			e.gap(s, s.End, fmt.Sprintf("the copy accounts for %d sequences of %d", sum, s.End))
		}
		if s.Ledger.Mirrored < uint64(len(s.Items)) {
			e.gap(s, s.End, fmt.Sprintf("the copy holds %d records and says that it got %d", len(s.Items), s.Ledger.Mirrored))
		}
		if home := e.homes[s.Log]; home != nil {
			e.rightly(s, home)
		}
	}
}

func (e *evidence) gap(s *ledger.Shelf, sequence uint64, text string) {
	e.broken(Violation{Number: Gaps, Log: s.Log, Region: s.Region, Sequence: sequence, Text: text})
}

// tiled walks items and gaps side by side.
func (e *evidence) tiled(s *ledger.Shelf) {
	next := uint64(1)
	i, g := 0, 0
	for next <= s.End {
		switch {
		case i < len(s.Items) && s.Items[i].Sequence == next:
			i, next = i+1, next+1
		case g < len(s.Gaps) && s.Gaps[g].From == next && s.Gaps[g].To >= next:
			next, g = s.Gaps[g].To+1, g+1
		default:
			e.gap(s, next, "neither a record nor a named gap")
			return
		}
	}
	if i < len(s.Items) || g < len(s.Gaps) || next != s.End+1 {
		e.gap(s, s.End, "records or gaps beyond the end, or on top of each other")
	}
}

// rightly compares a copy's gaps with what its home has at the same sequences. What has
// expired before the first record of a copy its own retention may have taken.
func (e *evidence) rightly(s, home *ledger.Shelf) {
	first := s.End + 1
	if len(s.Items) > 0 {
		first = s.Items[0].Sequence
	}
	for i := range home.Items {
		item := &home.Items[i]
		g, ok := s.GapAt(item.Sequence)
		tries := e.records[ledger.Mark(item.ID)]
		switch {
		case !ok || len(tries) == 0:
		case g.Kind == regions.Withheld && slices.Contains(tries[0].Rests, s.Region):
			e.gap(s, item.Sequence, "withheld, and it may rest here")
		case g.Kind == regions.Expired && item.Sequence < first:
		case g.Kind != regions.Withheld:
			e.gap(s, item.Sequence, fmt.Sprintf("named as %s, and its home still has it", g.Kind))
		}
	}
}
