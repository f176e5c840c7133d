package review

import (
	"cmp"
	"slices"
	"strings"

	"domicile/policy"
)

// Box is a set of questions that is a full product: each combination of its words is
// one of them, and nothing else is. Of transit, where a record is published and where it
// passes through are one region, which stands in Targets.
type Box struct {
	Point   string   `json:"point"`
	Topic   string   `json:"topic"`
	Tags    []string `json:"tags"` // each one whole combination
	Classes []string `json:"classes,omitempty"`
	Places  []string `json:"places,omitempty"`
	Origins []string `json:"origins,omitempty"`
	Targets []string `json:"targets,omitempty"`
	Cells   int      `json:"cells"`
}

// boxes gathers questions into as few boxes as one pass over each side gives.
func boxes(questions []policy.Question) []Box {
	out := make([]Box, 0, len(questions))
	for _, q := range questions {
		b := Box{Point: q.Point.String(), Topic: q.Topic, Tags: []string{tagsOf(q)}, Classes: []string{q.Class}, Places: []string{q.Place},
			Origins: []string{q.Origin}, Targets: []string{q.Target}, Cells: 1}
		if q.Point == policy.Transit {
			b.Origins = []string{policy.None}
		}
		out = append(out, b)
	}
	for _, side := range []func(*Box) *[]string{
		func(b *Box) *[]string { return &b.Places }, func(b *Box) *[]string { return &b.Classes },
		func(b *Box) *[]string { return &b.Targets }, func(b *Box) *[]string { return &b.Origins },
		func(b *Box) *[]string { return &b.Tags },
	} {
		out = merge(out, side)
	}
	slices.SortFunc(out, func(a, b Box) int { return cmp.Compare(a.key(), b.key()) })
	for i := range out {
		out[i].drop()
	}
	return out
}

// merge joins boxes that differ on one side only.
func merge(in []Box, side func(*Box) *[]string) []Box {
	at := map[string]int{}
	var out []Box
	for _, b := range in {
		rest := b
		*side(&rest) = nil
		i, ok := at[rest.key()]
		if !ok {
			at[rest.key()] = len(out)
			out = append(out, b)
			continue
		}
		*side(&out[i]) = append(slices.Clone(*side(&out[i])), *side(&b)...)
		out[i].Cells += b.Cells
	}
	for i := range out {
		slices.Sort(*side(&out[i]))
	}
	return out
}

func (b *Box) key() string {
	return strings.Join([]string{b.Topic, b.Point, strings.Join(b.Tags, "|"), strings.Join(b.Classes, "|"), strings.Join(b.Places, "|"),
		strings.Join(b.Origins, "|"), strings.Join(b.Targets, "|")}, "\x00")
}

// drop leaves out the sides that the point does not ask about.
func (b *Box) drop() {
	none := []string{policy.None}
	for _, side := range []*[]string{&b.Classes, &b.Origins, &b.Targets} {
		if slices.Equal(*side, none) {
			*side = nil
		}
	}
	if b.Classes == nil {
		b.Places = nil
	}
}

// text is the box for people; a side that takes every word of the table is not spelt out.
func (b *Box) text(w *words) string {
	var parts []string
	put := func(name string, side, all []string) {
		if len(side) == 0 {
			return
		}
		text := strings.Join(side, "|")
		if len(side) > 1 && len(side) == len(all) {
			text = "any"
		}
		parts = append(parts, name+text)
	}
	parts = append(parts, b.Point, b.Topic, strings.Join(b.Tags, " | "))
	put("class=", b.Classes, w.classes)
	put("place=", b.Places, w.places)
	if b.Point == policy.Transit.String() {
		put("through ", b.Targets, w.regions)
		return strings.Join(parts, "  ")
	}
	put("from ", b.Origins, w.regions)
	put("to ", b.Targets, w.regions)
	return strings.Join(parts, "  ")
}
