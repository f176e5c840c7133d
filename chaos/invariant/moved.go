package invariant

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"domicile/chaos/ledger"
)

// Moved is the number of the promise that Moves judges.
const Moved = 34

// Ended is where an epoch of a log ended, as the placement authority says it.
type Ended struct {
	Log, Epoch string
	End        uint64 // the last sequence that stands
	// Forced: the log was taken from its home, which had no say in where the epoch ended. What
	// it had acknowledged beyond is void.
	Forced bool
	// Overlap: and it was allowed to go on meanwhile, as a home is that does not fence itself.
	Overlap bool
}

// Moves judges a run in which logs changed their homes. ends lists the epochs that ended, of
// each log in their order; homes is each log at its last home; void is what the other
// regions hold beyond the end of an epoch, nil if nobody looked.
//
// An epoch was acknowledged in by one region. Nothing was acknowledged beyond the end of an
// epoch that was not forced to end, and nothing in an epoch that was asked for after a later
// one had begun, unless that overlap was accepted. Each acknowledged record is where its ack
// says or, beyond a forced end, is among what is void, or was stored again.
func Moves(entries []ledger.Entry, ends []Ended, homes []ledger.Shelf, void []ledger.Item) []Violation {
	m := &moves{ends: map[epochOf]Ended{}, order: map[epochOf]int{}, region: map[epochOf]string{}, first: map[epochOf]time.Duration{},
		at: map[place]map[uint64]string{}, again: map[string]bool{}, void: map[string]bool{}, looked: void != nil}
	for i, e := range ends {
		m.ends[epochOf{e.Log, e.Epoch}], m.order[epochOf{e.Log, e.Epoch}] = e, i
	}
	for i := range homes {
		marks := map[uint64]string{}
		for n := range homes[i].Items {
			it := &homes[i].Items[n]
			marks[it.Sequence], m.again[ledger.Mark(it.ID)] = ledger.Mark(it.ID), true
		}
		m.at[place{log: homes[i].Log}] = marks
	}
	for i := range void {
		m.void[ledger.Mark(void[i].ID)] = true
	}
	m.judge(entries)
	slices.SortStableFunc(m.found, func(a, b Violation) int {
		return cmp.Or(cmp.Compare(a.Log, b.Log), cmp.Compare(a.Sequence, b.Sequence), cmp.Compare(a.At, b.At))
	})
	return m.found
}

type epochOf struct{ log, epoch string }

type moves struct {
	ends   map[epochOf]Ended
	order  map[epochOf]int
	region map[epochOf]string        // that acknowledged in it
	first  map[epochOf]time.Duration // when its first ack came
	at     map[place]map[uint64]string
	again  map[string]bool // by mark of the id: it is at a home
	void   map[string]bool
	looked bool
	found  []Violation
}

func (m *moves) broken(a *ledger.Entry, format string, args ...any) {
	m.found = append(m.found, Violation{Number: Moved, Log: a.Log, Region: a.Region, Sequence: a.Sequence, At: a.End, Text: fmt.Sprintf(format, args...)})
}

func (m *moves) judge(entries []ledger.Entry) {
	for i := range entries {
		if a := &entries[i]; a.Outcome == ledger.Acked && !a.Duplicate {
			e := epochOf{a.Log, a.Epoch}
			if at, ok := m.first[e]; !ok || a.End < at {
				m.first[e] = a.End
			}
		}
	}
	for i := range entries {
		if a := &entries[i]; a.Outcome == ledger.Acked && !a.Duplicate {
			m.one(a)
		}
	}
}

func (m *moves) one(a *ledger.Entry) {
	e := epochOf{a.Log, a.Epoch}
	if was, ok := m.region[e]; ok && was != a.Region {
		m.broken(a, "epoch %s was acknowledged in by %s too", a.Epoch, was)
	}
	m.region[e] = a.Region
	end, ended := m.ends[e]
	beyond := ended && a.Sequence > end.End
	switch {
	case beyond && !end.Forced:
		m.broken(a, "acknowledged beyond %d, where epoch %s ended, and nobody had forced that", end.End, a.Epoch)
	case ended && !end.Overlap:
		m.late(a, e)
	}
	mark := ledger.Mark(a.ID)
	switch {
	case !beyond && m.at[place{log: a.Log}][a.Sequence] != mark:
		m.broken(a, "an acknowledged record is not at its place")
	case beyond && m.looked && !m.void[mark] && !m.again[mark]:
		m.broken(a, "an acknowledged record is neither stored again nor among what is void")
	}
}

// late: nothing is acknowledged that was asked for after a later epoch had begun.
func (m *moves) late(a *ledger.Entry, e epochOf) {
	for other, at := range m.first {
		n, ended := m.order[other]
		if other.log == e.log && other != e && (!ended || n > m.order[e]) && a.Begin > at {
			m.broken(a, "acknowledged in epoch %s after epoch %s had begun", e.epoch, other.epoch)
		}
	}
}
