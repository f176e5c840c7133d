package demo

import (
	"context"

	"domicile/chaos/lab"
	"domicile/chaos/ledger"
	"domicile/regions"
)

// store is what one region has on disk, read without any node, policy or door in
// between: what must not be there shows as well.
type store struct {
	shelves []ledger.Shelf
	tags    map[place]string // residency of each data record
	gaps    map[string][]regions.Gap
	cursor  map[string]uint64 // per log, its last sequence
}

// place is one sequence of one log.
type place struct {
	log      string
	sequence uint64
}

// readStore reads the data directory of a region that is stopped.
func readStore(ctx context.Context, f *regions.Federation, region, dir string) (*store, error) {
	shelves, err := lab.Shelves(ctx, f, region, dir)
	if err != nil {
		return nil, err
	}
	s := &store{shelves: shelves, tags: map[place]string{}, gaps: map[string][]regions.Gap{}, cursor: map[string]uint64{}}
	for _, shelf := range shelves {
		s.cursor[shelf.Log], s.gaps[shelf.Log] = shelf.End, shelf.Gaps
		for i := range shelf.Items {
			item := &shelf.Items[i]
			s.tags[place{item.Log, item.Sequence}] = item.Residency
		}
	}
	return s, nil
}

// gapAt is the gap that stands in place of a record; false: the record is here, or
// the log does not reach so far.
func (s *store) gapAt(p place) (regions.Gap, bool) {
	for _, g := range s.gaps[p.log] {
		if g.From <= p.sequence && p.sequence <= g.To {
			return g, true
		}
	}
	return regions.Gap{}, false
}

// withheld is how many sequences of a log policy left out on one side.
func (s *store) withheld(log, side string) int {
	n := 0
	for _, g := range s.gaps[log] {
		if g.Kind == regions.Withheld && g.Side == side {
			n += int(g.Count())
		}
	}
	return n
}
