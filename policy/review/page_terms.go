package review

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"domicile/policy"
)

// endsSoon is how long before its end the page marks an exception or a mechanism.
const endsSoon = 30 * 24 * time.Hour

// pageTerm is an exception or a transfer mechanism, and whether it lasts.
type pageTerm struct {
	Kind, Name, Owner, Approvers, Reason, From, Until string
	State                                             string
	Mark                                              string // yes, part or no
}

// terms lists what is allowed for a time only, what ends first in front.
func (p *Page) terms() (out []pageTerm) {
	all := map[string]policy.Term{}
	kind := map[string]string{}
	for _, of := range []struct {
		kind  string
		terms map[string]policy.Term
	}{{"exception", p.Terms.Exceptions}, {"mechanism", p.Terms.Mechanisms}} {
		for name, term := range of.terms {
			all[name], kind[name] = term, of.kind
		}
	}
	names := slices.SortedFunc(maps.Keys(all), func(a, b string) int {
		return cmp.Or(all[a].Until.Compare(all[b].Until), cmp.Compare(a, b))
	})
	for _, name := range names {
		term := all[name]
		t := pageTerm{Kind: kind[name], Name: name, Owner: term.Owner, Approvers: strings.Join(term.Approvers, ", "), Reason: term.Reason,
			From: instant(term.From), Until: instant(term.Until)}
		t.State, t.Mark = p.state(term)
		out = append(out, t)
	}
	return out
}

func (p *Page) state(t policy.Term) (text, mark string) {
	switch {
	case !p.Now.Before(t.Until):
		return "is over", "no"
	case p.Now.Before(t.From):
		return "has not begun", "part"
	case t.Until.Sub(p.Now) <= endsSoon:
		return "ends soon", "part"
	}
	return "lasts", "yes"
}

func instant(t time.Time) string { return t.UTC().Format("2006-01-02 15:04") + " UTC" }
