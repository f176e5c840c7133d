package invariant

import (
	"fmt"
	"slices"

	"domicile/chaos/ledger"
	"domicile/regions"
)

// crossed judges 5, of a run whose links were listened to: what a record is made of is on a
// link only towards a region where the record may rest. Each resident record that rests
// where nobody handed it in has to have been seen on its way there: else whoever listened
// did not hear everything, and vouches for nothing. Nor does one who could not search a part.
func crossed(e *evidence) {
	listened := false
	arrived := map[[2]string]bool{} // mark of an id, region
	for i := range e.history.Events {
		ev := &e.history.Events[i]
		if l := ev.Line; l != nil {
			listened = true
			if l.Opaque > 0 {
				e.broken(Violation{Number: Crossed, Region: l.From, Text: fmt.Sprintf("%d parts of what it sent to %s could not be searched (lane %s)", l.Opaque, l.To, l.Lane)})
			}
		}
		if c := ev.Crossing; c != nil {
			e.judgeCrossing(c)
			for _, id := range c.IDs {
				arrived[[2]string{id, c.To}] = true
			}
		}
	}
	if listened {
		e.judgeArrivals(arrived)
	}
}

// judgeCrossing: a token that several records share may go where any of them may rest.
func (e *evidence) judgeCrossing(c *ledger.Crossing) {
	e.judged(Crossed)
	known := false
	for _, id := range c.IDs {
		for _, try := range e.records[id] {
			if known = true; slices.Contains(try.Rests, c.To) {
				return
			}
		}
	}
	what := "of a record that may not rest there"
	if !known {
		what = "of no record that anybody published"
	}
	e.broken(Violation{Number: Crossed, Region: c.From, At: c.First.Sub(e.history.Origin),
		Text: fmt.Sprintf("sent token %d to %s, %s (lane %s %s, as %s)", c.Number, c.To, what, c.Lane, c.Call, c.Form)})
}

func (e *evidence) judgeArrivals(arrived map[[2]string]bool) {
	for i := range e.final {
		for n := range e.final[i].Items {
			item := &e.final[i].Items[n]
			tries := e.records[ledger.Mark(item.ID)]
			if len(tries) == 0 || tries[0].Residency == regions.GlobalResidency || slices.ContainsFunc(tries, func(t *ledger.Entry) bool { return t.Asked == item.Region }) {
				continue
			}
			e.judged(Crossed)
			if !arrived[[2]string{ledger.Mark(item.ID), item.Region}] {
				e.broken(Violation{Number: Crossed, Log: item.Log, Region: item.Region, Sequence: item.Sequence,
					Text: "a resident record came here from elsewhere and was not seen on any link"})
			}
		}
	}
}
