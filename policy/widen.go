package policy

import "slices"

// Widens lists, of a generation that is to come after another, the questions that it
// answers with more: an allow that was none, a region more in which a record may rest. It
// looks at every question of the domain. A question that the older one does not know was
// refused by it.
func Widens(old, next *Generation) []Question {
	var out []Question
	for q, d := range next.All() {
		if d.Allow && !covers(old, q, d) {
			out = append(out, q)
		}
	}
	return out
}

func covers(old *Generation, q Question, d *Decision) bool {
	before, err := old.Ask(q)
	return err == nil && before.Allow &&
		!slices.ContainsFunc(d.Regions, func(r string) bool { return !slices.Contains(before.Regions, r) })
}
