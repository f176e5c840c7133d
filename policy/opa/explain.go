package opa

import (
	"bytes"
	"context"

	"github.com/open-policy-agent/opa/v1/rego"
	"github.com/open-policy-agent/opa/v1/topdown"

	"domicile/policy"
)

// maxTrace bounds the text of a trace, in bytes.
const maxTrace = 256 << 10

// Explanation is one question with everything that is known of its answer.
type Explanation struct {
	Question policy.Question
	Decision *policy.Decision // what is in force for this question
	Rules    []RuleUse        // the authors' rules that spoke, with file and line
	Trace    string           // the engine's own account, at most 256 KiB
}

// Explain answers a question from the decision table and asks the rules again, with
// tracing. It is slow, of the order of a millisecond, and beside the data path.
// Words outside the vocabulary fail as policy.Generation.Ask does.
func (p *Policy) Explain(ctx context.Context, q policy.Question) (*Explanation, error) {
	cell, err := p.Generation.Cell(q)
	if err != nil {
		return nil, err
	}
	e := &Explanation{Question: p.Generation.Question(cell), Decision: p.Generation.Lookup(cell)}
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
			e.Rules = append(e.Rules, RuleUse{Package: u.Package, Set: u.Set, Rule: u.Rule, File: u.File, Line: u.Line})
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
