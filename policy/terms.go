package policy

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// Limits of what is allowed for a time.
const (
	MaxTerms = 16
	MaxTerm  = 90 * 24 * time.Hour
)

// Terms are what a policy allows for a time only, as data beside its rules: exceptions,
// and mechanisms by which records may be transferred. Rules read each as true while it
// lasts and as false before and after.
type Terms struct {
	Exceptions map[string]Term `yaml:"exceptions"`
	Mechanisms map[string]Term `yaml:"mechanisms"`
}

// Term is one of them, and who answers for it.
type Term struct {
	Owner     string    `yaml:"owner"`
	Approvers []string  `yaml:"approvers"` // at least two people
	Reason    string    `yaml:"reason"`    // why, or the document it rests on
	From      time.Time `yaml:"from"`
	Until     time.Time `yaml:"until"` // not included
}

// named is a term with its kind and name.
type named struct {
	kind, name string
	Term
}

// list is all terms by kind and name.
func (t Terms) list() []named {
	var out []named
	for _, name := range slices.Sorted(maps.Keys(t.Exceptions)) {
		out = append(out, named{"exceptions", name, t.Exceptions[name]})
	}
	for _, name := range slices.Sorted(maps.Keys(t.Mechanisms)) {
		out = append(out, named{"mechanisms", name, t.Mechanisms[name]})
	}
	return out
}

// Check refuses terms that nobody answers for, that last too long, or that rules cannot
// name: ConfigInvalid.
func (t Terms) Check() error {
	seen := map[string]bool{}
	for _, term := range t.list() {
		name := term.name
		at := term.kind + "." + name
		bad := func(field, hint string) error { return badCatalog(at+field, "", "terms.yaml: "+hint) }
		people := slices.Compact(slices.Sorted(slices.Values(term.Approvers)))
		switch {
		case !plainWord(name) || strings.Contains(name, "-"):
			return bad("", "a name has lower-case letters, digits and '_'")
		case seen[name]:
			return bad("", "the name stands for an exception and a mechanism: it would not be clear which one is revoked")
		case len(seen) == MaxTerms:
			return bad("", fmt.Sprintf("at most %d exceptions and mechanisms", MaxTerms))
		case strings.TrimSpace(term.Owner) == "":
			return bad(".owner", "say who answers for it")
		case len(people) < 2 || len(people) != len(term.Approvers) || slices.Contains(people, ""):
			return bad(".approvers", "two different people approve it")
		case strings.TrimSpace(term.Reason) == "":
			return bad(".reason", "say why, or name the document that it rests on")
		case term.From.Unix() <= 0 || !term.Until.After(term.From):
			return bad(".until", "write both times as 2026-12-01T00:00:00Z, until after from")
		case term.Until.Sub(term.From) > MaxTerm:
			return bad(".until", "at most 90 days after from: it is decided anew by then")
		}
		seen[name] = true
	}
	return nil
}

// Names lists all terms.
func (t Terms) Names() []string {
	var out []string
	for _, term := range t.list() {
		out = append(out, term.name)
	}
	return out
}

// Boundaries are the instants at which something begins or ends, in order, each once.
func (t Terms) Boundaries() []time.Time {
	var out []time.Time
	for _, term := range t.list() {
		out = append(out, term.From.UTC(), term.Until.UTC())
	}
	slices.SortFunc(out, time.Time.Compare)
	return slices.CompactFunc(out, time.Time.Equal)
}

// Step is the number of boundaries up to an instant, that included.
func (t Terms) Step(at time.Time) (n int) {
	for _, b := range t.Boundaries() {
		if !b.After(at) {
			n++
		}
	}
	return n
}

// Lasting lists the terms that last at an instant, in an order of its own: all that time
// and revocations can change of what rules read.
func (t Terms) Lasting(at time.Time, revoked []string) (names []string) {
	for kind, facts := range t.Facts(at, revoked) {
		for name, lasts := range facts {
			if lasts {
				names = append(names, kind+"."+name)
			}
		}
	}
	slices.Sort(names)
	return names
}

// Facts are what rules read of the terms at an instant: kind → name → whether it lasts.
// revoked ones do not. A zero instant is before all.
func (t Terms) Facts(at time.Time, revoked []string) map[string]map[string]bool {
	out := map[string]map[string]bool{"exceptions": {}, "mechanisms": {}}
	for _, term := range t.list() {
		out[term.kind][term.name] = !at.Before(term.From) && at.Before(term.Until) && !slices.Contains(revoked, term.name)
	}
	return out
}
