package report

import (
	"path/filepath"
	"testing"
	"time"

	"domicile/api"
	"domicile/chaos/drill/history"
	"domicile/regions"
)

// The times of the story, since its origin.
const (
	step    = 200 * time.Millisecond
	cutAt   = 4 * time.Second
	healAt  = 20 * time.Second
	endAt   = 23 * time.Second
	caught  = healAt + 2*time.Second
	moveAt  = cutAt + 2*time.Second // only where the catalogue moves
	fenceAt = moveAt + 12*step
	movedAt = moveAt + 3*time.Second
	arrives = 60 * time.Millisecond // a copy, and an ack
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// story tells of a drill in which everything went well, unless spoil changes an event on its
// way into the history; nil instead of an event leaves it out.
type story struct {
	t     testing.TB
	moves bool
	spoil func(*history.Event) *history.Event
	clock *regions.ManualClock
	w     *history.Writer

	catalog, orders, us, late feedOf
	marks                     map[string]time.Duration // flow → the copy is complete up to here
	owed                      map[string]uint64        // flow → records that wait
}

// feedOf is one producer of the story.
type feedOf struct {
	name, asked, topic, residency, log, home string
	n, seq                                   uint64
	pending                                  []history.Run // read elsewhere after the heal
}

func plan(moves bool) *history.Plan {
	p := &history.Plan{
		Isolate: "eu-west", Peers: []string{"ap-south", "us-east"}, Planes: []string{"control", "data", "council"}, Direction: "both", Fault: "blackhole",
		Baseline: cutAt, For: healAt - cutAt, Lease: 3 * time.Second, By: "Ada", Approved: []string{"Grace"}, Reason: "OPS-114, quarterly drill", Digest: "sha256:5e1f",
		Legal:    []history.Boundary{{Name: "eu", Regions: []string{"eu-west"}}, {Name: "us", Regions: []string{"us-east"}}, {Name: "in", Regions: []string{"ap-south"}}},
		Policies: []history.Revision{{Region: "eu-west", Revision: "12-ab"}, {Region: "us-east", Revision: "12-ab"}},
		Bounds:   history.Bounds{Busy: 300 * time.Millisecond, Idle: 1300 * time.Millisecond, Clock: 10 * time.Millisecond, Beat: time.Second, See: 4 * time.Second, Catch: 30 * time.Second},
		Topics: []history.Topic{
			{Name: "catalog.updates", Mode: "manual", Targets: []string{"us-east"}, RPO: 5 * time.Second, RTO: time.Minute, Isolation: "fence_after 10s",
				Text: "The catalogue is read from copies; updates wait for eu-west or its successor.", Logs: []history.Log{{Log: "catalog.updates@home", Home: "eu-west", Copies: []string{"ap-south", "us-east"}}}},
			{Name: "orders", Mode: "never", Resident: []string{"eu", "us", "in"}, Text: "Orders of a region that is down are refused until it is back; nothing is stored elsewhere.", Logs: []history.Log{
				{Log: "orders@eu-west", Home: "eu-west", Copies: []string{"ap-south", "us-east"}}, {Log: "orders@us-east", Home: "us-east", Copies: []string{"ap-south", "eu-west"}}}},
		},
		Expect: []history.Expectation{
			{Topic: "orders", Moment: history.Always, Want: history.Denied, Why: history.WhyResides},
			{Topic: "catalog.updates", Target: "us-east", Moment: history.AtCut, Want: history.Allowed},
			{Topic: "catalog.updates", Target: "us-east", Moment: history.HalfRPO, Want: history.Allowed},
			{Topic: "catalog.updates", Target: "us-east", Moment: history.TwiceRPO, Want: history.Denied, Why: history.WhyLag},
		},
	}
	if moves {
		p.Exercise = []string{"catalog.updates"}
	}
	return p
}

// tell writes the story and reads it again.
func (s story) tell(t testing.TB) *history.History {
	t.Helper()
	s.t, s.clock, s.marks, s.owed = t, regions.NewManualClock(noon), map[string]time.Duration{}, map[string]uint64{}
	s.catalog = feedOf{name: "p-catalog", asked: "eu-west", topic: "catalog.updates", residency: "global", log: "catalog.updates@home", home: "eu-west"}
	s.orders = feedOf{name: "p-eu", asked: "eu-west", topic: "orders", residency: "eu", log: "orders@eu-west", home: "eu-west"}
	s.us = feedOf{name: "p-us", asked: "us-east", topic: "orders", residency: "eu", log: "orders@eu-west", home: "eu-west"}
	s.late = feedOf{name: "p-new", asked: "us-east", topic: "catalog.updates", residency: "global", log: "catalog.updates@home", home: "us-east"}
	path := filepath.Join(t.TempDir(), "history.jsonl")
	var err error
	if s.w, err = history.Create(path, history.Head{Drill: "2026-03-01-eu-west", Federation: "example", Controller: "domicile test"}, s.clock); err != nil {
		t.Fatal(err)
	}
	s.note(history.Event{Plan: plan(s.moves)})
	s.note(history.Event{Prediction: &history.Figure{Name: history.RefusedReal, Topic: "orders", Value: 1800, Unit: "records", Basis: "hourly counts of 8 days, 96 % covered"}})
	s.note(history.Event{Prediction: &history.Figure{Name: history.LagAtHeal, Log: "catalog.updates@home", Target: "us-east", Value: 16, Unit: "s", Basis: "length of the cut"}})
	s.begin(history.Baseline)
	for now := time.Duration(0); now < endAt; now += step {
		s.clock.Set(noon.Add(now))
		s.turn(now)
	}
	s.end(history.CatchUp)
	s.after()
	if _, err := s.w.Close(history.Close{Outcome: history.Completed}); err != nil {
		t.Fatal(err)
	}
	h, err := history.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func (s *story) note(e history.Event) {
	if s.spoil != nil {
		changed := s.spoil(&e)
		if changed == nil {
			return
		}
		e = *changed
	}
	if err := s.w.Note(e); err != nil {
		s.t.Fatal(err)
	}
}

func (s *story) begin(p history.Phase) {
	s.note(history.Event{Step: &history.Step{Phase: p, Budget: time.Minute}})
}
func (s *story) end(p history.Phase) {
	s.note(history.Event{Step: &history.Step{Phase: p, End: true, OK: true}})
}

// turn is a fifth of a second.
func (s *story) turn(now time.Duration) {
	down := now >= cutAt && now < healAt
	switch now {
	case cutAt:
		s.end(history.Baseline)
		s.begin(history.Cut)
		for _, r := range []string{"ap-south", "eu-west", "us-east"} {
			s.note(history.Event{Region: r, Gate: &history.Gate{Act: history.ActCut, OK: true, Asked: now, Lease: 3 * time.Second}})
		}
		s.probe(history.AtCut, 0, true)
	case cutAt + 2600*time.Millisecond:
		s.probe(history.HalfRPO, now-cutAt, true)
	case cutAt + 5*time.Second:
		s.probe(history.AtRPO, now-cutAt, false)
	case cutAt + 10*time.Second:
		s.probe(history.TwiceRPO, now-cutAt, false)
	case healAt:
		s.end(history.Cut)
		s.begin(history.Heal)
		for _, r := range []string{"ap-south", "eu-west", "us-east"} {
			s.note(history.Event{Region: r, Gate: &history.Gate{Act: history.ActHeal, OK: true, Asked: now}})
		}
		s.end(history.Heal)
		s.begin(history.CatchUp)
	}
	s.move(now)
	s.produce(&s.catalog, now, !s.moves || now < fenceAt)
	s.produce(&s.orders, now, true)
	s.produce(&s.us, now, !down)
	s.clock.Set(noon.Add(now + arrives))
	if now == caught {
		s.deliver()
	}
	if now%(2*step) == 0 {
		s.say(now, down)
	}
}

// produce publishes one record and has it read where it is.
func (s *story) produce(f *feedOf, now time.Duration, taken bool) {
	if now+step >= healAt {
		return // nothing is published after the heal
	}
	f.n++
	told := &history.Told{Producer: f.name, Asked: f.asked, Topic: f.topic, Residency: f.residency, Size: 256, Outcome: history.NotStored, Code: api.HomeUnreachable,
		Rows: []history.Row{{Number: f.n, Begin: now, End: now + arrives}}}
	if taken {
		f.seq += 2 // two producers share the log of orders
		told.Outcome, told.Code, told.Log, told.Region, told.Epoch, told.Durable = history.Acked, "", f.log, f.home, "1.1", "disk-1"
		if f == &s.late {
			told.Epoch = "1.2"
		}
		told.Rows[0].Sequence = f.seq
	}
	s.clock.Set(noon.Add(now + arrives))
	s.note(history.Event{Region: f.asked, Told: told})
	if taken {
		run := history.Run{Producer: f.name, Residency: f.residency, Log: f.log, Epoch: told.Epoch, From: f.n, To: f.n, First: f.seq, Last: f.seq}
		s.read(f.home, f.topic, run)
		if f.residency == history.Global {
			s.copies(f, run, now)
		}
	}
}

// copies has a global record read in the other regions, now or after the heal.
func (s *story) copies(f *feedOf, run history.Run, now time.Duration) {
	for _, region := range []string{"ap-south", "us-east", "eu-west"} {
		if region == f.home {
			continue
		}
		if now < cutAt || region != "eu-west" && f.home != "eu-west" {
			s.read(region, f.topic, run)
			s.marks[f.log+region] = now
		} else {
			s.owed[f.log+region]++
			if f != &s.catalog || !s.moves {
				f.pending = append(f.pending, run)
			}
		}
	}
}

func (s *story) read(region, topic string, run history.Run) {
	s.note(history.Event{Region: region, Heard: &history.Heard{Reader: region + "/" + topic, Topic: topic, Runs: []history.Run{run}}})
}

// deliver is the catch-up after the heal.
func (s *story) deliver() {
	for _, f := range []*feedOf{&s.catalog, &s.late} {
		for _, run := range f.pending {
			for _, region := range []string{"ap-south", "us-east", "eu-west"} {
				if region != f.home {
					s.read(region, f.topic, run)
				}
			}
		}
	}
	s.owed = map[string]uint64{}
}

// say is what regions say of themselves.
func (s *story) say(now time.Duration, down bool) {
	for _, l := range plan(false).Topics {
		for _, log := range l.Logs {
			if s.moves && now >= movedAt && l.Name == s.catalog.topic {
				log.Home, log.Copies = "us-east", []string{"ap-south", "eu-west"}
			}
			for _, target := range log.Copies {
				parted := (log.Home == "eu-west") != (target == "eu-west")
				mark := max(cutAt-400*time.Millisecond, s.marks[log.Log+target])
				lag, state := 0.3, "CAUGHT_UP"
				if down && parted {
					lag, state = (now - mark).Seconds(), "LINK_DOWN"
				}
				waits := s.owed[log.Log+target]
				s.note(history.Event{Region: target, Gauge: &history.Gauge{Log: log.Log, Home: log.Home, Target: target, State: state, Asked: now, Staleness: &lag, Trusted: true}})
				s.note(history.Event{Region: log.Home, Gauge: &history.Gauge{Log: log.Log, Home: log.Home, Target: target, State: state, Asked: now, Records: &waits}})
			}
		}
	}
	for _, pair := range [][2]string{{"eu-west", "us-east"}, {"us-east", "eu-west"}, {"eu-west", "ap-south"}, {"ap-south", "eu-west"}} {
		state := "up"
		if down && now > cutAt+3*time.Second {
			state = "down"
		}
		s.note(history.Event{Region: pair[0], Link: &history.Link{Peer: pair[1], State: state}})
	}
}

// probe is what the failover engine answers at a moment.
func (s *story) probe(moment string, since time.Duration, allowed bool) {
	span := since.Seconds() + 0.4
	p := &history.Probe{Topic: "catalog.updates", Log: "catalog.updates@home", Home: "eu-west", Target: "us-east", Kind: "forced", Moment: moment, Since: since, Allowed: allowed, Span: &span, Revision: "12-ab"}
	if !allowed {
		p.Why, p.Rule, p.Code, p.Text = history.WhyLag, "S6", api.PlacementRefused, "more may be lost than the topic's rpo of 5s"
	}
	s.note(history.Event{Region: "us-east", Probe: p})
	for _, target := range []string{"ap-south", "us-east"} {
		s.note(history.Event{Region: target, Probe: &history.Probe{Topic: "orders", Log: "orders@eu-west", Home: "eu-west", Target: target, Kind: "forced", Moment: moment, Since: since,
			Why: history.WhyResides, Rule: "S2", Code: api.HomeOutsideBoundary, Text: "the log's records may not all rest there; it stays where it is"}})
	}
}

// move is the forced move of the catalogue, step by step, and its loss.
func (s *story) move(now time.Duration) {
	if !s.moves {
		return
	}
	m := history.Move{Topic: "catalog.updates", Log: "catalog.updates@home", Kind: "forced", Home: "eu-west", To: "us-east", Epoch: "1.1", Plan: "pl-7", Proof: "lapsed"}
	at := func(step string, epoch string, cut *uint64) {
		m.Step, m.Epoch, m.Cut = step, epoch, cut
		s.note(history.Event{Region: "us-east", Move: &m})
	}
	cut := uint64(2 * cutAt / step)
	switch now {
	case moveAt:
		at(history.MoveAsked, "1.1", nil)
	case moveAt + step:
		at(history.MoveDecided, "1.1", nil)
	case fenceAt:
		at(history.MoveFenced, "1.1", nil)
		at(history.MoveCut, "1.1", &cut)
	case movedAt:
		at(history.MoveOpen, "1.2", nil)
		s.late.seq, s.owed = cut, map[string]uint64{}
	}
	if now > movedAt {
		s.produce(&s.late, now, true)
	}
}

// after is what is noted at the end.
func (s *story) after() {
	for _, l := range plan(false).Topics {
		for _, log := range l.Logs {
			for _, region := range append([]string{log.Home}, log.Copies...) {
				s.note(history.Event{Region: region, Reconcile: &history.Reconcile{Log: log.Log, Home: log.Home, Head: 240, Cursor: 240, Mirrored: 240, Digest: "d1"}})
			}
		}
	}
	s.note(history.Event{Region: "us-east", Scan: &history.Scan{Where: "us-east's data folder", Files: 41, Bytes: 9 << 20, Sown: 340}})
	s.note(history.Event{Region: "eu-west", Scan: &history.Scan{Where: "eu-west's data folder", Files: 40, Bytes: 11 << 20, Sown: 340, Hits: 340, Home: true}})
	if s.moves {
		cut := uint64(2 * cutAt / step)
		bytes, most := uint64((fenceAt-cutAt)/step)*256, uint64(200)
		s.note(history.Event{Region: "eu-west", Loss: &history.Loss{Log: "catalog.updates@home", By: "eu-west", Version: 2, Epoch: "1.1", Cut: cut, AtMost: &most, Missing: []history.Range{{From: cut + 1, To: cut + 60}}, Bytes: &bytes, Signed: true}})
	}
}
