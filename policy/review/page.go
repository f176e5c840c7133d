package review

import (
	"bytes"
	_ "embed"
	"encoding/csv"
	"fmt"
	"html/template"
	"io"
	"slices"
	"strings"
	"time"

	"domicile/policy"
	"domicile/regions"
)

//go:embed page.html
var pageText string

// Page is a policy for people who do not read its language. Everything it shows is handed
// in; Write makes one file that needs no other.
type Page struct {
	Policy     *Table
	Federation *regions.Federation
	Rules      []PageRule
	Terms      policy.Terms
	Matrix     []byte // matrix.csv; nil: there is none
	Against    *Diff  // from the policy in force; nil: not asked
	Live       string // where that policy is in force
	Counted    string // how much of the time was counted of what that was asked, in words
	Now        time.Time
}

// PageRule is one rule of the authors.
type PageRule struct {
	Name, Set, Text, Article, Owner, ReviewBy, Where string
	Cells                                            int
	Overdue                                          bool
}

// pageTopic is one topic's grid: combinations of tags by regions.
type pageTopic struct {
	Name    string
	Regions []string
	Rows    []pageRow
	Denials bool // some deed is not for everybody
}

type pageRow struct {
	Tags  string
	Cells []pageCell
}

// pageCell is what one combination of tags gets in one region.
type pageCell struct {
	Region string
	Deeds  []pageDeed
}

// pageDeed is one thing that may happen to a record in a region: "yes", "in part" or "no".
type pageDeed struct{ What, May, Why string }

// Write writes the page.
func (p *Page) Write(w io.Writer) error {
	page, err := template.New("page").Funcs(template.FuncMap{"join": strings.Join, "comma": thousands}).Parse(pageText)
	if err != nil {
		return fmt.Errorf("read the page's template: %w", err)
	}
	matrix, err := matrixRows(p.Matrix)
	if err != nil {
		return err
	}
	allowed := 0
	for i := range p.Policy.Answers {
		if p.Policy.Answers[i].Allow {
			allowed++
		}
	}
	return page.Execute(w, map[string]any{
		"Revision": p.Policy.Revision, "Federation": p.Federation.Name(), "At": p.Now.UTC().Format("2 January 2006, 15:04") + " UTC",
		"Cells": len(p.Policy.Answers), "Allowed": allowed, "Topics": p.topics(), "Rules": p.Rules, "Matrix": matrix, "Terms": p.terms(),
		"Diff": p.diff(), "Live": p.Live, "Counted": p.Counted, "Boundaries": p.boundaries(), "Overdue": slices.ContainsFunc(p.Rules, func(r PageRule) bool { return r.Overdue }),
	})
}

func thousands(n int) string {
	s := fmt.Sprint(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

type pageBoundary struct {
	Name    string
	Regions []string
}

func (p *Page) boundaries() (out []pageBoundary) {
	for _, b := range p.Federation.Boundaries() {
		out = append(out, pageBoundary{b, p.Federation.Floor(b)})
	}
	return out
}

// topics draws every topic. A deed is asked for every class, place and origin there is:
// where only some of them may, it is so in part.
func (p *Page) topics() (out []pageTopic) {
	tally := p.tally()
	for _, topic := range p.Policy.words.topics {
		t := pageTopic{Name: topic, Regions: p.Federation.Regions()}
		for _, tags := range p.Policy.words.tags {
			row := pageRow{Tags: strings.ReplaceAll(tags, ",", ", ")}
			known := false
			for _, region := range t.Regions {
				c := pageCell{Region: region}
				for _, d := range deeds {
					n, ok := tally[deedKey{topic, tags, region, d}]
					known = known || ok
					if ok {
						c.Deeds = append(c.Deeds, n.deed(d))
						t.Denials = t.Denials || n.no > 0
					}
				}
				row.Cells = append(row.Cells, c)
			}
			if known {
				t.Rows = append(t.Rows, row)
			}
		}
		out = append(out, t)
	}
	return out
}

// The deeds, in the order of a record's walk.
var deeds = []string{"may be stored", "may pass through", "may arrive as a copy", "may be read"}

type deedKey struct{ topic, tags, region, deed string }

type deedTally struct {
	yes, no int
	why     []string // reasons of the denials
}

func (t *deedTally) add(a *Answer, allowed bool) {
	if allowed {
		t.yes++
		return
	}
	t.no++
	r := a.strongest()
	if a.Allow {
		r = policy.Reason{Code: policy.ReasonNoPermit}
	}
	why := strings.TrimSpace(r.Code + " " + r.Rule)
	if r.Text != "" {
		why += ": " + r.Text
	}
	if !slices.Contains(t.why, why) {
		t.why = append(t.why, why)
	}
}

func (t *deedTally) deed(what string) pageDeed {
	d := pageDeed{What: what, May: "in part", Why: strings.Join(t.why, "; ")}
	switch {
	case t.no == 0:
		d.May = "yes"
	case t.yes == 0:
		d.May = "no"
	}
	return d
}

// tally sums what every question says of a region.
func (p *Page) tally() map[deedKey]*deedTally {
	out := map[deedKey]*deedTally{}
	note := func(a *Answer, region, deed string, allowed bool) {
		k := deedKey{a.Question.Topic, tagsOf(a.Question), region, deed}
		if out[k] == nil {
			out[k] = &deedTally{}
		}
		out[k].add(a, allowed)
	}
	for i := range p.Policy.Answers {
		a := &p.Policy.Answers[i]
		switch a.Question.Point {
		case policy.Admit:
			for _, region := range p.Federation.Regions() {
				note(a, region, deeds[0], a.Allow && slices.Contains(a.Regions, region))
			}
		case policy.Transit:
			note(a, a.Question.Target, deeds[1], a.Allow)
		case policy.MirrorIngress:
			note(a, a.Question.Target, deeds[2], a.Allow)
		case policy.Consume:
			note(a, a.Question.Target, deeds[3], a.Allow)
		}
	}
	return out
}

// pageDiff is the difference with its boxes in words.
type pageDiff struct {
	*Diff
	Groups []pageChange
}

type pageChange struct {
	Change
	Words []string
}

func (p *Page) diff() *pageDiff {
	if p.Against == nil {
		return nil
	}
	d := &pageDiff{Diff: p.Against}
	for _, c := range p.Against.Changes {
		g := pageChange{Change: c}
		for _, b := range c.Where {
			g.Words = append(g.Words, p.Against.Describe(b))
		}
		d.Groups = append(d.Groups, g)
	}
	return d
}

// matrixRows reads a matrix for show, its first row being the names.
func matrixRows(text []byte) ([][]string, error) {
	if text == nil {
		return nil, nil
	}
	r := csv.NewReader(bytes.NewReader(text))
	r.Comment, r.TrimLeadingSpace = '#', true
	rows, err := r.ReadAll()
	if err != nil {
		return nil, unread(0, err)
	}
	return rows, nil
}
