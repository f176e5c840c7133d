package invariant

import (
	"fmt"

	"domicile/chaos/ledger"
)

// once: what nobody could answer for is stored once or not at all, in one log; and a
// record that was refused by every answer is stored nowhere (the ledger sees that).
func once(e *evidence) {
	logs := map[string]map[string]int{} // mark of the id → log → times at its home
	for i := range e.final {
		if s := &e.final[i]; s.Home {
			for n := range s.Items {
				id := ledger.Mark(s.Items[n].ID)
				if logs[id] == nil {
					logs[id] = map[string]int{}
				}
				logs[id][s.Log]++
			}
		}
	}
	for id, tries := range e.records {
		unknown := false
		for _, t := range tries {
			unknown = unknown || t.Outcome == ledger.Unknown
		}
		if !unknown {
			continue
		}
		e.judged(Once)
		times := 0
		for _, n := range logs[id] {
			times += n
		}
		if times > 1 {
			e.broken(Violation{Number: Once, Log: tries[0].Topic, Text: fmt.Sprintf("record %s had an unknown outcome and is stored %d times at home", id, times)})
		}
	}
}
