package invariant_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"domicile/api"
	"domicile/chaos/invariant"
	"domicile/chaos/ledger"
	"domicile/policy"
	"domicile/regions"
)

var limits = declared(invariant.Usual(0.25))

func declared(l invariant.Limits) invariant.Limits {
	l.Quotas = []invariant.Quota{{Topic: "orders", Quota: regions.Quota{Records: 7, Bytes: 2000}}}
	return l
}

// numbers are all promises that are judged.
var numbers = []int{
	invariant.Whole, invariant.Kept, invariant.Durable, invariant.Once, invariant.Resident, invariant.NoOffer, invariant.Order,
	invariant.NoRepeat, invariant.Fenced, invariant.Slope, invariant.LagTruth, invariant.Idle, invariant.Gaps, invariant.Revision,
	invariant.Counted, invariant.Quotas, invariant.Memory, invariant.Heartbeat, invariant.CatchUp, invariant.OneWay, invariant.DiskTold, invariant.Converged, invariant.NoLeak,
	invariant.Crossed, invariant.GossipAlone,
}

// A run that keeps every promise is green, and every promise was put to the test.
func TestRP2_AGoodRunIsGreen(t *testing.T) {
	for seed := range uint64(5) {
		r := spoilable(seed)
		v := invariant.Check(r.h, r.final, limits)
		for _, x := range v.Violations {
			t.Errorf("seed %d: %s", seed, x)
		}
		for _, n := range numbers {
			if v.Judged[n] == 0 {
				t.Errorf("seed %d: invariant %d was not judged at all", seed, n)
			}
		}
	}
}

// run is a good run that a test spoils.
type run struct {
	h     *ledger.History
	final []ledger.Shelf
}

func (r *run) shelf(log, region string) *ledger.Shelf {
	i := slices.IndexFunc(r.final, func(s ledger.Shelf) bool { return s.Log == log && s.Region == region })
	return &r.final[i]
}

// event changes the n-th event that pick likes, on a copy.
func (r *run) event(n int, pick func(*ledger.Event) bool, change func(*ledger.Event)) {
	for i := range r.h.Events {
		e := &r.h.Events[i]
		if !pick(e) {
			continue
		}
		if n--; n >= 0 {
			continue
		}
		change(e)
		return
	}
	panic("no such event")
}

// inPlace puts a gap of a kind where a shelf has a record.
func (r *run) inPlace(log, region string, kind regions.GapKind) {
	c := r.shelf(log, region)
	at := c.Items[5].Sequence
	c.Items = slices.Delete(slices.Clone(c.Items), 5, 6)
	c.Gaps = append(slices.Clone(c.Gaps), regions.Gap{Kind: kind, From: at, To: at})
	slices.SortFunc(c.Gaps, func(a, b regions.Gap) int { return int(a.From) - int(b.From) })
}

func between(e *ledger.Event, from, to time.Duration) bool { return e.At >= from && e.At <= to }

func ackedBy(region string, from, to time.Duration) func(*ledger.Event) bool {
	return func(e *ledger.Event) bool {
		return e.Entry != nil && e.Entry.Outcome == ledger.Acked && !e.Entry.Duplicate && e.Entry.Region == region && between(e, from, to)
	}
}

func lagOf(home, target, by string, from, to time.Duration) func(*ledger.Event) bool {
	return func(e *ledger.Event) bool {
		return e.Lag != nil && e.Lag.Home == home && e.Lag.Target == target && e.Lag.Region == by && between(e, from, to)
	}
}

func linkOf(region, peer string, from, to time.Duration) func(*ledger.Event) bool {
	return func(e *ledger.Event) bool {
		return e.Link != nil && e.Link.Region == region && e.Link.Peer == peer && between(e, from, to)
	}
}

const s = time.Second

// spoilt is one broken promise each.
var spoilt = []struct {
	name  string
	want  int
	spoil func(*run)
}{
	{"an event was dropped", invariant.Whole, func(r *run) { r.h.Dropped = 1 }},
	{"an acked record is gone", invariant.Kept, func(r *run) {
		home := r.shelf("orders@us", "us")
		home.Items = slices.Delete(slices.Clone(home.Items), 60, 62)
	}},
	{"an ack without its majority", invariant.Durable, func(r *run) {
		r.event(3, func(e *ledger.Event) bool { return e.Entry != nil && e.Entry.Asked == "eu" && between(e, 45*s, 46*s) }, func(e *ledger.Event) {
			e.Entry.Outcome, e.Entry.Region, e.Entry.Log, e.Entry.Sequence, e.Entry.Revision = ledger.Acked, "eu", "orders@eu", 9999, "1-p"
		})
	}},
	{"an unknown one stored twice", invariant.Once, func(r *run) {
		var id string
		r.event(0, func(e *ledger.Event) bool {
			return e.Entry != nil && e.Entry.Outcome == ledger.Unknown && e.Entry.Asked == "ap" && storedIn(r, "ap", e.Entry.ID)
		}, func(e *ledger.Event) { id = e.Entry.ID })
		from := r.shelf("orders@ap", "ap")
		at := slices.IndexFunc(from.Items, func(i ledger.Item) bool { return i.ID == id })
		again := from.Items[at]
		again.Sequence = from.End + 1
		from.Items, from.End = append(slices.Clone(from.Items), again), from.End+1
	}},
	{"a resident record is stored abroad", invariant.Resident, func(r *run) {
		home, abroad := r.shelf("orders@eu", "eu"), r.shelf("orders@eu", "us")
		at := slices.IndexFunc(home.Items, func(i ledger.Item) bool { return i.Residency == "eu" })
		leak := home.Items[at]
		leak.Region = "us"
		abroad.Items = append(slices.Clone(abroad.Items), leak)
	}},
	{"a reader abroad gets a resident record", invariant.Resident, func(r *run) {
		home := r.shelf("orders@eu", "eu")
		leak := home.Items[slices.IndexFunc(home.Items, func(i ledger.Item) bool { return i.Residency == "eu" })]
		r.event(590, func(e *ledger.Event) bool { return e.Batch != nil && e.Batch.Region == "us" }, func(e *ledger.Event) {
			b := *e.Batch
			b.Reader, b.Items = "another", []ledger.Got{{Log: leak.Log, Sequence: leak.Sequence, ID: ledger.Mark(leak.ID)}}
			e.Batch = &b
		})
	}},
	{"another residency than published", invariant.Resident, func(r *run) {
		home := r.shelf("orders@eu", "eu")
		home.Items = slices.Clone(home.Items)
		home.Items[30].Residency = "mars"
	}},
	{"advice to fail over", invariant.NoOffer, func(r *run) {
		r.event(5, func(e *ledger.Event) bool { return e.Advice != nil }, func(e *ledger.Event) {
			e.Advice = &ledger.Advice{Region: "us", Lines: []string{"domicile failover orders --to us"}}
		})
	}},
	{"a copy in another order", invariant.Order, func(r *run) {
		c := r.shelf("orders@ap", "eu")
		c.Items = slices.Clone(c.Items)
		c.Items[10], c.Items[11] = c.Items[11], c.Items[10]
	}},
	{"a copy with records exchanged", invariant.Order, func(r *run) {
		c := r.shelf("orders@ap", "eu")
		c.Items = slices.Clone(c.Items)
		c.Items[10].Sequence, c.Items[11].Sequence = c.Items[11].Sequence, c.Items[10].Sequence
		c.Items[10], c.Items[11] = c.Items[11], c.Items[10]
	}},
	{"a term that falls along the log", invariant.Order, func(r *run) {
		c := r.shelf("orders@eu", "eu")
		c.Items = slices.Clone(c.Items)
		c.Items[10].Term = 3
	}},
	{"a reader goes back", invariant.Order, func(r *run) {
		r.event(100, func(e *ledger.Event) bool { return e.Batch != nil && len(e.Batch.Items) > 1 }, func(e *ledger.Event) {
			b := *e.Batch
			b.Items = append(slices.Clone(b.Items), ledger.Got{Log: b.Items[0].Log, Sequence: 1, ID: "#unknown"})
			e.Batch = &b
		})
	}},
	{"a reader gets one twice", invariant.NoRepeat, func(r *run) {
		r.event(100, func(e *ledger.Event) bool { return e.Batch != nil && len(e.Batch.Items) == 1 }, func(e *ledger.Event) {
			b := *e.Batch
			b.Items = append(slices.Clone(b.Items), b.Items[0])
			e.Batch = &b
		})
	}},
	{"an acked one stored twice", invariant.NoRepeat, func(r *run) {
		home := r.shelf("orders@us", "us")
		again := home.Items[20]
		again.Sequence = home.End + 1
		home.Items, home.End = append(slices.Clone(home.Items), again), home.End+1
	}},
	{"a fenced writer acks", invariant.Fenced, func(r *run) {
		r.event(5, ackedBy("eu", 47*s, 50*s), func(e *ledger.Event) { e.Entry.Term = 1 })
	}},
	{"two acks of one sequence", invariant.Fenced, func(r *run) {
		r.event(5, ackedBy("us", 1*s, 5*s), func(e *ledger.Event) { e.Entry.Sequence++ })
	}},
	{"two regions in one epoch", invariant.Fenced, func(r *run) {
		r.event(5, ackedBy("us", 1*s, 5*s), func(e *ledger.Event) { e.Entry.Region = "ap" })
	}},
	{"a lag that stands still under a cut", invariant.Slope, func(r *run) {
		for i := range r.h.Events {
			if e := &r.h.Events[i]; lagOf("eu", "us", "us", 5*s, 15*s)(e) {
				l := *e.Lag
				l.Staleness = 11 * s
				e.Lag = &l
			}
		}
	}},
	{"a lag that falls under a cut", invariant.Slope, func(r *run) {
		r.event(14, lagOf("eu", "us", "us", 5*s, 15*s), func(e *ledger.Event) { l := *e.Lag; l.Staleness -= 3 * s; e.Lag = &l })
	}},
	{"pending records that are not counted", invariant.LagTruth, func(r *run) {
		r.event(14, lagOf("eu", "us", "eu", 5*s, 15*s), func(e *ledger.Event) { l := *e.Lag; l.Records = 1; e.Lag = &l })
	}},
	{"pending records when all is copied", invariant.LagTruth, func(r *run) {
		r.event(5, lagOf("eu", "us", "eu", 54*s, 59*s), func(e *ledger.Event) { l := *e.Lag; l.Records = 7; e.Lag = &l })
	}},
	{"older than what is readable", invariant.LagTruth, func(r *run) {
		r.event(5, lagOf("eu", "ap", "ap", 5*s, 15*s), func(e *ledger.Event) { l := *e.Lag; l.Staleness = 744 * s; e.Lag = &l })
	}},
	{"zero while cut off", invariant.Idle, func(r *run) {
		r.event(14, lagOf("ap", "us", "us", 5*s, 15*s), func(e *ledger.Event) { l := *e.Lag; l.Staleness = 0; e.Lag = &l })
	}},
	{"caught up while cut off", invariant.Idle, func(r *run) {
		r.event(14, lagOf("ap", "us", "us", 5*s, 15*s), func(e *ledger.Event) { l := *e.Lag; l.State = regions.LagCaughtUp; e.Lag = &l })
	}},
	{"an idle log grows older", invariant.Idle, func(r *run) {
		r.event(8, lagOf("ap", "us", "us", 54*s, 60*s), func(e *ledger.Event) { l := *e.Lag; l.Staleness = 5 * s; e.Lag = &l })
	}},
	{"a hole", invariant.Gaps, func(r *run) { c := r.shelf("orders@eu", "us"); c.Gaps = slices.Delete(slices.Clone(c.Gaps), 3, 4) }},
	{"a gap over a record", invariant.Gaps, func(r *run) {
		c := r.shelf("orders@eu", "us")
		c.Gaps = slices.Clone(c.Gaps)
		c.Gaps[3].To++
	}},
	{"a sum that does not come out", invariant.Gaps, func(r *run) { r.shelf("orders@eu", "us").Ledger.Withheld-- }},
	{"withheld without need", invariant.Gaps, func(r *run) { r.inPlace("orders@us", "ap", regions.Withheld) }},
	{"expired here and not at home", invariant.Gaps, func(r *run) { r.inPlace("orders@us", "ap", regions.Expired) }},
	{"damaged at home", invariant.Kept, func(r *run) { r.inPlace("orders@us", "us", regions.Damaged) }},
	{"damaged here and not at home", invariant.Gaps, func(r *run) { r.inPlace("orders@us", "ap", regions.Damaged) }},
	{"void here and not at home", invariant.Gaps, func(r *run) { r.inPlace("orders@us", "ap", regions.Void) }},
	{"two revisions for one record", invariant.Revision, func(r *run) {
		c := r.shelf("orders@us", "ap")
		c.Items = slices.Clone(c.Items)
		c.Items[5].Revision = "2-p"
	}},
	{"an ack that names another revision", invariant.Revision, func(r *run) {
		r.event(5, ackedBy("us", 1*s, 5*s), func(e *ledger.Event) { e.Entry.Revision = "2-p" })
	}},
	{"an ack under a revision that was replaced", invariant.Revision, func(r *run) {
		r.event(0, func(e *ledger.Event) bool { return e.Step != nil && e.Step.Kind == ledger.PolicyFlip }, func(e *ledger.Event) { e.Step.Value = "2-p" })
	}},
	{"stored without a revision", invariant.Revision, func(r *run) {
		c := r.shelf("orders@us", "us")
		c.Items = slices.Clone(c.Items)
		c.Items[5].Revision = ""
	}},
	{"a judgement that is not counted", invariant.Counted, func(r *run) { r.counts("ap", func(c *ledger.Counts) { c.Asked[admit("ap")]-- }) }},
	{"a judgement that is counted twice", invariant.Counted, func(r *run) { r.counts("ap", func(c *ledger.Counts) { c.Asked[admit("ap")]++ }) }},
	{"an answer that is not counted", invariant.Counted, func(r *run) { r.counts("eu", func(c *ledger.Counts) { c.Told["orders ACKED"] -= 40 }) }},
	{"a refusal that is counted too often", invariant.Counted, func(r *run) { r.counts("us", func(c *ledger.Counts) { c.Told["orders STORAGE_FULL"] += 100 }) }},
	{"a copy that nobody judged on leaving", invariant.Counted, func(r *run) {
		r.counts("eu", func(c *ledger.Counts) { c.Asked[asked(policy.MirrorEgress, "eu", "eu", "us")] -= 40 })
	}},
	{"a copy that nobody judged on arriving", invariant.Counted, func(r *run) {
		r.counts("us", func(c *ledger.Counts) { c.Asked[asked(policy.MirrorIngress, "us", "ap", "us")] -= 40 })
	}},
	{"records that were read and not judged", invariant.Counted, func(r *run) {
		r.counts("us", func(c *ledger.Counts) { c.Asked[asked(policy.Consume, "us", "us", "us")] -= 200 })
	}},
	{"a count that falls", invariant.Counted, func(r *run) {
		r.event(3, func(e *ledger.Event) bool { return e.Counts != nil && e.Counts.Region == "ap" }, func(e *ledger.Event) {
			c := *e.Counts
			c.Asked = map[string]uint64{}
			e.Counts = &c
		})
	}},
	{"a copy that counts fewer withheld ones than there are", invariant.Counted, func(r *run) { r.shelf("orders@us", "ap").Ledger.Withheld-- }},
	{"a record that had left its home and was refused on arrival", invariant.Counted, func(r *run) {
		c := r.shelf("orders@us", "ap")
		c.Gaps = slices.Clone(c.Gaps)
		c.Gaps[2].Side = "ingress"
	}},
	{"more records than a quota lets in", invariant.Quotas, func(r *run) {
		n := 0
		for i := range r.h.Events {
			if e := &r.h.Events[i]; ackedBy("us", 10*s, 30*s)(e) && n < 20 {
				e.Entry.Begin, e.Entry.End = 10*s, 10*s+s/10
				n++
			}
		}
	}},
	{"more bytes than a quota lets in", invariant.Quotas, func(r *run) {
		n := 0
		for i := range r.h.Events {
			if e := &r.h.Events[i]; ackedBy("us", 10*s, 30*s)(e) && n < 10 {
				e.Entry.Size = 1900
				n++
			}
		}
	}},
	{"refused by a quota of others", invariant.Quotas, func(r *run) {
		r.event(7, func(e *ledger.Event) bool { return e.Entry != nil && e.Entry.Code == api.StorageFull }, func(e *ledger.Event) { e.Entry.Topic, e.Entry.Code = "news", api.QuotaExceeded })
	}},
	{"a heap beyond its bound", invariant.Memory, func(r *run) {
		r.event(0, func(e *ledger.Event) bool { return e.Gauge != nil && e.Gauge.Name == ledger.HeapBytes }, func(e *ledger.Event) { e.Gauge.Value = 3 << 30 })
	}},
	{"a heartbeat that starves", invariant.Heartbeat, func(r *run) {
		r.event(8, linkOf("us", "eu", 30*s, 36*s), func(e *ledger.Event) { e.Link.Silence = 9 * s })
	}},
	{"a link that a slow line takes down", invariant.Heartbeat, func(r *run) {
		r.event(8, linkOf("us", "eu", 30*s, 36*s), func(e *ledger.Event) { e.Link.Up = false })
	}},
	{"acks that wait for the mirrors", invariant.CatchUp, func(r *run) {
		for i := range r.h.Events {
			if e := &r.h.Events[i]; ackedBy("us", 15*s, 40*s)(e) {
				e.Entry.End += 4 * s
			}
		}
	}},
	{"one side does not see a one-way cut", invariant.OneWay, func(r *run) {
		r.event(8, linkOf("us", "ap", 20*s, 26*s), func(e *ledger.Event) { e.Link.Up = true })
	}},
	{"a full disk that lets time pass", invariant.DiskTold, func(r *run) {
		r.event(7, func(e *ledger.Event) bool { return e.Entry != nil && e.Entry.Code == api.StorageFull }, func(e *ledger.Event) { e.Entry.End += 10 * s })
	}},
	{"a full disk without a code", invariant.DiskTold, func(r *run) {
		r.event(7, func(e *ledger.Event) bool { return e.Entry != nil && e.Entry.Code == api.StorageFull }, func(e *ledger.Event) { e.Entry.Code = "" })
	}},
	{"a copy that ends too early", invariant.Converged, func(r *run) {
		c := r.shelf("orders@us", "ap")
		c.Items, c.Gaps = c.Items[:5], nil
		c.End = c.Items[4].Sequence
		c.Ledger = regions.Ledger{Mirrored: c.End}
	}},
	{"a copy with another body", invariant.Converged, func(r *run) {
		c := r.shelf("orders@us", "ap")
		c.Items = slices.Clone(c.Items)
		c.Items[5].Hash = "other"
	}},
	{"a resident record on a link out of its boundary", invariant.Crossed, func(r *run) { r.event(9, forwarded, func(e *ledger.Event) { e.Crossing.To = "us" }) }},
	{"one on a link out of its home", invariant.Crossed, func(r *run) {
		r.event(9, forwarded, func(e *ledger.Event) { e.Crossing.From, e.Crossing.To = e.Crossing.To, e.Crossing.From })
	}},
	{"a record of nobody on a link", invariant.Crossed, func(r *run) {
		r.event(9, forwarded, func(e *ledger.Event) { e.Crossing.IDs = []string{ledger.Mark("nobody's")} })
	}},
	{"a forward that was not heard", invariant.Crossed, func(r *run) {
		r.event(9, forwarded, func(e *ledger.Event) { e.Crossing.IDs = []string{r.h.Entries()[0].ID} })
	}},
	{"a link that can't be searched", invariant.Crossed, func(r *run) {
		r.event(3, func(e *ledger.Event) bool { return e.Line != nil }, func(e *ledger.Event) { e.Line.Opaque = 1 })
	}},
	{"a link that goes down with the gossip", invariant.GossipAlone, func(r *run) {
		r.event(3, linkOf("ap", "eu", 32*s, 38*s), func(e *ledger.Event) { e.Link.Up = false })
	}},
	{"a lag that grows without gossip", invariant.GossipAlone, func(r *run) {
		r.event(3, lagOf("ap", "eu", "eu", 32*s, 38*s), func(e *ledger.Event) { l := *e.Lag; l.Staleness = 7 * s; e.Lag = &l })
	}},
	{"a lag that is not known without gossip", invariant.GossipAlone, func(r *run) {
		r.event(3, lagOf("ap", "eu", "eu", 32*s, 38*s), func(e *ledger.Event) { l := *e.Lag; l.StalenessKnown = false; e.Lag = &l })
	}},
	{"a new epoch without gossip", invariant.GossipAlone, func(r *run) { r.event(3, placedBy("us", 32*s, 38*s), func(e *ledger.Event) { e.Placed.Epoch = "2" }) }},
	{"a failover for gossip's sake", invariant.GossipAlone, func(r *run) {
		r.event(3, placedBy("us", 32*s, 38*s), func(e *ledger.Event) { e.Placed.Home = "us" })
	}},
	{"a record refused for gossip's sake", invariant.GossipAlone, func(r *run) {
		r.event(1, ackedBy("eu", 38*s, 39*s), func(e *ledger.Event) { e.Entry.Outcome, e.Entry.Code = ledger.Refused, api.HomeUnreachable })
	}},
	{"nobody can say, for gossip's sake", invariant.GossipAlone, func(r *run) {
		r.event(1, ackedBy("eu", 38*s, 39*s), func(e *ledger.Event) { e.Entry.Outcome, e.Entry.Code = ledger.Unknown, api.OutcomeUnknown })
	}},
	{"acks from another home without gossip", invariant.GossipAlone, func(r *run) {
		r.event(1, ackedBy("eu", 38*s, 39*s), func(e *ledger.Event) { e.Entry.Region = "us" })
	}},
	{"readers that stand still without gossip", invariant.GossipAlone, func(r *run) {
		for i := range r.h.Events {
			if e := &r.h.Events[i]; e.Batch != nil && e.Batch.Region == "us" && between(e, 31*s, 39*s) {
				e.Batch = &ledger.Batch{Reader: e.Batch.Reader, Region: "us", Topic: "orders"}
			}
		}
	}},
	{"goroutines that stay", invariant.NoLeak, func(r *run) {
		r.event(1, func(e *ledger.Event) bool { return e.Gauge != nil && e.Gauge.Name == ledger.Goroutines }, func(e *ledger.Event) { e.Gauge.Value = 400 })
	}},
}

func forwarded(e *ledger.Event) bool { return e.Crossing != nil && e.Crossing.Call == "Forward" }

func placedBy(region string, from, to time.Duration) func(*ledger.Event) bool {
	return func(e *ledger.Event) bool {
		return e.Placed != nil && e.Placed.Region == region && between(e, from, to)
	}
}

// counts changes a region's last word on what it has counted.
func (r *run) counts(region string, change func(*ledger.Counts)) {
	for i := range slices.Backward(r.h.Events) {
		if e := &r.h.Events[i]; e.Counts != nil && e.Counts.Region == region {
			c := *e.Counts
			c.Asked, c.Told = maps.Clone(c.Asked), maps.Clone(c.Told)
			change(&c)
			e.Counts = &c
			return
		}
	}
	panic("no counts")
}

func asked(point policy.Point, region, origin, target string) string {
	return policy.Question{Point: point, Topic: "orders", Tags: []api.Tag{{Name: regions.ResidencyTag, Value: "global"}}, Class: "app", Place: region, Origin: origin, Target: target}.String()
}

func admit(region string) string { return asked(policy.Admit, region, region, policy.None) }

func storedIn(r *run, region, id string) bool {
	return slices.ContainsFunc(r.shelf("orders@"+region, region).Items, func(i ledger.Item) bool { return i.ID == id })
}

// good keeps the good runs: all tests start from the same few.
var good sync.Map // seed → *run

// spoilable is a good run that a test may change: events, entries and shelves are its
// own, the items of a shelf are not.
func spoilable(seed uint64) *run {
	kept, ok := good.Load(seed)
	if !ok {
		h, final := simulate(seed)
		kept, _ = good.LoadOrStore(seed, &run{h, final})
	}
	base := kept.(*run)
	h := *base.h
	h.Events = slices.Clone(h.Events)
	for i := range h.Events {
		e := &h.Events[i]
		e.Entry, e.Link, e.Gauge, e.Step = own(e.Entry), own(e.Link), own(e.Gauge), own(e.Step)
		e.Crossing, e.Line, e.Placed = own(e.Crossing), own(e.Line), own(e.Placed)
	}
	return &run{&h, slices.Clone(base.final)}
}

func own[T any](p *T) *T {
	if p == nil {
		return nil
	}
	v := *p
	return &v
}

func TestRP2_EachBrokenPromiseIsRed(t *testing.T) {
	red := map[int]bool{}
	for _, c := range spoilt {
		t.Run(c.name, func(t *testing.T) {
			r := spoilable(1)
			c.spoil(r)
			v := invariant.Check(r.h, r.final, limits)
			if v.Holds() || v.Broken[c.want] == 0 {
				t.Fatalf("want invariant %d, got %v", c.want, v.Violations)
			}
			red[c.want] = true
			for _, x := range v.Violations {
				if strings.Contains(x.String(), "id-") || strings.Contains(x.String(), "key-") || strings.Contains(x.String(), "hash-") {
					t.Errorf("%s repeats content", x)
				}
			}
		})
	}
	for _, n := range numbers {
		if !red[n] {
			t.Errorf("nobody has seen invariant %d red", n)
		}
	}
}

// Any one record that is taken from any shelf, moved, or put where it does not belong
// is seen, in any run.
func TestRP2_AnySpoiltShelfIsRed(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := spoilable(rapid.Uint64Range(0, 3).Draw(t, "seed"))
		shelf := &r.final[rapid.IntRange(0, len(r.final)-1).Draw(t, "shelf")]
		items := slices.Clone(shelf.Items)
		n := rapid.IntRange(1, len(items)-2).Draw(t, "item")
		switch how := rapid.SampledFrom([]string{"gone", "moved", "twice", "other", "elsewhere"}).Draw(t, "how"); how {
		case "gone":
			items = slices.Delete(items, n, n+1)
		case "moved":
			items[n], items[n+1] = items[n+1], items[n]
		case "twice":
			items = slices.Insert(items, n, items[n])
		case "other":
			items[n].Hash = "other"
		case "elsewhere":
			items[n].ID = fmt.Sprintf("id-%d", 100_000+n)
		}
		shelf.Items = items
		if v := invariant.Check(r.h, r.final, limits); v.Holds() {
			t.Fatal("nobody has noticed")
		}
	})
}

func TestListsAreBounded(t *testing.T) {
	r := spoilable(2)
	for i := range r.final {
		r.final[i].Items = nil
	}
	v := invariant.Check(r.h, r.final, limits)
	if v.Broken[invariant.Kept] < 500 || len(v.Violations) > 100*len(numbers) {
		t.Errorf("%d broken, %d listed", v.Broken[invariant.Kept], len(v.Violations))
	}
}
