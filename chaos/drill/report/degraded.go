package report

import (
	"fmt"
	"slices"
	"strings"

	"domicile/api"
	"domicile/chaos/drill/history"
)

// declared is where such records rest, and what their topic says in advance.
func (s *scene) declared(topic, residency, asked string) *Degraded {
	d := &Degraded{Topic: topic, Residency: residency, Asked: asked}
	t := s.topicOf(topic)
	if t == nil {
		return d
	}
	var homes []string
	for _, l := range t.Logs {
		if s.plan.MayRest(residency, l.Home) {
			homes = append(homes, l.Home)
		}
	}
	if slices.Contains(homes, asked) {
		homes = []string{asked}
	}
	d.Home = strings.Join(homes, ", ")
	d.several = len(homes) > 1 && t.Route != "within_boundary"
	d.Parted = len(homes) > 0 && !slices.ContainsFunc(homes, func(h string) bool { return h == asked || !s.parted(h, asked) })
	d.Declared = "goes on: its home is within reach"
	if d.Parted {
		d.Declared = "refused until " + d.Home + " is back"
		if t.Text != "" {
			d.Declared = t.Text
		}
	}
	return d
}

// count takes the record's first answer: what it got while the cut held. A record that was
// answered after the heal got nothing meanwhile, and counts for neither.
func (s *scene) count(d *Degraded, codes map[string]uint64, r *record) {
	switch first := r.first(); {
	case first != nil && first.row.Begin == r.begin && first.row.End > s.cut.Until:
	case first != nil && first.row.Begin == r.begin:
		d.Acked++
	case r.unknown:
		d.Unknown++
		codes[string(api.OutcomeUnknown)]++
	default:
		d.Refused++
		codes[string(r.producer.Code)]++
	}
}

// judgeDegraded: what was cut off from its home must not be taken, and must be told so; what
// was not must go on.
func (s *scene) judgeDegraded(d *Degraded) {
	moved := slices.ContainsFunc(s.passages(), func(p *passage) bool { return p.Topic == d.Topic })
	switch total := d.Acked + d.Refused + d.Unknown; {
	case d.several:
		d.OK, d.Text = true, "which of several homes they have is the policy's choice: not judged"
	case moved:
		d.OK, d.Text = true, "its log moved meanwhile, see the moves"
	case d.Parted && d.Acked > 0:
		d.Text = fmt.Sprintf("%d of %d were acknowledged although their home was cut off", d.Acked, total)
	case d.Parted && d.Refused == 0 && s.early() && s.cut.Held() < s.plan.Bounds.See:
		d.OK, d.Text = true, "the cut ended before they could be told"
	case d.Parted && d.Refused == 0:
		d.Text = "nobody was refused: producers were left without an answer"
	case d.Parted && d.Residency != history.Global:
		d.OK, d.Text = true, "refused in time, with a code; stored nowhere else"
	case d.Parted:
		d.OK, d.Text = true, "refused in time, with a code"
	case d.Acked == 0 && total > 0:
		d.Text = "nothing was taken although the home was within reach"
	default:
		d.OK, d.Text = d.Refused == 0, fmt.Sprintf("%d of %d acknowledged", d.Acked, total)
	}
}
