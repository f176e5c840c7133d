package ledger

import (
	"cmp"
	"fmt"
	"slices"
)

// order: when a producer had the ack of one record before it published another with
// the same key, the log holds them in that order. Records in flight at the same time
// have no order to keep. A repeated record keeps the place of its first time, so
// only first acks count.
func (c *checker) order(entries []Entry) {
	type group struct{ log, key string }
	groups := map[group][]*Entry{}
	for i := range entries {
		e := &entries[i]
		if e.Outcome == Acked && !e.Duplicate && e.Key != "" {
			g := group{e.Log, e.Key}
			groups[g] = append(groups[g], e)
		}
	}
	for _, list := range groups {
		c.orderOf(list)
	}
}

// orderOf walks the starts and the ends of one key in time order and keeps the
// highest sequence that had been acknowledged when each record was published.
func (c *checker) orderOf(list []*Entry) {
	byEnd := slices.Clone(list)
	slices.SortFunc(byEnd, func(a, b *Entry) int { return a.Ended.Compare(b.Ended) })
	slices.SortFunc(list, func(a, b *Entry) int {
		return cmp.Or(a.Started.Compare(b.Started), cmp.Compare(a.Sequence, b.Sequence))
	})
	var highest uint64
	done := 0
	for _, e := range list {
		for ; done < len(byEnd) && byEnd[done].Ended.Before(e.Started); done++ {
			highest = max(highest, byEnd[done].Sequence)
		}
		if e.Sequence < highest {
			c.broken(Disorder, e.Log, e.Region, e.Sequence, fmt.Sprintf("sequence %d with the same key was acknowledged before this was published", highest))
		}
	}
}
