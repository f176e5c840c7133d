package opa

import (
	"bytes"
	"context"
	"fmt"
	"strings"

	"github.com/open-policy-agent/opa/v1/rego"
	"github.com/open-policy-agent/opa/v1/topdown"

	"domicile/policy"
	"domicile/regions"
)

// maxTrace bounds the text of a trace, in bytes.
const maxTrace = 256 << 10

// Explanation is one question with everything that is known of its answer.
type Explanation struct {
	Question policy.Question
	Decision *policy.Decision // what is in force for this question
	Revision string           // of the policy that answered
	Floor    string           // where the map alone lets the record rest, as a sentence
	Rules    []RuleUse        // the authors' rules that spoke, with file and line
	Trace    string           // the engine's own account, at most 256 KiB
}

// Because is why the answer is what it is, a line for each reason and then one for
// each rule that spoke.
func (e *Explanation) Because() []string {
	var lines []string
	for _, r := range e.Decision.Reasons {
		line := r.Code
		if r.Rule != "" {
			line += " rule " + r.Rule
		}
		if r.Text != "" {
			line += ": " + r.Text
		}
		lines = append(lines, line)
	}
	for _, u := range e.Rules {
		lines = append(lines, fmt.Sprintf("%s %s/%s speaks, %s:%d", u.Set, u.Package, u.Rule, u.File, u.Line))
	}
	return lines
}

func floorText(f *regions.Federation, q policy.Question) string {
	residency := ""
	for _, t := range q.Tags {
		if t.Name == regions.ResidencyTag {
			residency = t.Value
		}
	}
	floor := f.Floor(residency)
	if len(floor) == 0 {
		return "a record of residency " + residency + " may rest nowhere"
	}
	return "a record of residency " + residency + " may rest in " + strings.Join(floor, ", ")
}

// Explain answers a question from the decision table and asks the rules again, with
// tracing. It is slow, of the order of a millisecond, and beside the data path.
// Words outside the vocabulary fail as policy.Generation.Ask does.
func (p *Policy) Explain(ctx context.Context, q policy.Question) (*Explanation, error) {
	cell, err := p.Generation.Cell(q)
	if err != nil {
		return nil, err
	}
	e := &Explanation{Question: p.Generation.Question(cell), Decision: p.Generation.Lookup(cell), Revision: p.Generation.Revision}
	e.Floor = floorText(p.judge.policy.federation, e.Question)
	tracer := topdown.NewBufferTracer()
	raw, err := p.judge.eval(ctx, e.Question, rego.EvalQueryTracer(tracer))
	if err != nil {
		return nil, err
	}
	_, spoke, err := p.judge.read(raw)
	if err != nil {
		return nil, err
	}
	for _, key := range spoke {
		if u := p.judge.uses[key]; u != nil {
			e.Rules = append(e.Rules, RuleUse{Package: u.Package, Set: u.Set, Rule: u.Rule, File: u.File, Line: u.Line, Labels: u.Labels})
		}
	}
	var text bytes.Buffer
	topdown.PrettyTraceWithLocation(&text, *tracer)
	e.Trace = text.String()
	if len(e.Trace) > maxTrace {
		e.Trace = e.Trace[:maxTrace] + "\n… cut off here"
	}
	return e, nil
}
