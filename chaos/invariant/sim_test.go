package invariant_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"domicile/api"
	"domicile/chaos/ledger"
	"domicile/policy"
	"domicile/regions"
)

const tick = 100 * time.Millisecond

// sim is a federation that keeps every promise, as its clients see it: the history of a
// minute with a fault of each kind, and what is stored afterwards. Tests spoil it.
type sim struct {
	random  *rand.Rand
	clock   *regions.ManualClock
	book    *ledger.Book
	shelves map[[2]string]*ledger.Shelf // log, region
	safe    map[[2]string]time.Time     // log, target
	read    map[[2]string]int           // log, region: items its reader has
	term    map[string]uint64
	on      map[ledger.StepKind]func() // faults that are on, and what ends them
	counts  map[string]*ledger.Counts
	n       int
}

var names = []string{"ap", "eu", "us"}

func logOf(region string) api.LogID { return api.LogID{Topic: "orders", Slot: region} }

func simulate(seed uint64) (*ledger.History, []ledger.Shelf) {
	clock := regions.NewManualClock(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))
	s := &sim{
		random: rand.New(rand.NewPCG(seed, 1)), clock: clock, book: &ledger.Book{Clock: clock},
		shelves: map[[2]string]*ledger.Shelf{}, safe: map[[2]string]time.Time{}, read: map[[2]string]int{},
		term: map[string]uint64{}, on: map[ledger.StepKind]func(){}, counts: map[string]*ledger.Counts{},
	}
	for _, home := range names {
		s.term[home] = 1
		s.counts[home] = &ledger.Counts{Region: home, Run: "1", Nodes: 1, Asked: map[string]uint64{}, Told: map[string]uint64{}}
		for _, r := range names {
			s.shelves[[2]string{logOf(home).String(), r}] = &ledger.Shelf{Region: r, Log: logOf(home).String(), Home: r == home}
		}
	}
	s.book.Point(ledger.LeakBase)
	s.gauges()
	for n := range 600 {
		s.faults(n)
		if s.on[ledger.Load] != nil && n%2 == 0 {
			for _, r := range names {
				s.publish(r)
			}
			if n%10 == 0 && s.on[ledger.NoQuorum] == nil {
				s.forward("ap")
			}
		}
		s.mirror()
		s.hear()
		if n%5 == 0 {
			s.say()
		}
		if n%100 == 0 || n == 599 {
			s.count()
		}
		clock.Advance(tick)
	}
	s.book.Point(ledger.LeakAgain)
	s.gauges()
	return s.book.History(), s.final()
}

// faults is the schedule.
func (s *sim) faults(n int) {
	step := func(from, to int, step ledger.Step) {
		switch n {
		case from:
			s.on[step.Kind] = s.book.During(step)
		case to:
			s.on[step.Kind]()
			delete(s.on, step.Kind)
		}
	}
	step(2, 500, ledger.Step{Kind: ledger.Load})
	step(50, 150, ledger.Step{Kind: ledger.Cut, Region: "us"})
	step(200, 260, ledger.Step{Kind: ledger.CutOneWay, Region: "ap", Peer: "us"})
	step(300, 360, ledger.Step{Kind: ledger.SlowLine, Region: "eu", Peer: "us", Value: "50 kbit/s"})
	step(310, 390, ledger.Step{Kind: ledger.GossipCut, Region: "ap", Peer: "eu", Value: "both"})
	step(400, 420, ledger.Step{Kind: ledger.DiskFull, Region: "us"})
	step(440, 460, ledger.Step{Kind: ledger.NoQuorum, Region: "eu"})
	switch n {
	case 270:
		s.book.Step(ledger.Step{Kind: ledger.PolicyFlip, Phase: ledger.Point, Region: "us", Value: "1-p"})
	case 460:
		s.term["eu"]++
	case 480:
		s.expire("orders@eu", 20)
	case 510:
		s.book.Point(ledger.Converged)
	}
}

func (s *sim) connected(a, b string) bool {
	pair := func(x, y string) bool { return a == x && b == y || a == y && b == x }
	return (s.on[ledger.Cut] == nil || a != "us" && b != "us") && (s.on[ledger.CutOneWay] == nil || !pair("ap", "us"))
}

// crosses notes that a record was seen on a link.
func (s *sim) crosses(id, from, to, call string) {
	s.book.Note(ledger.Event{Crossing: &ledger.Crossing{From: from, To: to, Lane: "data", Call: call, Form: "raw", IDs: []string{ledger.Mark(id)}, First: s.clock.Now(), Number: s.n}})
}

// forward: an order of the EU is handed in elsewhere.
func (s *sim) forward(region string) {
	s.n++
	e := ledger.Entry{
		ID: fmt.Sprintf("id-%d", s.n), Hash: fmt.Sprintf("hash-%d", s.n), Key: fmt.Sprintf("key-%d", s.n%7), Topic: "orders", Size: 100,
		Asked: region, Residency: "eu", Rests: []string{"eu"}, Started: s.clock.Now(),
	}
	s.ask(policy.Transit, region, e.Residency, region, region)
	s.crosses(e.ID, region, "eu", "Forward")
	s.ask(policy.Admit, "eu", e.Residency, region, policy.None)
	item := s.store(&e, "eu")
	e.Answer(api.Ack{Log: logOf("eu"), Region: "eu", Sequence: item.Sequence, Epoch: api.StaticEpoch("eu"), WriterTerm: item.Term, PolicyRevision: "1-p", IngestTime: item.Ingest, Forwarded: true}, nil, s.clock.Now().Add(9*time.Millisecond))
	s.enter(e)
}

func (s *sim) publish(region string) {
	s.n++
	e := ledger.Entry{
		ID: fmt.Sprintf("id-%d", s.n), Hash: fmt.Sprintf("hash-%d", s.n), Key: fmt.Sprintf("key-%d", s.n%7), Topic: "orders", Size: 100,
		Asked: region, Residency: "global", Rests: names, Started: s.clock.Now(),
	}
	if s.random.IntN(3) == 0 {
		e.Residency, e.Rests = region, []string{region}
	}
	took := s.clock.Now().Add(time.Duration(1+s.random.IntN(50)) * time.Millisecond)
	switch {
	case region == "us" && s.on[ledger.DiskFull] != nil:
		e.Answer(api.Ack{}, &api.Error{Code: api.StorageFull}, took)
	case region == "eu" && s.on[ledger.NoQuorum] != nil:
		e.Answer(api.Ack{}, &api.Error{Code: api.StorageFailed}, took)
	case s.random.IntN(40) == 0 && s.on[ledger.GossipCut] == nil:
		if s.random.IntN(2) == 0 {
			s.store(&e, region)
		}
		e.Answer(api.Ack{}, &api.Error{Code: api.OutcomeUnknown}, took)
	default:
		item := s.store(&e, region)
		ack := api.Ack{Log: logOf(region), Region: region, Sequence: item.Sequence, Epoch: api.StaticEpoch(region), WriterTerm: item.Term, PolicyRevision: "1-p", IngestTime: item.Ingest}
		e.Answer(ack, nil, took)
		if s.random.IntN(20) == 0 { // its producer asks again
			again := e
			again.Duplicate = true
			s.enter(again)
		}
	}
	s.enter(e)
}

// enter counts an attempt at its region and notes it.
func (s *sim) enter(e ledger.Entry) {
	s.ask(policy.Admit, e.Asked, e.Residency, e.Asked, policy.None)
	s.counts[e.Asked].Told[ledger.Told(e.Topic, e.Code)]++
	s.book.Enter(e)
}

// ask counts a question to a region's policy.
func (s *sim) ask(point policy.Point, region, residency, origin, target string) {
	q := policy.Question{Point: point, Topic: "orders", Tags: []api.Tag{{Name: regions.ResidencyTag, Value: residency}}, Class: "app", Place: region, Origin: origin, Target: target}
	s.counts[region].Asked[q.String()]++
}

// count: each region's word on what it has counted.
func (s *sim) count() {
	for _, region := range names {
		c := *s.counts[region]
		c.Asked, c.Told = maps.Clone(c.Asked), maps.Clone(c.Told)
		s.book.Counted(s.clock.Now(), c)
	}
}

func (s *sim) store(e *ledger.Entry, home string) ledger.Item {
	shelf := s.shelves[[2]string{logOf(home).String(), home}]
	shelf.End++
	item := ledger.Item{
		Region: home, Log: shelf.Log, Sequence: shelf.End, ID: e.ID, Key: e.Key, Hash: e.Hash, Size: e.Size, Residency: e.Residency,
		Epoch: api.StaticEpoch(home).String(), Term: s.term[home], Revision: "1-p", Ingest: s.clock.Now(),
	}
	shelf.Items = append(shelf.Items, item)
	return item
}

func (s *sim) mirror() {
	for _, home := range names {
		log := logOf(home).String()
		origin := s.shelves[[2]string{log, home}]
		for _, target := range names {
			if target == home || !s.connected(home, target) {
				continue
			}
			s.safe[[2]string{log, target}] = s.clock.Now()
			copied := s.shelves[[2]string{log, target}]
			for _, item := range origin.Items {
				if item.Sequence <= copied.End {
					continue
				}
				copied.End = item.Sequence
				s.ask(policy.MirrorEgress, home, item.Residency, home, target)
				if item.Residency != "global" && item.Residency != target {
					copied.Gaps = append(copied.Gaps, regions.Gap{Kind: regions.Withheld, From: item.Sequence, To: item.Sequence, Side: "egress"})
					copied.Ledger.Withheld++
					continue
				}
				s.crosses(item.ID, home, target, "Mirror")
				s.ask(policy.MirrorIngress, target, item.Residency, home, target)
				item.Region = target
				copied.Items = append(copied.Items, item)
				copied.Ledger.Mirrored++
			}
		}
	}
}

// expire: retention takes the first records of a log at its home.
func (s *sim) expire(log string, n int) {
	home := s.shelves[[2]string{log, log[len("orders@"):]}]
	last := home.Items[n-1].Sequence
	home.Items = home.Items[n:]
	home.Gaps = append(home.Gaps, regions.Gap{Kind: regions.Expired, From: 1, To: last})
	s.read[[2]string{log, home.Region}] -= n
}

// hear: each region's reader gets what is new there.
func (s *sim) hear() {
	for _, region := range names {
		b := &ledger.Batch{Reader: "reader-" + region, Region: region, Topic: "orders"}
		for _, home := range names {
			p := [2]string{logOf(home).String(), region}
			for _, i := range s.shelves[p].Items[s.read[p]:] {
				s.ask(policy.Consume, region, i.Residency, home, region)
				b.Items = append(b.Items, ledger.Got{Log: i.Log, Sequence: i.Sequence, ID: ledger.Mark(i.ID), Key: ledger.Mark(i.Key)})
			}
			s.read[p] = len(s.shelves[p].Items)
		}
		s.book.Note(ledger.Event{Batch: b})
	}
}

// say: each region's own word on lags, links and itself.
func (s *sim) say() {
	now := s.clock.Now()
	for _, home := range names {
		for _, target := range names {
			if home == target {
				continue
			}
			up := s.connected(home, target)
			link := &ledger.LinkSample{Region: home, Peer: target, Known: true, Up: up, Heard: true}
			lag := regions.Lag{Log: logOf(home), Home: home, Target: target, State: regions.LagCaughtUp, StalenessKnown: true, RecordsKnown: true}
			if !up {
				lag.State, link.Silence = regions.LagLinkDown, 5*time.Second
			}
			lag.Staleness = now.Sub(s.safe[[2]string{logOf(home).String(), target}])
			for _, i := range s.shelves[[2]string{logOf(home).String(), home}].Items {
				if i.Sequence > s.shelves[[2]string{logOf(home).String(), target}].End && (i.Residency == "global" || i.Residency == target) {
					lag.Records++
				}
			}
			s.book.Note(ledger.Event{Link: link})
			s.book.Note(ledger.Event{Lag: &ledger.LagSample{Region: target, Lag: lag}})
			s.book.Note(ledger.Event{Lag: &ledger.LagSample{Region: home, Lag: lag}})
		}
	}
	for _, home := range names {
		for _, region := range names {
			s.book.Note(ledger.Event{Placed: &ledger.Placed{Region: region, Log: logOf(home).String(), Home: home, Epoch: api.StaticEpoch(home).String(), Status: "active"}})
		}
	}
	members := 3.0
	if s.on[ledger.GossipCut] != nil {
		members--
	}
	s.book.Note(ledger.Event{Gauge: &ledger.Gauge{Region: "ap", Name: ledger.GossipMembers, Value: members}})
	s.book.Note(ledger.Event{Line: &ledger.Line{From: "ap", To: "eu", Lane: "data", Bytes: 1000}})
	s.book.Note(ledger.Event{Advice: &ledger.Advice{Region: "us", Lines: []string{"orders@eu: nothing: its failover rule is never", "domicile status --context eu"}}})
}

func (s *sim) gauges() {
	for name, v := range map[string]float64{ledger.HeapBytes: 50 << 20, ledger.Goroutines: 200, ledger.Descriptors: 60} {
		s.book.Note(ledger.Event{Gauge: &ledger.Gauge{Region: "us", Name: name, Value: v + float64(s.random.IntN(5))}})
	}
}

func (s *sim) final() []ledger.Shelf {
	var list []ledger.Shelf
	for _, shelf := range s.shelves {
		list = append(list, *shelf)
	}
	slices.SortFunc(list, func(a, b ledger.Shelf) int {
		return slices.Compare([]string{a.Log, a.Region}, []string{b.Log, b.Region})
	})
	return list
}
