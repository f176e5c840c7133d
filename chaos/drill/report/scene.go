package report

import (
	"slices"
	"strings"
	"time"

	"domicile/chaos/drill/history"
)

// scene is a history in the order in which judges ask of it.
type scene struct {
	history *history.History
	plan    *history.Plan
	cut     *Cut
	end     time.Duration
	records map[string]map[uint64]*record // by producer and number
	readers map[place]bool                // somebody reads a topic in a region
	readTo  map[place]uint64              // the last sequence of a log that a reader in a region had
}

// record is one record of the drill, and all that its producer was told of it.
type record struct {
	producer *history.Told // what it shares with its like
	number   uint64
	begin    time.Duration // first handed in
	acks     []ack
	refused  bool // at least one answer says so
	unknown  bool
	heard    []heardAt
}

// ack is one acknowledgement.
type ack struct {
	told *history.Told
	row  history.Row
}

type heardAt struct {
	region string
	at     time.Duration // no later than
}

// place is a log, a topic or a node in a region.
type place struct{ of, region string }

func newScene(h *history.History) *scene {
	s := &scene{history: h, plan: h.Plan(), records: map[string]map[uint64]*record{}, readers: map[place]bool{}, readTo: map[place]uint64{}}
	if s.plan == nil {
		s.plan = &history.Plan{}
	}
	s.end = h.Events[len(h.Events)-1].At
	s.cut = cutOf(h)
	for i := range h.Events {
		if t := h.Events[i].Told; t != nil {
			s.told(t)
		}
	}
	for i := range h.Events {
		if e := &h.Events[i]; e.Heard != nil {
			s.hears(e)
		}
	}
	return s
}

func (s *scene) told(t *history.Told) {
	of := s.records[t.Producer]
	if of == nil {
		of = map[uint64]*record{}
		s.records[t.Producer] = of
	}
	for _, row := range t.Rows {
		r := of[row.Number]
		if r == nil {
			r = &record{producer: t, number: row.Number, begin: row.Begin}
			of[row.Number] = r
		}
		r.begin = min(r.begin, row.Begin)
		switch t.Outcome {
		case history.Acked:
			r.acks = append(r.acks, ack{t, row})
		case history.NotStored:
			r.refused = true
		default:
			r.unknown = true
		}
	}
}

func (s *scene) hears(e *history.Event) {
	s.readers[place{e.Heard.Topic, e.Region}] = true
	for _, run := range e.Heard.Runs {
		p := place{run.Log, e.Region}
		s.readTo[p] = max(s.readTo[p], run.Last)
		of := s.records[run.Producer]
		for n := run.From; n <= run.To && n-run.From < maxRun; n++ {
			if r := of[n]; r != nil {
				r.heard = append(r.heard, heardAt{e.Region, e.At})
			}
		}
	}
}

// maxRun bounds what one line of a history can make a reader of it do.
const maxRun = 1 << 22

// heardIn is by when readers of a region had the record.
func (r *record) heardIn(region string) (time.Duration, bool) {
	for _, h := range r.heard {
		if h.region == region {
			return h.at, true
		}
	}
	return 0, false
}

// first is the first acknowledgement, nil without one.
func (r *record) first() *ack {
	if len(r.acks) == 0 {
		return nil
	}
	return &r.acks[0]
}

// parted reports whether the planned cut lies between two regions.
func (s *scene) parted(a, b string) bool {
	one := func(x, y string) bool { return x == s.plan.Isolate && slices.Contains(s.plan.Peers, y) }
	return one(a, b) || one(b, a)
}

// topicOf is a topic's declaration, nil when the plan does not have it.
func (s *scene) topicOf(name string) *history.Topic {
	i := slices.IndexFunc(s.plan.Topics, func(t history.Topic) bool { return t.Name == name })
	if i < 0 {
		return nil
	}
	return &s.plan.Topics[i]
}

// gates collects when nodes were asked to do something, and had said yes.
type gates struct {
	from, by time.Duration
	any      bool
}

func (g *gates) take(e *history.Event) {
	asked := e.Gate.Asked
	if asked == 0 {
		asked = e.At
	}
	if !g.any {
		g.from = asked
	}
	g.any = true
	g.from, g.by = min(g.from, asked), max(g.by, e.At)
}

// cutOf finds when the fault held, nil when it never did.
func cutOf(h *history.History) *Cut {
	var arm, cut, heal gates
	held := map[place]time.Duration{} // node of a region → it said so of a moment no earlier than this
	c := &Cut{}
	last := h.Events[len(h.Events)-1].At
	c.Until = last
	for i := range h.Events {
		e := &h.Events[i]
		if e.Gate == nil || !e.Gate.OK && e.Gate.Act != history.ActLapsed {
			continue
		}
		at := place{e.Gate.Node, e.Region}
		switch e.Gate.Act {
		case history.ActArm:
			arm.take(e)
		case history.ActCut:
			cut.take(e)
			held[at] = e.At
		case history.ActRenew:
			held[at] = max(e.Gate.Asked, held[at])
		case history.ActHeal:
			heal.take(e)
		case history.ActLapsed, history.ActEnded: // at some moment since it last said that it holds
			if e.Gate.Act == history.ActLapsed && !c.Lapsed {
				c.Lapsed, c.Why = true, strings.TrimSuffix(e.Region+": "+e.Gate.Text, ": ")
			}
			c.Until = min(c.Until, held[at])
		}
	}
	if !cut.any {
		cut = arm
	}
	if !cut.any {
		return nil
	}
	c.From, c.Surely, c.Gone = cut.from, cut.by, last
	if heal.any {
		c.Until, c.Gone = min(c.Until, heal.from), heal.by
	}
	c.Until = max(c.Until, c.Surely)
	c.Gone = max(c.Gone, c.Until)
	return c
}
