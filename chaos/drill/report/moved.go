package report

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"domicile/chaos/drill/history"
)

// passage is one move under way: its steps as they were noted.
type passage struct {
	*Move
	asked, decided, fenced, open *time.Duration
	old, new                     string // epochs
	cut                          *uint64
	begun                        time.Duration
}

// passages gathers the steps of each move that was asked for.
func (s *scene) passages() []*passage {
	var out []*passage
	for i := range s.history.Events {
		e := &s.history.Events[i]
		m := e.Move
		if m == nil {
			continue
		}
		at := e.At
		if m.Step == history.MoveAsked {
			p := &passage{Move: &Move{Topic: m.Topic, Log: m.Log, Kind: m.Kind, Back: m.Back, From: m.Home, To: m.To}, asked: &at, old: m.Epoch, begun: at}
			if t := s.topicOf(m.Topic); t != nil {
				p.Limit, p.Bound = t.RTO, t.RPO
			}
			out = append(out, p)
			continue
		}
		k := len(out) - 1
		for ; k >= 0 && (out[k].Log != m.Log || out[k].Back != m.Back); k-- {
		}
		if k >= 0 {
			out[k].step(m, at)
		}
	}
	return out
}

func (p *passage) step(m *history.Move, at time.Duration) {
	if m.Cut != nil {
		p.cut = m.Cut
	}
	if m.Text != "" {
		p.Text = m.Text
	}
	first := func(t **time.Duration) {
		if *t == nil {
			*t = &at
		}
	}
	if len(m.Approved) > 0 {
		p.People = m.Approved
	}
	switch m.Step {
	case history.MoveDecided:
		first(&p.decided)
	case history.MoveFenced:
		first(&p.fenced)
	case history.MoveOpen:
		first(&p.open)
		p.new = m.Epoch
	}
}

// moves measures each move: its times, and what it left behind.
func (s *scene) moves() []Move {
	var out []Move
	for _, p := range s.passages() {
		s.time(p)
		s.left(p)
		out = append(out, *p.Move)
	}
	return out
}

func since(a, b *time.Duration) *time.Duration {
	if a == nil || b == nil {
		return nil
	}
	d := *b - *a
	return &d
}

// time splits the time that a move took.
func (s *scene) time(p *passage) {
	if !p.Back && s.cut != nil {
		for _, seen := range s.sight() {
			if seen.Within != nil && (p.Detect == nil || *seen.Within < *p.Detect) {
				p.Detect = seen.Within
			}
		}
	}
	p.Decide, p.Fence, p.Open = since(p.asked, p.decided), since(p.decided, p.fenced), since(p.fenced, p.open)
	var last, first *time.Duration
	for _, of := range s.records {
		for _, r := range of {
			for _, a := range r.acks {
				if a.told.Log != p.Log || a.row.Repeat {
					continue
				}
				end := a.row.End
				if a.told.Epoch == p.old && (last == nil || end > *last) {
					last = &end
				}
				if p.new != "" && a.told.Epoch == p.new && (first == nil || end < *first) {
					first = &end
				}
			}
		}
	}
	p.First, p.RTO = since(p.open, first), since(last, first)
	if p.RTO != nil && *p.RTO < 0 { // the old home went on: the two epochs overlap
		p.RTO = since(p.asked, first)
	}
}

// left counts what was acknowledged in the old epoch and lies beyond its end, and holds the
// regions' reports against it.
func (s *scene) left(p *passage) {
	if p.cut == nil {
		return
	}
	p.Known = true
	var list []*record
	sequences := map[uint64]bool{}
	now := p.begun
	if p.fenced != nil {
		now = *p.fenced
	}
	for _, of := range s.records {
		for _, r := range of {
			for _, a := range r.acks {
				if a.told.Log == p.Log && a.told.Epoch == p.old && a.row.Sequence > *p.cut {
					list = append(list, r)
					sequences[a.row.Sequence] = true
					break
				}
			}
		}
	}
	p.Lost, p.Bytes, p.Oldest, p.IDs = sum(list, now)
	for i := range s.history.Events {
		if l := s.history.Events[i].Loss; l != nil && l.Log == p.Log && l.Epoch == p.old {
			p.Reports = append(p.Reports, compare(l, sequences, *p.cut))
		}
	}
}

// compare holds a region's report against the sequences that the oracle lost. Other
// people's records may be in it too: what the oracle lost has to be in it, and what it
// says that it knows of the cut has to be the cut.
func compare(l *history.Loss, lost map[uint64]bool, cut uint64) LossReport {
	r := LossReport{Version: l.Version, By: l.By, Signed: l.Signed}
	named, covered, missed := 0, 0, 0
	for seq := range lost {
		switch {
		case within(l.Missing, seq):
			named++
		case within(l.Unknown, seq):
			covered++
		default:
			missed++
		}
	}
	r.Agrees = missed == 0 && l.Cut == cut && (l.Version < 2 || covered == 0)
	r.Text = fmt.Sprintf("of %d lost records of the drill it names %d, calls %d unknown and leaves out %d", len(lost), named, covered, missed)
	if l.Cut != cut {
		r.Text += fmt.Sprintf("; it says that the old epoch ends at %d, the authority says %d", l.Cut, cut)
	}
	return r
}

func within(ranges []history.Range, seq uint64) bool {
	return slices.ContainsFunc(ranges, func(r history.Range) bool { return r.From <= seq && seq <= r.To })
}

// void reports whether an ack was made void by a move that the drill carried out.
func (s *scene) void(passages []*passage, a *ack) bool {
	return slices.ContainsFunc(passages, func(p *passage) bool {
		return p.cut != nil && a.told.Log == p.Log && a.told.Epoch == p.old && a.row.Sequence > *p.cut
	})
}

// degraded is what producers got while the cut held, against what was declared.
func (s *scene) degraded() []Degraded {
	if s.cut == nil {
		return nil
	}
	type kind struct{ topic, residency, asked string }
	rows := map[kind]*Degraded{}
	codes := map[kind]map[string]uint64{}
	for _, of := range s.records {
		for _, r := range of {
			if r.begin < s.cut.Surely || r.begin > s.cut.Until {
				continue
			}
			k := kind{r.producer.Topic, r.producer.Residency, r.producer.Asked}
			if rows[k] == nil {
				rows[k], codes[k] = s.declared(k.topic, k.residency, k.asked), map[string]uint64{}
			}
			s.count(rows[k], codes[k], r)
		}
	}
	var out []Degraded
	for k, d := range rows {
		for name, n := range codes[k] {
			d.Codes = append(d.Codes, Count{name, n})
		}
		slices.SortFunc(d.Codes, func(a, b Count) int { return cmp.Or(cmp.Compare(b.N, a.N), cmp.Compare(a.Name, b.Name)) })
		s.judgeDegraded(d)
		out = append(out, *d)
	}
	slices.SortFunc(out, func(a, b Degraded) int {
		return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Residency, b.Residency), cmp.Compare(a.Asked, b.Asked))
	})
	return out
}
