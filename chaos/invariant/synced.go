package invariant

import (
	"fmt"

	"domicile/chaos/ledger"
)

// synced: what an ack says of other regions' disks is so: each that it names has the
// record under the ack's sequence, whether or not anything was settled afterwards.
func synced(e *evidence) {
	has := map[place]map[uint64]string{} // sequence → mark of the id
	for i := range e.entries {
		a := &e.entries[i]
		for _, region := range a.Copies {
			e.judged(Synced)
			at := place{a.Log, region}
			if has[at] == nil {
				has[at] = e.marks(at)
			}
			if has[at][a.Sequence] != ledger.Mark(a.ID) {
				e.broken(Violation{Number: Synced, Log: a.Log, Region: region, Sequence: a.Sequence, At: a.End,
					Text: fmt.Sprintf("an ack of %s names this region's disk, and the record is not on it", a.Region)})
			}
		}
	}
}

// marks lists what a region holds of a log: sequence → mark of the id.
func (e *evidence) marks(at place) map[uint64]string {
	marks := map[uint64]string{}
	for i := range e.final {
		if s := &e.final[i]; s.Log == at.log && s.Region == at.region {
			for n := range s.Items {
				marks[s.Items[n].Sequence] = ledger.Mark(s.Items[n].ID)
			}
		}
	}
	return marks
}
