package main

import (
	"fmt"
	"strings"

	pb "domicile/api/domicile/v1"
	"domicile/policy/opa"
)

// explainView is one question's answer, from a node or from a directory.
type explainView struct {
	Allow       bool         `json:"allow"`
	Code        string       `json:"code,omitempty"`
	Regions     []string     `json:"regions"`
	Destination string       `json:"destination,omitempty"`
	Reasons     []string     `json:"reasons"`
	Because     []reasonView `json:"because"`
	Rules       []ruleView   `json:"rules"`
	Obligations []string     `json:"obligations,omitempty"` // rules that ask for one; this version refuses then
	Floor       string       `json:"floor,omitempty"`
	Revision    string       `json:"revision"`
	Trace       string       `json:"trace,omitempty"`
}

// reasonView is one cause of a decision; its code is stable.
type reasonView struct {
	Code string `json:"code"`
	Rule string `json:"rule,omitempty"`
	Text string `json:"text,omitempty"`
}

// ruleView is an author's rule that spoke, and who answers for it.
type ruleView struct {
	Set      string `json:"set"`
	Rule     string `json:"rule"`
	Where    string `json:"where"`
	Article  string `json:"article,omitempty"`
	Owner    string `json:"owner,omitempty"`
	ReviewBy string `json:"review_by,omitempty"`
}

func (r ruleView) text() string {
	text := r.Set + " " + r.Rule + " speaks, " + r.Where
	if r.Article != "" {
		text += "; " + r.Article
	}
	if r.Owner != "" {
		text += "; answers for it: " + r.Owner
	}
	return text
}

func viewAnswer(r *pb.ExplainResponse) explainView {
	v := explainView{
		Allow: r.GetAllow(), Code: r.GetCode(), Regions: r.GetRegions(), Destination: r.GetDestination(), Obligations: r.GetObligations(),
		Reasons: r.GetReasons(), Floor: r.GetFloor(), Revision: r.GetRevision(), Trace: r.GetTrace(),
	}
	for _, b := range r.GetBecause() {
		v.Because = append(v.Because, reasonView{b.GetCode(), b.GetRule(), b.GetText()})
	}
	for _, u := range r.GetRules() {
		v.Rules = append(v.Rules, ruleView{u.GetSet(), u.GetRule(), fmt.Sprintf("%s:%d", u.GetFile(), u.GetLine()), u.GetArticle(), u.GetOwner(), u.GetReviewBy()})
	}
	return v
}

func viewExplanation(e *opa.Explanation) explainView {
	d := e.Decision
	v := explainView{
		Allow: d.Allow, Code: string(d.Code), Regions: d.Regions, Destination: d.Destination, Obligations: d.Obligations(),
		Reasons: e.Because(), Floor: e.Floor, Revision: e.Revision, Trace: e.Trace,
	}
	for _, r := range d.Reasons {
		v.Because = append(v.Because, reasonView(r))
	}
	for _, u := range e.Rules {
		v.Rules = append(v.Rules, ruleView{u.Set, u.Package + "/" + u.Rule, fmt.Sprintf("%s:%d", u.File, u.Line), u.Article, u.Owner, u.ReviewBy})
	}
	return v
}

// because is why, a line for each reason and then one for each rule that spoke. A node of
// an older version gives sentences only.
func because(v explainView) (rows [][]string) {
	lines := v.Reasons
	if len(v.Because) > 0 {
		lines = nil
		for _, r := range v.Because {
			line := r.Code
			if r.Rule != "" {
				line += " rule " + r.Rule
			}
			if r.Text != "" {
				line += ": " + r.Text
			}
			lines = append(lines, line)
		}
		for _, r := range v.Rules {
			lines = append(lines, r.text())
		}
	}
	for i, line := range lines {
		label := ""
		if i == 0 {
			label = "because"
		}
		rows = append(rows, []string{label, line})
	}
	return rows
}

func renderExplain(v explainView, withTrace bool) string {
	var b strings.Builder
	verdict := "allowed"
	if !v.Allow {
		verdict = "denied: " + v.Code
	}
	fmt.Fprintf(&b, "%s (policy %s)\n", verdict, firstOf(v.Revision, unknown))
	rows := [][]string{}
	if len(v.Regions) > 0 {
		rows = append(rows, []string{"regions", strings.Join(v.Regions, ", ")})
	}
	if v.Destination != "" {
		rows = append(rows, []string{"goes to", v.Destination})
	}
	if v.Floor != "" {
		rows = append(rows, []string{"boundary", v.Floor})
	}
	rows = append(rows, because(v)...)
	if len(v.Obligations) > 0 {
		rows = append(rows, []string{"obliged by", strings.Join(v.Obligations, ", ")})
	}
	table(&b, "  ", rows)
	if withTrace && v.Trace != "" {
		b.WriteString("\n" + strings.TrimRight(v.Trace, "\n") + "\n")
	}
	return b.String()
}
