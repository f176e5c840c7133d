package invariant

import (
	"slices"

	"domicile/chaos/ledger"
)

// resident: no record is handed to a reader in a region where it may not rest, and none
// is stored there (the ledger sees that, the canary scan sees the bytes). A record that
// nobody asked for has no rule and is refused by the ledger.
func resident(e *evidence) {
	for i := range e.history.Events {
		b := e.history.Events[i].Batch
		if b == nil {
			continue
		}
		for _, got := range b.Items {
			tries := e.records[got.ID]
			if len(tries) == 0 {
				continue
			}
			e.judged(Resident)
			if !slices.Contains(tries[0].Rests, b.Region) {
				e.broken(Violation{Number: Resident, Log: got.Log, Region: b.Region, Sequence: got.Sequence, At: e.history.Events[i].At,
					Text: "a reader got it where it may not rest"})
			}
		}
	}
	for i := range e.final {
		for n := range e.final[i].Items {
			item := &e.final[i].Items[n]
			if tries := e.records[ledger.Mark(item.ID)]; len(tries) > 0 && item.Residency != "" && tries[0].Residency != "" && item.Residency != tries[0].Residency {
				e.broken(Violation{Number: Resident, Log: item.Log, Region: item.Region, Sequence: item.Sequence, Text: "stored with another residency than it was published with"})
			}
		}
	}
}
