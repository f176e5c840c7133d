package invariant

import (
	"crypto/sha256"
	"fmt"
	"strings"

	"domicile/chaos/ledger"
)

// segment is how many sequences are compared by one digest.
const segment = 1024

// converged judges 30: when all is healed and copied, each copy reaches its home's end,
// and what both have is the same, by digest per segment.
func converged(e *evidence) {
	if _, ok := e.reached(); !ok {
		return
	}
	for i := range e.final {
		s := &e.final[i]
		home := e.homes[s.Log]
		if s.Home || home == nil {
			continue
		}
		e.judged(Converged)
		if s.End != home.End {
			e.broken(Violation{Number: Converged, Log: s.Log, Region: s.Region, Sequence: s.End, Text: fmt.Sprintf("the copy ends here, its home at %d", home.End)})
		}
		here, there := digests(s, home), digests(home, s)
		for n := range int(home.End/segment) + 1 {
			if here[n] != there[n] {
				e.broken(Violation{Number: Converged, Log: s.Log, Region: s.Region, Sequence: uint64(n)*segment + 1,
					Text: fmt.Sprintf("the %d sequences from here differ from the home's", segment)})
			}
		}
	}
}

// digests gives one digest per segment over what a shelf has, leaving out what the
// other says is not there.
func digests(s, other *ledger.Shelf) map[int][sha256.Size]byte {
	text := map[int]*strings.Builder{}
	for i := range s.Items {
		item := &s.Items[i]
		if _, gap := other.GapAt(item.Sequence); gap {
			continue
		}
		n := int((item.Sequence - 1) / segment)
		if text[n] == nil {
			text[n] = &strings.Builder{}
		}
		fmt.Fprintf(text[n], "%d %s %s %s\n", item.Sequence, ledger.Mark(item.ID), ledger.Mark(item.Key), item.Hash)
	}
	sums := map[int][sha256.Size]byte{}
	for n, t := range text {
		sums[n] = sha256.Sum256([]byte(t.String()))
	}
	return sums
}
