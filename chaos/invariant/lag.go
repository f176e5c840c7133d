package invariant

import (
	"fmt"
	"sort"
	"time"

	"domicile/chaos/ledger"
	"domicile/regions"
)

// lagTruth judges 12 with the history as its oracle. What the home counts as pending is
// at least what it acknowledged for the target since the link was cut. Once a reader at
// the target has a record, the staleness said there is at most that record's age, as
// long as nothing disturbs the link; and when all is copied nothing is pending.
func lagTruth(e *evidence) {
	owed := e.owed()
	for p, samples := range e.lags(false) {
		for _, m := range samples {
			e.judgePending(p, m, owed[p])
		}
	}
	arrivals := e.arrivals()
	for p, samples := range e.lags(true) {
		for _, m := range samples {
			e.judgeAge(p, m, arrivals[p])
		}
	}
}

func (e *evidence) judgePending(p place, m sample, owed []*ledger.Entry) {
	if !m.RecordsKnown {
		return
	}
	if e.settled(p, m) {
		e.judged(LagTruth)
		if m.Records > 0 {
			e.broken(Violation{Number: LagTruth, Log: p.log, Region: m.Region, At: m.at, Text: fmt.Sprintf("%d records pending for %s although all is copied", m.Records, p.region)})
		}
	}
	for _, s := range e.severed(m.Home, p.region) {
		if !e.held(s, m.at) {
			continue
		}
		least := uint64(0)
		for _, a := range owed {
			if a.Begin > s.From && a.End < m.at-e.limits.Slack {
				least++
			}
		}
		e.judged(LagTruth)
		if m.Records < least {
			e.broken(Violation{Number: LagTruth, Log: p.log, Region: m.Region, At: m.at, Text: fmt.Sprintf("%d records pending for %s, at least %d were acknowledged since the cut", m.Records, p.region, least)})
		}
	}
}

// settled: all was healed and copied, and nothing was published or broken since.
func (e *evidence) settled(p place, m sample) bool {
	at, ok := e.reached()
	return ok && m.at > at+e.limits.Settle && e.calm(at, m.at, nil, m.Home, p.region) && !e.published(p.log, at, m.at)
}

// owed lists, per log and target, the first acks of records that the target must get.
func (e *evidence) owed() map[place][]*ledger.Entry {
	owed := map[place][]*ledger.Entry{}
	for i := range e.entries {
		a := &e.entries[i]
		if a.Outcome != ledger.Acked || a.Duplicate {
			continue
		}
		for _, target := range a.Rests {
			owed[place{a.Log, target}] = append(owed[place{a.Log, target}], a)
		}
	}
	return owed
}

// arrival says that readers of a region had a record of a log at a time, and when the
// newest they had by then was published.
type arrival struct{ at, began time.Duration }

func (e *evidence) arrivals() map[place][]arrival {
	began := map[string]time.Duration{}
	for id, tries := range e.records {
		began[id] = tries[0].Begin
		for _, t := range tries {
			began[id] = min(began[id], t.Begin)
		}
	}
	list := map[place][]arrival{}
	for i := range e.history.Events {
		ev := &e.history.Events[i]
		if ev.Batch == nil {
			continue
		}
		for _, got := range ev.Batch.Items {
			b, ok := began[got.ID]
			if !ok {
				continue
			}
			p := place{got.Log, ev.Batch.Region}
			if n := len(list[p]); n > 0 {
				b = max(b, list[p][n-1].began)
			}
			list[p] = append(list[p], arrival{ev.At, b})
		}
	}
	return list
}

// judgeAge: a copy that holds a record is complete up to it, so its staleness is at
// most the record's age. It is said within the slack.
func (e *evidence) judgeAge(p place, m sample, list []arrival) {
	if !m.StalenessKnown || m.State == regions.LagHome || e.upset(p.region, 0, m.at) || e.upset(m.Home, 0, m.at) {
		return
	}
	n := sort.Search(len(list), func(i int) bool { return list[i].at+e.limits.Slack >= m.at })
	if n == 0 {
		return
	}
	newest := list[n-1].began
	e.judged(LagTruth)
	if most := m.at - newest + m.StalenessError + e.limits.Slack; m.Staleness > most {
		e.broken(Violation{Number: LagTruth, Log: p.log, Region: p.region, At: m.at, Text: fmt.Sprintf("staleness is said to be %s, but a record published %s ago is readable here", m.Staleness, m.at-newest)})
	}
}

// published reports whether anybody may have stored a record in a log in a time.
func (e *evidence) published(log string, from, to time.Duration) bool {
	for i := range e.entries {
		a := &e.entries[i]
		if a.Outcome != ledger.Refused && a.End >= from && a.Begin <= to && (a.Log == log || a.Log == "") {
			return true
		}
	}
	return false
}
