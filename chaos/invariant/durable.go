package invariant

import (
	"fmt"

	"domicile/chaos/ledger"
)

// durable: a quorum region below its majority acknowledges nothing that it was asked
// for after that was so. A repeated id that was durable before may be confirmed.
func durable(e *evidence) {
	for _, s := range e.during(ledger.NoQuorum) {
		for i := range e.entries {
			a := &e.entries[i]
			if a.Begin < s.From || a.End > s.To || a.Asked != s.Region && a.Region != s.Region {
				continue
			}
			e.judged(Durable)
			if a.Outcome == ledger.Acked && a.Region == s.Region && !a.Duplicate {
				e.broken(Violation{Number: Durable, Log: a.Log, Region: a.Region, Sequence: a.Sequence, At: a.End,
					Text: fmt.Sprintf("acknowledged %.3f s after the region had lost its majority", (a.Begin - s.From).Seconds())})
			}
		}
	}
}
