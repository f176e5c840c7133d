package invariant

import (
	"fmt"
	"slices"
	"time"

	"domicile/api"
	"domicile/chaos/ledger"
	"domicile/regions"
)

// gossipAlone judges 27: while nothing but gossip is cut, and for a settling time after,
// links stay up, no lag grows, no log changes its home or its epoch, and records are taken
// and read as before. A cut that no member's gossip noticed shows nothing and is not judged.
func gossipAlone(e *evidence) {
	for _, s := range e.during(ledger.GossipCut) {
		if !e.noticed(s) {
			continue
		}
		g := &gossipless{evidence: e, from: s.From, before: e.placesBefore(s), down: map[link]time.Duration{}, took: map[string]time.Duration{}}
		for i := range e.history.Events {
			ev := &e.history.Events[i]
			if ev.At < s.From || ev.At > s.To+e.limits.Settle {
				continue
			}
			switch {
			case ev.Link != nil && between(&s, ev.Link.Region, ev.Link.Peer):
				g.link(ev)
			case ev.Lag != nil && between(&s, ev.Lag.Home, ev.Lag.Target):
				g.lag(ev)
			case ev.Placed != nil:
				g.place(ev)
			case ev.Entry != nil && ev.Entry.Begin >= s.From && ev.Entry.Begin <= s.To:
				g.entry(ev)
			}
		}
		e.readOn(s)
	}
}

// gossipless is one time without gossip.
type gossipless struct {
	*evidence
	from   time.Duration
	before map[place]home
	down   map[link]time.Duration   // since when a side says that its link is down
	took   map[string]time.Duration // when a region last took a record
}

// noticed reports whether the gossip of a region at an end of the cut lost a member by it.
func (e *evidence) noticed(s ledger.Span) bool {
	last := map[[2]string]float64{}
	for i := range e.history.Events {
		g := e.history.Events[i].Gauge
		if g == nil || g.Name != ledger.GossipMembers {
			continue
		}
		at, node := e.history.Events[i].At, [2]string{g.Region, g.Node}
		switch had, ok := last[node]; {
		case at < s.From:
			last[node] = g.Value
		case at <= s.To && ok && g.Value < had:
			return true
		}
	}
	return false
}

// home is where a log is, in which epoch.
type home struct{ region, epoch string }

// placesBefore is what each region said last of each log before the cut; under the region
// "", what the last ack said.
func (e *evidence) placesBefore(s ledger.Span) map[place]home {
	last := map[place]home{}
	for i := range e.history.Events {
		ev := &e.history.Events[i]
		if ev.At >= s.From {
			continue
		}
		if p := ev.Placed; p != nil {
			last[place{p.Log, p.Region}] = home{p.Home, p.Epoch}
		}
		if a := ev.Entry; a != nil && a.Outcome == ledger.Acked && !a.Duplicate {
			last[place{a.Log, ""}] = home{a.Region, a.Epoch}
		}
	}
	return last
}

func (e *gossipless) link(ev *ledger.Event) {
	l := ev.Link
	k := link{l.Region, l.Peer}
	if l.Up {
		delete(e.down, k)
	} else if _, ok := e.down[k]; !ok {
		e.down[k] = ev.At
	}
	if !e.calm(ev.At, ev.At, nil, l.Region, l.Peer) {
		return
	}
	e.judged(GossipAlone)
	if !l.Up && ev.At-e.down[k] >= e.limits.Hiccup {
		e.broken(Violation{Number: GossipAlone, Region: l.Region, At: ev.At, Text: fmt.Sprintf("says that its link to %s is down while gossip alone is cut: %s", l.Peer, l.Reason)})
	}
}

// lag is the target's own word.
func (e *gossipless) lag(ev *ledger.Event) {
	l := ev.Lag
	if l.Region != l.Target || l.Home == l.Target || !e.calm(ev.At, ev.At, nil, l.Home, l.Target) {
		return
	}
	e.judged(GossipAlone)
	if most := max(e.limits.Young, e.limits.Settle) + l.StalenessError; l.State == regions.LagLinkDown && e.limits.Hiccup == 0 || !l.StalenessKnown || l.Staleness > most {
		e.broken(Violation{Number: GossipAlone, Log: l.Log.String(), Region: l.Region, At: ev.At,
			Text: fmt.Sprintf("says %s, %s old (known: %v), while gossip alone is cut", l.State, l.Staleness, l.StalenessKnown)})
	}
}

func (e *gossipless) place(ev *ledger.Event) {
	p := ev.Placed
	was, ok := e.before[place{p.Log, p.Region}]
	if !ok || !e.calm(ev.At, ev.At, nil, p.Region, was.region) {
		return
	}
	e.judged(GossipAlone)
	if is := (home{p.Home, p.Epoch}); is != was {
		e.broken(Violation{Number: GossipAlone, Log: p.Log, Region: p.Region, At: ev.At,
			Text: fmt.Sprintf("while gossip alone is cut its home went from %s, epoch %s, to %s, epoch %s", was.region, was.epoch, is.region, is.epoch)})
	}
}

// elsewhere are the refusals of a record whose way to its log is gone.
var elsewhere = []api.Code{api.HomeUnreachable, api.NotReady, api.AuthorityUnreachable, api.SyncShort, api.Fenced, api.NotHome}

func (e *gossipless) entry(ev *ledger.Event) {
	a := ev.Entry
	took, ok := e.took[a.Asked]
	if !ok {
		took = e.from
	}
	if a.Outcome == ledger.Acked {
		e.took[a.Asked] = ev.At
	}
	if !e.calm(a.Begin, ev.At, nil, append(slices.Clone(a.Rests), a.Asked)...) {
		return
	}
	v := Violation{Number: GossipAlone, Log: a.Log, Region: a.Asked, At: ev.At}
	switch was, ok := e.before[place{a.Log, ""}]; {
	case a.Outcome == ledger.Unknown, a.Outcome == ledger.Refused && slices.Contains(elsewhere, a.Code):
		e.judged(GossipAlone)
		if e.limits.Hiccup == 0 || ev.At-took >= e.limits.Hiccup {
			v.Text = "a record was not taken while gossip alone is cut: " + string(a.Code)
			e.broken(v)
		}
	case a.Outcome == ledger.Acked && ok:
		e.judged(GossipAlone)
		if is := (home{a.Region, a.Epoch}); is != was {
			v.Text = fmt.Sprintf("while gossip alone is cut acks go from %s, epoch %s, to %s, epoch %s", was.region, was.epoch, is.region, is.epoch)
			e.broken(v)
		}
	}
}

// readOn: of what was acknowledged in the first half of the cut, each region's readers have
// something before it ends.
func (e *evidence) readOn(s ledger.Span) {
	fresh := map[string]map[string]bool{} // by region and the mark of an id
	for i := range e.entries {
		a := &e.entries[i]
		if a.Outcome != ledger.Acked || a.Begin < s.From || a.End > (s.From+s.To)/2 {
			continue
		}
		for _, region := range a.Rests {
			if fresh[region] == nil {
				fresh[region] = map[string]bool{}
			}
			fresh[region][ledger.Mark(a.ID)] = true
		}
	}
	readers, got := map[string]bool{}, map[string]bool{}
	for i := range e.history.Events {
		ev := &e.history.Events[i]
		if ev.Batch == nil || ev.At > s.To {
			continue
		}
		region := ev.Batch.Region
		readers[region] = true
		got[region] = got[region] || ev.At >= s.From && slices.ContainsFunc(ev.Batch.Items, func(g ledger.Got) bool { return fresh[region][g.ID] })
	}
	for region := range readers {
		if len(fresh[region]) == 0 || !e.calm(s.From, s.To, nil, region) {
			continue
		}
		e.judged(GossipAlone)
		if !got[region] {
			e.broken(Violation{Number: GossipAlone, Region: region, At: s.To, Text: fmt.Sprintf("its readers got none of %d records that were acknowledged while gossip alone was cut", len(fresh[region]))})
		}
	}
}
