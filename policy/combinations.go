package policy

import (
	"slices"

	"domicile/api"
)

// Combinations lists the tag combinations a topic allows, each as api.TagString,
// sorted; nil for a topic the catalog does not have.
func (g *Generation) Combinations(topic string) []string {
	var out []string
	for _, c := range g.words.combos {
		if c.topic != topic {
			continue
		}
		out = append(out, c.text())
	}
	slices.Sort(out)
	return out
}

// text is the combination as api.TagString writes it, without what does not apply.
func (c *combo) text() string {
	return api.TagString(slices.DeleteFunc(slices.Clone(c.tags), func(t api.Tag) bool { return t.Value == None }))
}
