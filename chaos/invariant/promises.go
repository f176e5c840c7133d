package invariant

import "domicile/chaos/ledger"

// numberOf says which promise a fault of the ledger breaks.
func numberOf(f ledger.Fault) int {
	switch f {
	case ledger.Lost, ledger.Moved, ledger.Altered:
		return Kept
	case ledger.Ghost, ledger.Unasked, ledger.NoOutcome:
		return Once
	case ledger.Outside:
		return Resident
	case ledger.Disorder:
		return Order
	case ledger.Twice:
		return NoRepeat
	default:
		return Converged
	}
}

// promises compares answers and shelves by the ledger's own rules: 1, and the parts of
// 3, 4, 7, 8 and 30 that need no history.
func promises(e *evidence) {
	_, settled := e.reached()
	for _, b := range ledger.CheckShelves(e.entries, e.final).Broken {
		if b.Fault == ledger.Missing && !settled {
			continue
		}
		e.broken(Violation{Number: numberOf(b.Fault), Log: b.Log, Region: b.Region, Sequence: b.Sequence, Text: b.Text})
	}
	for i := range e.entries {
		if e.entries[i].Outcome == ledger.Acked {
			e.judged(Kept)
		}
	}
}
