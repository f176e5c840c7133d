package ledger

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"domicile/api"
	"domicile/regions"
)

// Fault is the kind of a broken promise.
type Fault string

// The faults that Check can name.
const (
	Lost      Fault = "lost"       // acked, and not in its log at home
	Missing   Fault = "missing"    // at home, and not in a region where it must rest
	Outside   Fault = "outside"    // in a region where it may not rest
	Twice     Fault = "duplicate"  // more than once in one log of one region
	Ghost     Fault = "ghost"      // refused as not stored, and stored
	Altered   Fault = "altered"    // stored with another body or key
	Moved     Fault = "moved"      // not in the log or at the sequence that the ack named
	Disorder  Fault = "order"      // accepted later under the same key, and stored earlier
	Unasked   Fault = "unasked"    // stored, and nobody published it
	NoOutcome Fault = "no outcome" // published, and no producer was told anything
)

// Broken is one broken promise. It names logs, regions and sequences, no content.
type Broken struct {
	Fault    Fault
	Log      string
	Region   string
	Sequence uint64
	Text     string
}

// String is one line for people.
func (b Broken) String() string {
	return fmt.Sprintf("%s: %s in %s, sequence %d: %s", b.Fault, cmp.Or(b.Log, "no log"), cmp.Or(b.Region, "no region"), b.Sequence, b.Text)
}

// Sum is what a drill reports of its records.
type Sum struct {
	Records   int              // different ids
	Acked     int              // of them, acknowledged at least once
	Forwarded int              // of them, stored by another region than the one asked
	Refused   int              // never acknowledged, nothing stored
	Unknown   int              // never acknowledged, and nobody knew
	UnknownIn int              // of these, found stored
	Repeats   int              // acks that said duplicate
	ByCode    map[api.Code]int // answers, by code
	Mirrored  int              // record × region, home not counted
	Lost      int
	Twice     int
	Outside   int            // bytes of records stored where they may not rest
	Rest      map[string]int // records stored, per region
	Broken    []Broken       // everything, in order of fault, log and sequence
}

// Holds reports whether no promise was broken.
func (s *Sum) Holds() bool { return len(s.Broken) == 0 }

// Count is the number of broken promises of one kind.
func (s *Sum) Count(f Fault) int {
	n := 0
	for _, b := range s.Broken {
		if b.Fault == f {
			n++
		}
	}
	return n
}

// Check compares what producers were told with everything that is stored in every
// region, after the mirrors have caught up. It does not change its arguments.
func Check(entries []Entry, stored []Item) *Sum { return check(entries, stored, nil) }

// CheckShelves is Check over whole logs. It knows what stands in place of a record: one
// that the log says it gave up to retention, purge or erasure is not a broken promise.
func CheckShelves(entries []Entry, shelves []Shelf) *Sum {
	return check(entries, Items(shelves), shelves)
}

func check(entries []Entry, stored []Item, shelves []Shelf) *Sum {
	c := &checker{sum: &Sum{ByCode: map[api.Code]int{}, Rest: map[string]int{}}, records: map[string]*record{}, shelves: map[shelfName]*Shelf{}}
	for i := range shelves {
		c.shelves[shelfName{shelves[i].Region, shelves[i].Log}] = &shelves[i]
	}
	c.take(entries)
	c.place(stored)
	for _, id := range slices.Sorted(maps.Keys(c.records)) {
		c.judge(c.records[id])
	}
	c.order(entries)
	slices.SortFunc(c.sum.Broken, func(a, b Broken) int {
		return cmp.Or(cmp.Compare(a.Fault, b.Fault), cmp.Compare(a.Log, b.Log), cmp.Compare(a.Region, b.Region), cmp.Compare(a.Sequence, b.Sequence))
	})
	return c.sum
}

// record is everything that was said and found under one id.
type record struct {
	entries []*Entry
	acks    []*Entry
	outcome Outcome
	items   []*Item
}

type shelfName struct{ region, log string }

type checker struct {
	sum     *Sum
	records map[string]*record
	shelves map[shelfName]*Shelf
}

// taken: the log itself says that the record was there, and that somebody wanted it
// gone. What policy withheld was never there; what a disk lost, or what lies beyond the
// cut of an epoch, was acknowledged and is gone, whatever the log calls it.
func (c *checker) taken(region, log string, sequence uint64) bool {
	s := c.shelves[shelfName{region, log}]
	if s == nil {
		return false
	}
	g, ok := s.GapAt(sequence)
	return ok && (g.Kind == regions.Expired || g.Kind == regions.Purged || g.Kind == regions.Erased)
}

func (c *checker) broken(f Fault, log, region string, sequence uint64, text string) {
	c.sum.Broken = append(c.sum.Broken, Broken{f, log, region, sequence, text})
}

func (c *checker) take(entries []Entry) {
	for i := range entries {
		e := &entries[i]
		id := Mark(e.ID)
		r := c.records[id]
		if r == nil {
			r = &record{outcome: Refused}
			c.records[id] = r
		}
		r.entries = append(r.entries, e)
		switch e.Outcome {
		case Acked:
			r.acks, r.outcome = append(r.acks, e), Acked
			if e.Duplicate {
				c.sum.Repeats++
			}
		case Refused:
			c.sum.ByCode[e.Code]++
		case Unknown:
			c.sum.ByCode[e.Code]++
			if r.outcome == Refused {
				r.outcome = Unknown
			}
		default:
			c.broken(NoOutcome, e.Topic, e.Asked, 0, "the producer was told nothing")
		}
	}
	c.sum.Records = len(c.records)
}

func (c *checker) place(stored []Item) {
	for i := range stored {
		item := &stored[i]
		c.sum.Rest[item.Region]++
		r := c.records[Mark(item.ID)]
		if r == nil {
			c.broken(Unasked, item.Log, item.Region, item.Sequence, "no producer published it")
			continue
		}
		r.items = append(r.items, item)
	}
}

func (c *checker) judge(r *record) {
	switch r.outcome {
	case Acked:
		c.sum.Acked++
		if slices.ContainsFunc(r.acks, func(e *Entry) bool { return e.Forwarded }) {
			c.sum.Forwarded++
		}
		c.acked(r)
	case Unknown:
		c.sum.Unknown++
		if len(r.items) > 0 {
			c.sum.UnknownIn++
		}
	default:
		c.sum.Refused++
		for _, i := range r.items {
			c.broken(Ghost, i.Log, i.Region, i.Sequence, "every answer said that nothing was stored")
		}
	}
	c.where(r)
	c.content(r)
}

// acked: each ack names a log, a region and a sequence; exactly there it must be.
func (c *checker) acked(r *record) {
	for _, e := range r.acks {
		if c.taken(e.Region, e.Log, e.Sequence) {
			continue
		}
		home := slices.IndexFunc(r.items, func(i *Item) bool { return i.Region == e.Region && i.Log == e.Log })
		switch {
		case home < 0:
			c.sum.Lost++
			c.broken(Lost, e.Log, e.Region, e.Sequence, "acknowledged, and not readable at home")
			return
		case !slices.ContainsFunc(r.items, func(i *Item) bool {
			return i.Region == e.Region && i.Log == e.Log && i.Sequence == e.Sequence
		}):
			c.broken(Moved, e.Log, e.Region, e.Sequence, fmt.Sprintf("it is at sequence %d", r.items[home].Sequence))
		}
	}
}

// where: in each region of the rule exactly once if it is anywhere, and in no other.
func (c *checker) where(r *record) {
	rests := r.entries[0].Rests
	times := map[string]int{}
	for _, i := range r.items {
		times[i.Region]++
		if !slices.Contains(rests, i.Region) {
			c.sum.Outside += i.Size
			c.broken(Outside, i.Log, i.Region, i.Sequence, "its rule does not let it rest here")
		}
		if times[i.Region] > 1 {
			c.sum.Twice++
			c.broken(Twice, i.Log, i.Region, i.Sequence, "stored before under the same id")
		}
	}
	if len(r.items) == 0 {
		return
	}
	c.sum.Mirrored += max(0, len(times)-1)
	for _, region := range rests {
		first := r.items[0]
		if times[region] == 0 && !c.lostAt(r, region) && !c.taken(region, first.Log, first.Sequence) {
			c.broken(Missing, first.Log, region, first.Sequence, "its rule wants it here")
		}
	}
}

// lostAt: a loss at home is reported once, as lost.
func (c *checker) lostAt(r *record, region string) bool {
	return slices.ContainsFunc(r.acks, func(e *Entry) bool { return e.Region == region })
}

func (c *checker) content(r *record) {
	first := r.entries[0]
	for _, i := range r.items {
		if i.Hash != first.Hash || Mark(i.Key) != Mark(first.Key) {
			c.broken(Altered, i.Log, i.Region, i.Sequence, "body or key differ from what was published")
		}
		if i.Log != r.items[0].Log || i.Sequence != r.items[0].Sequence {
			c.broken(Moved, i.Log, i.Region, i.Sequence, fmt.Sprintf("elsewhere it is %s, sequence %d", r.items[0].Log, r.items[0].Sequence))
		}
	}
}
