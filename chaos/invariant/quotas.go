package invariant

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"domicile/api"
	"domicile/chaos/ledger"
	"domicile/regions"
)

// Quota is the bound that the federation of a run declares of what is published of a topic at
// the doors of each region.
type Quota struct {
	Topic string
	regions.Quota
}

// quotas judges 21: at the doors of a region no more comes past a quota, in any stretch of
// the run, than its rate and one second's worth, whatever is cut, healed or caught up
// meanwhile; and no topic is refused by one that it does not have.
func quotas(e *evidence) {
	for i := range e.limits.Quotas {
		q := &e.limits.Quotas[i]
		asked := map[string][]*ledger.Entry{}
		for n := range e.entries {
			if a := &e.entries[n]; a.Topic == q.Topic && passedQuota(a) {
				asked[a.Asked] = append(asked[a.Asked], a)
			}
		}
		for region, list := range asked {
			e.keptTo(q, region, list)
		}
	}
	for i := range e.entries {
		a := &e.entries[i]
		if a.Code != api.QuotaExceeded || len(e.limits.Quotas) == 0 {
			continue
		}
		e.judged(Quotas)
		if !slices.ContainsFunc(e.limits.Quotas, func(q Quota) bool { return q.Topic == a.Topic }) {
			e.broken(Violation{Number: Quotas, Region: a.Asked, At: a.End, Text: "refused by a quota, and its topic has none"})
		}
	}
}

// passedQuota: what was acknowledged has come past every quota, and so has what policy, the
// vocabulary or a home out of reach refused, which are asked after it. Of other refusals
// nobody can say.
func passedQuota(a *ledger.Entry) bool {
	return a.Outcome == ledger.Acked || a.Outcome == ledger.Refused && afterDoor(a.Code)
}

// keptTo judges one quota at the doors of one region.
func (e *evidence) keptTo(q *Quota, region string, list []*ledger.Entry) {
	records, size := make([]taken, len(list)), make([]taken, len(list))
	largest := 0
	for i, a := range list {
		records[i], size[i] = taken{a.Begin, a.End, 1}, taken{a.Begin, a.End, float64(a.Size)}
		largest = max(largest, a.Size)
	}
	var fresh []time.Duration // whoever counts now began with full buckets
	for _, s := range e.during(ledger.Kill, ledger.Stop, ledger.PowerCut, ledger.Pause, ledger.Isolation, ledger.NoQuorum) {
		if s.Region == region || s.Region == "" {
			fresh = append(fresh, s.From)
		}
	}
	judge := func(what string, rate float64, most float64, list []taken) {
		if rate == 0 {
			return
		}
		e.judged(Quotas)
		if over, at := beyond(list, fresh, rate); over > most {
			e.broken(Violation{Number: Quotas, Region: region, At: at, Text: fmt.Sprintf("%.0f %s more came past %s than its rate allows up to then, of which a bucket holds %.0f", over, what, "the quota of "+q.Topic, most)})
		}
	}
	judge("records", float64(q.Records), float64(q.Records), records)
	judge("bytes", float64(q.Bytes), max(float64(q.Bytes), float64(largest)), size) // a larger one passes a full bucket
}

// taken is what one record takes out of a bucket, at a time between two.
type taken struct {
	from, to time.Duration
	n        float64
}

// beyond is by how much more than the rate at most was taken in any stretch of time, and the
// end of that stretch. Only what was certainly taken within a stretch counts in it, and each
// full bucket that somebody began with in its course is taken off.
func beyond(list []taken, fresh []time.Duration, rate float64) (most float64, at time.Duration) {
	list = slices.Clone(list)
	for _, at := range fresh {
		list = append(list, taken{at, at, -rate})
	}
	// At one instant what is taken off counts in every stretch that touches it.
	slices.SortFunc(list, func(a, b taken) int { return cmp.Or(cmp.Compare(a.from, b.from), cmp.Compare(b.n, a.n)) })
	t := newStretches(len(list))
	order := make([]int, len(list))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int {
		return cmp.Or(cmp.Compare(list[a].to, list[b].to), cmp.Compare(list[a].n, list[b].n))
	})
	for _, i := range order {
		if over := t.add(i, list[i].n, rate*list[i].from.Seconds()) - rate*list[i].to.Seconds(); over > most {
			most, at = over, list[i].to
		}
	}
	return most, at
}

// stretches knows, of every begin of a stretch, what was taken since then: a tree over the
// begins, of which each node holds the sum below it and the best begin below it, with rate ×
// begin on top.
type stretches struct {
	leaves    int
	sum, best []float64
}

func newStretches(n int) *stretches {
	t := &stretches{leaves: 1}
	for t.leaves < n {
		t.leaves *= 2
	}
	t.sum, t.best = make([]float64, 2*t.leaves), make([]float64, 2*t.leaves)
	for i := range t.best {
		t.best[i] = math.Inf(-1)
	}
	return t
}

// add counts n in every stretch that begins at or before the i-th begin, where a stretch may
// begin from now on with that on top, and returns the best of all.
func (t *stretches) add(i int, n, top float64) float64 {
	i += t.leaves
	t.sum[i], t.best[i] = n, n+top
	for i /= 2; i > 0; i /= 2 {
		t.sum[i], t.best[i] = t.sum[2*i]+t.sum[2*i+1], max(t.best[2*i+1], t.best[2*i]+t.sum[2*i+1])
	}
	return t.best[1]
}
