package opa

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/open-policy-agent/opa/v1/ast"

	"domicile/regions/strict"
)

// Labels say who answers for a rule and under which law: the labels of a METADATA
// comment above the rule, or above its package for all of its rules.
type Labels struct {
	Article  string `json:"article,omitempty"`   // the law, contract or decision it carries out
	Owner    string `json:"owner,omitempty"`     // who answers for it
	ReviewBy string `json:"review_by,omitempty"` // the day by which somebody looks at it again, as 2027-06-30
}

// Finding is something about a policy directory that a person should mend. It refuses no
// load: directories that were in force before a check existed stay in force.
type Finding struct {
	Check  string `json:"check"`
	Where  string `json:"where"` // file:line
	Reason string `json:"reason"`
	Fix    string `json:"fix"`
}

// The checks that give findings.
const (
	checkMetadata = "metadata" // a METADATA comment that cannot be read
	checkLabels   = "labels"   // a rule without one of the labels, or with a label that is none
)

const labelsFix = "write above the rule, or with scope: package above the package:  # METADATA  # labels:  #   article: …  #   owner: …  #   review_by: \"2027-06-30\""

var labelNames = []string{"article", "owner", "review_by"}

// label gives rules their labels and lists what is missing. Comments are read apart
// from the rules, so that no comment changes what is in force.
func label(s *source, uses map[ruleKey]*RuleUse) (findings []Finding) {
	var modules []*ast.Module
	options := ast.ParserOptions{RegoVersion: ast.RegoV1, Capabilities: capabilities(), ProcessAnnotation: true}
	for _, name := range sortedKeys(s.rules) {
		m, err := ast.ParseModuleWithOpts(name, string(s.rules[name]), options)
		if err != nil {
			e := compileError(err)
			return []Finding{{checkMetadata, fieldOf(e), causeOf(e), "mend the METADATA comment: # METADATA, then lines of YAML, each behind #"}}
		}
		modules = append(modules, m)
	}
	set, errs := ast.BuildAnnotationSet(modules)
	if len(errs) > 0 {
		return []Finding{{checkMetadata, place(errs[0]), errs[0].Message, "one METADATA comment for each rule and package"}}
	}
	for _, m := range modules {
		pkg, err := packageName(m)
		if err != nil {
			continue
		}
		for _, r := range m.Rules {
			if u := uses[keyOf(pkg, r)]; u != nil {
				findings = append(findings, u.label(set, r)...)
			}
		}
	}
	return findings
}

// keyOf names the rule of one of the sets whose finding is written in place.
func keyOf(pkg string, r *ast.Rule) ruleKey {
	if r.Head.Key == nil {
		return ruleKey{}
	}
	finding, ok := r.Head.Key.Value.(ast.Object)
	if !ok {
		return ruleKey{}
	}
	id, _ := literal(finding.Get(ast.StringTerm("rule")))
	return ruleKey{pkg, ruleName(r), id}
}

// Overdue reports whether the day by which somebody should have looked at the rule again
// is past.
func (l Labels) Overdue(now time.Time) bool {
	day, err := time.Parse(time.DateOnly, l.ReviewBy)
	return err == nil && now.After(day.AddDate(0, 0, 1))
}

func (u *RuleUse) label(set *ast.AnnotationSet, r *ast.Rule) (findings []Finding) {
	where := fmt.Sprintf("%s:%d", r.Location.File, r.Location.Row)
	name := u.Set + " " + u.Package + "/" + u.Rule
	note := func(reason, fix string) { findings = append(findings, Finding{checkLabels, where, name + reason, fix}) }
	labels, _ := set.MergedLabels(r)
	for _, given := range slices.Sorted(maps.Keys(labels)) {
		if near := strict.Nearest(given, labelNames); !slices.Contains(labelNames, given) && near != "" {
			note(" has a label "+given, `did you mean "`+near+`"?`)
		}
	}
	for label, into := range map[string]*string{"article": &u.Article, "owner": &u.Owner, "review_by": &u.ReviewBy} {
		text, _ := labels[label].(string)
		if text != "" {
			*into = text
		}
	}
	for _, label := range labelNames {
		if text, _ := labels[label].(string); text == "" {
			note(" has no "+label, labelsFix)
		} else if _, err := time.Parse(time.DateOnly, text); label == "review_by" && err != nil {
			note(fmt.Sprintf(" has review_by %q, which is no day", text), `write it in quotes, as "2027-06-30"`)
		}
	}
	return findings
}
