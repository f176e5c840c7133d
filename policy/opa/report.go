package opa

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"domicile/policy"
	"domicile/regions"
)

// RuleUse is one rule of the authors and how often it spoke over the whole domain.
type RuleUse struct {
	Package string `json:"package"`
	Set     string `json:"set"` // permit, forbid or require
	Rule    string `json:"rule"`
	File    string `json:"file"`
	Line    int    `json:"line"`
	Text    string `json:"text,omitempty"`
	Cells   int    `json:"cells"` // questions in which it spoke
	Labels
}

// Report is what loading a directory found.
type Report struct {
	Serial   int64         `json:"serial"`
	Digest   string        `json:"digest"`
	Revision string        `json:"revision"`
	Cells    int           `json:"cells"`              // questions judged: the whole domain
	Asked    int           `json:"asked"`              // questions that the rules were asked, at every instant that is scheduled; the others they had answered before, from the same files
	Allowed  int           `json:"allowed"`            // of them answered with an allow
	Tests    int           `json:"tests"`              // authors' tests that passed; a failing one refuses the load
	Cases    int           `json:"cases"`              // of fixtures, all as they want it
	Rows     int           `json:"matrix_rows"`        // of the residency matrix, all as they say; 0: there is none
	Rules    []RuleUse     `json:"rules"`              // by package, set and id
	Findings []Finding     `json:"findings,omitempty"` // do not refuse a load; domicile policy check fails on them
	Took     time.Duration `json:"took_ns"`
	Warnings []string      `json:"warnings,omitempty"`
}

// warn adds what does not refuse the load and still deserves a look.
func (r *Report) warn(c *policy.Catalog, f *regions.Federation) {
	for _, b := range f.Boundaries() {
		if !slices.Contains(c.Dimensions[regions.ResidencyTag], b) {
			r.Warnings = append(r.Warnings, "catalog.yaml: residency leaves out the boundary "+b+": no record can be resident there")
		}
	}
	for _, u := range r.Rules {
		if u.Cells == 0 {
			r.Warnings = append(r.Warnings, fmt.Sprintf("%s:%d: %s %s/%s speaks in no question of the domain: dead rule", u.File, u.Line, u.Set, u.Package, u.Rule))
		}
	}
	if terms := c.Terms.Names(); len(terms) > 0 && c.At.IsZero() {
		r.Warnings = append(r.Warnings, "terms.yaml: judged as if none of "+strings.Join(terms, ", ")+" lasted: they begin in a signed bundle only")
	}
	if r.Tests == 0 {
		r.Warnings = append(r.Warnings, "tests/: the directory has no tests")
	}
	if r.Allowed == 0 {
		r.Warnings = append(r.Warnings, "no question of the domain is answered with an allow: every record is refused")
	}
}

func sortUses(uses map[ruleKey]*RuleUse) []RuleUse {
	out := make([]RuleUse, 0, len(uses))
	for _, u := range uses {
		out = append(out, *u)
	}
	slices.SortFunc(out, func(a, b RuleUse) int {
		return cmp.Or(cmp.Compare(a.Package, b.Package), cmp.Compare(a.Set, b.Set), cmp.Compare(a.Rule, b.Rule))
	})
	return out
}
