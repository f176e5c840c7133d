package tail

import (
	"slices"
	"time"

	"domicile/api"
	"domicile/regions"
)

// What is kept: of one log, and of all logs of a region. What comes beyond it is not kept:
// unknown.
const (
	MaxEntries    = 16_384
	MaxAllEntries = 262_144
)

// Known is what is known of the tail of one log: what its home has beyond the copy here.
// It is a value with rules, no locks.
type Known struct {
	Log         api.LogID
	Incarnation string // "": nothing is known
	Epoch       api.Epoch
	Key         regions.TailKey
	Head        uint64    // the home's durable end when it was last heard
	HeadTime    time.Time // ingest time of the head
	Closed      time.Time // the log was complete up to here then; zero: not told
	Heard       time.Time // when that was, on this region's clock
	// Entries are in order and do not overlap. Sequences between the copy's end and Head
	// that none of them covers are unknown.
	Entries []regions.TailEntry
}

// hear takes in a list, and of its entries as many as there is room for in all. Of another
// epoch or incarnation it replaces what was known.
func (k *Known) hear(l *regions.TailList, cursor uint64, now time.Time, room int) {
	if k.Incarnation != l.Incarnation || k.Epoch != l.Epoch {
		*k = Known{Log: l.Log, Incarnation: l.Incarnation, Epoch: l.Epoch}
	}
	if k.Heard = now; l.Key != (regions.TailKey{}) {
		k.Key = l.Key
	}
	if l.Head >= k.Head {
		k.Head, k.HeadTime = l.Head, l.HeadTime
	}
	if l.Closed.After(k.Closed) {
		k.Closed = l.Closed
	}
	before := len(k.Entries)
	k.trim(cursor)
	room = min(room+before, MaxEntries)
	for _, e := range l.Entries {
		if len(k.Entries) < room && e.Sequence > cursor && e.Sequence >= e.From && e.Sequence <= k.Head {
			k.insert(e)
		}
	}
}

// insert puts an entry in its place unless something is there already.
func (k *Known) insert(e regions.TailEntry) {
	i, _ := slices.BinarySearchFunc(k.Entries, e.From, func(have regions.TailEntry, from uint64) int {
		if have.Sequence < from {
			return -1
		}
		return 1
	})
	if i < len(k.Entries) && k.Entries[i].From <= e.Sequence {
		return
	}
	k.Entries = slices.Insert(k.Entries, i, e)
}

// trim forgets what the copy has.
func (k *Known) trim(cursor uint64) {
	n := 0
	for n < len(k.Entries) && k.Entries[n].Sequence <= cursor {
		n++
	}
	k.Entries = slices.Delete(k.Entries, 0, n)
}

// Beyond is what is known of the sequences after cut.
func (k *Known) Beyond(cut uint64) Known {
	out := *k
	out.Entries = slices.Clone(k.Entries)
	out.trim(cut)
	if len(out.Entries) > 0 && out.Entries[0].From <= cut {
		out.Entries[0].From = cut + 1
	}
	return out
}
