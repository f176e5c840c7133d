package report

import (
	"cmp"
	"math"
	"slices"
	"time"

	"domicile/chaos/drill/history"
)

// maxPoints bounds the points that a report keeps of one curve.
const maxPoints = 240

// gauge is one figure and when it was said.
type gauge struct {
	at time.Duration
	*history.Gauge
}

// flow is one log towards one target.
type flow struct{ log, home, target string }

// lags lays every figure beside what the oracle knows. The target's own word is judged:
// it is the one that consumers and the failover engine go by.
func (s *scene) lags() []Lag {
	said := map[flow][]gauge{}
	for i := range s.history.Events {
		e := &s.history.Events[i]
		if g := e.Gauge; g != nil && e.Region == g.Target {
			f := flow{g.Log, g.Home, g.Target}
			said[f] = append(said[f], gauge{e.At, g})
		}
	}
	var out []Lag
	for f, list := range said {
		out = append(out, s.lag(f, list))
	}
	slices.SortFunc(out, func(a, b Lag) int {
		return cmp.Or(cmp.Compare(a.Log, b.Log), cmp.Compare(a.Home, b.Home), cmp.Compare(a.Target, b.Target))
	})
	return out
}

func (s *scene) lag(f flow, said []gauge) Lag {
	l := Lag{Log: f.log, Home: f.home, Target: f.target, Parted: s.parted(f.home, f.target), Points: thin(said)}
	if s.cut == nil || !l.Parted || !s.marksCut(f) {
		return l
	}
	truth := s.truth(f)
	l.Busy = truth.busy
	var offs []float64
	var line []gauge
	for _, g := range said {
		// A region may take until a mark is missing to know that it is cut off; its figure
		// grows all the same, so every answer of the cut is judged.
		if g.Asked < s.cut.Surely || g.at > s.cut.Until {
			continue
		}
		l.Samples++
		if g.Staleness == nil {
			l.Unknown++
			continue
		}
		value := *g.Staleness
		l.Most = &value
		line = append(line, g)
		low, high := truth.at(g)
		if low > high {
			continue // the oracle contradicts itself: its readers were late
		}
		l.Judged++
		l.Under, l.Over = max(l.Under, low-value), max(l.Over, value-high)
		if high-low > s.limit(truth.busy).Seconds() {
			l.Late++ // its answer took so long that nobody can say
			continue
		}
		l.Blur = max(l.Blur, high-low)
		off := max(value-low, high-value)
		offs = append(offs, off)
	}
	if len(offs) > 0 {
		slices.Sort(offs)
		l.Off, l.Typical = offs[len(offs)-1], offs[len(offs)/2]
	}
	l.Slope = slope(line)
	return l
}

// limit is how far a lag may be off by the plan.
func (s *scene) limit(busy bool) time.Duration {
	if busy {
		return s.plan.Bounds.Busy
	}
	return s.plan.Bounds.Idle
}

// marksCut reports whether the plan cuts what marks of a log travel on.
func (s *scene) marksCut(f flow) bool {
	if len(s.plan.Planes) > 0 && !slices.Contains(s.plan.Planes, "control") {
		return false
	}
	switch s.plan.Direction {
	case "in":
		return f.target == s.plan.Isolate
	case "out":
		return f.home == s.plan.Isolate
	}
	return true
}

// truth is what the oracle knows of a copy while it is cut off: it is complete up to a
// moment between old and young.
type truth struct {
	old, young time.Duration
	busy       bool
}

// lively is how shortly before the cut a log took a record if it counts as busy.
const lively = 2 * time.Second

// truth takes the moment from two things. No mark can have come after the cut surely held,
// and those of before came once a beat. And the first record that has to be at the target
// and was not read there when the cut ended was stored no later than its ack, so the copy
// ends before that; the last that was read there was stored no earlier than it was handed in.
func (s *scene) truth(f flow) truth {
	t := truth{old: s.cut.From - s.plan.Bounds.Beat, young: s.cut.Surely}
	for _, of := range s.records {
		for _, r := range of {
			a := r.first()
			if a == nil || a.told.Log != f.log || a.told.Region != f.home || !slices.Contains(s.plan.Rests(f.log, a.told.Residency), f.target) {
				continue
			}
			t.busy = t.busy || a.row.End >= s.cut.From-lively && r.begin <= s.cut.From
			if at, ok := r.heardIn(f.target); ok && at <= s.cut.Until {
				t.old = max(t.old, r.begin)
			} else {
				t.young = min(t.young, a.row.End)
			}
		}
	}
	return t
}

// at is the staleness when a figure was said, in seconds: at least and at most.
func (t *truth) at(g gauge) (low, high float64) {
	return (g.Asked - t.young).Seconds(), (g.at - t.old).Seconds()
}

// slope is that of the least squares line; nil through too few points to say.
func slope(line []gauge) *float64 {
	const fewest = 5
	if len(line) < fewest || line[len(line)-1].at-line[0].at < 2*time.Second {
		return nil
	}
	var x, y, xx, xy float64
	n := float64(len(line))
	for _, g := range line {
		a, b := ((g.Asked+g.at)/2 - line[0].at).Seconds(), *g.Staleness
		x, y, xx, xy = x+a, y+b, xx+a*a, xy+a*b
	}
	v := (n*xy - x*y) / (n*xx - x*x)
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return nil
	}
	return &v
}

// thin keeps so many points of a curve that it can be drawn: of each stretch the highest
// figure, and any that is unknown before it.
func thin(said []gauge) []Point {
	per := (len(said) + maxPoints - 1) / maxPoints
	var out []Point
	for part := range slices.Chunk(said, max(per, 1)) {
		pick := part[0]
		for _, g := range part[1:] {
			if g.Staleness == nil || pick.Staleness != nil && *g.Staleness > *pick.Staleness {
				pick = g
			}
		}
		out = append(out, Point{(pick.Asked + pick.at) / 2, pick.Staleness, pick.State})
	}
	return out
}

// sight is when each side saw the cut.
func (s *scene) sight() []Sight {
	if s.cut == nil {
		return nil
	}
	seen := map[place]*Sight{}
	down := map[place]bool{}
	for i := range s.history.Events {
		e := &s.history.Events[i]
		if e.Link == nil || !s.parted(e.Region, e.Link.Peer) {
			continue
		}
		p := place{e.Link.Peer, e.Region}
		if seen[p] == nil {
			seen[p] = &Sight{Region: e.Region, Peer: e.Link.Peer}
		}
		if e.At < s.cut.From || e.At > s.cut.Until {
			continue
		}
		up := e.Link.State == "up"
		if !up && seen[p].Within == nil {
			within := e.At - s.cut.From
			seen[p].Within = &within
		}
		if up && down[p] {
			seen[p].Flaps++
		}
		down[p] = !up
	}
	var out []Sight
	for _, v := range seen {
		out = append(out, *v)
	}
	slices.SortFunc(out, func(a, b Sight) int { return cmp.Or(cmp.Compare(a.Region, b.Region), cmp.Compare(a.Peer, b.Peer)) })
	return out
}

// behind is what each target lacked when the cut ended.
func (s *scene) behind() []Behind {
	if s.cut == nil {
		return nil
	}
	var out []Behind
	for _, t := range s.plan.Topics {
		for _, log := range t.Logs {
			for _, target := range log.Copies {
				if s.parted(log.Home, target) {
					out = append(out, s.lacks(log.Log, log.Home, target))
				}
			}
		}
	}
	return out
}

func (s *scene) lacks(log, home, target string) Behind {
	b := Behind{Log: log, Home: home, Target: target}
	var list []*record
	for _, of := range s.records {
		for _, r := range of {
			a := r.first()
			if a == nil || a.told.Log != log || a.told.Region != home || a.row.End > s.cut.Until || !slices.Contains(s.plan.Rests(log, a.told.Residency), target) {
				continue
			}
			if at, ok := r.heardIn(target); !ok || at > s.cut.Until {
				list = append(list, r)
			}
		}
	}
	b.Records, b.Bytes, b.Oldest, b.IDs = sum(list, s.cut.Until)
	for i := range s.history.Events {
		e := &s.history.Events[i]
		if g := e.Gauge; g != nil && e.Region == home && g.Log == log && g.Target == target && g.Records != nil && e.At <= s.cut.Until {
			b.Said = g.Records
		}
	}
	return b
}

// sum counts records, and says which they are and how old the oldest is at a time.
func sum(list []*record, now time.Duration) (n, bytes uint64, oldest *time.Duration, ids []IDs) {
	slices.SortFunc(list, func(a, b *record) int {
		return cmp.Or(cmp.Compare(a.producer.Producer, b.producer.Producer), cmp.Compare(a.number, b.number))
	})
	for _, r := range list {
		n, bytes = n+1, bytes+uint64(r.producer.Size)
		if age := now - r.begin; oldest == nil || age > *oldest {
			oldest = &age
		}
		if k := len(ids); k > 0 && ids[k-1].Producer == r.producer.Producer && ids[k-1].To+1 == r.number {
			ids[k-1].To = r.number
			continue
		}
		ids = append(ids, IDs{r.producer.Producer, r.number, r.number})
	}
	return n, bytes, oldest, ids
}
