package invariant

import (
	"cmp"
	"fmt"
	"slices"

	"domicile/chaos/ledger"
)

// fenced judges 9 and 10: for one log the acks of a writer's term lie before those of
// the next, in time and in sequence, all acks of one epoch come from one region, and
// no two records were acknowledged at one sequence.
func fenced(e *evidence) {
	logs := map[string][]*ledger.Entry{}
	for i := range e.entries {
		if a := &e.entries[i]; a.Outcome == ledger.Acked && !a.Duplicate {
			logs[a.Log] = append(logs[a.Log], a)
			e.judged(Fenced)
		}
	}
	for _, acks := range logs {
		e.oneWriter(acks)
	}
}

func (e *evidence) oneWriter(acks []*ledger.Entry) {
	slices.SortFunc(acks, func(a, b *ledger.Entry) int {
		return cmp.Or(cmp.Compare(a.Sequence, b.Sequence), cmp.Compare(a.Term, b.Term))
	})
	region := map[string]string{}       // by epoch
	newest := acks[0]                   // of the highest term so far, in the order of sequences
	first := map[uint64]*ledger.Entry{} // by term: the one that ended first
	for i, a := range acks {
		v := Violation{Number: Fenced, Log: a.Log, Region: a.Region, Sequence: a.Sequence, At: a.End}
		if i > 0 && acks[i-1].Sequence == a.Sequence && ledger.Mark(acks[i-1].ID) != ledger.Mark(a.ID) {
			v.Text = "two records were acknowledged at this sequence"
			e.broken(v)
		}
		if a.Term < newest.Term {
			v.Text = fmt.Sprintf("term %d, but sequence %d before it is of term %d", a.Term, newest.Sequence, newest.Term)
			e.broken(v)
		}
		if r, ok := region[a.Epoch]; ok && r != a.Region && a.Epoch != "" {
			v.Text = "acknowledged in one epoch by " + r + " too"
			e.broken(v)
		}
		region[a.Epoch] = a.Region
		if a.Term > newest.Term {
			newest = a
		}
		if f := first[a.Term]; f == nil || a.End < f.End {
			first[a.Term] = a
		}
	}
	e.neverWakes(acks, first)
}

// neverWakes: nothing that was asked for after the first ack of a term is acknowledged
// under an older one.
func (e *evidence) neverWakes(acks []*ledger.Entry, first map[uint64]*ledger.Entry) {
	for _, a := range acks {
		for term, f := range first {
			if term > a.Term && a.Begin > f.End {
				e.broken(Violation{Number: Fenced, Log: a.Log, Region: a.Region, Sequence: a.Sequence, At: a.End,
					Text: fmt.Sprintf("acknowledged under term %d after term %d had acknowledged sequence %d", a.Term, term, f.Sequence)})
			}
		}
	}
}
