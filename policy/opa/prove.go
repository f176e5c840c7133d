package opa

import (
	"context"
	"fmt"
	"reflect"
	"slices"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/cover"
	"github.com/open-policy-agent/opa/v1/rego"

	"domicile/policy/review"
	"domicile/regions"
)

// What a proof must reach to be good.
const (
	MinCoverage = 95.0 // percent of the rules' lines
	MinMutation = 90.0 // percent of the mutants that change a decision
)

// Proof is how well a policy directory tests its own rules.
type Proof struct {
	Report   Report    `json:"report"`
	Coverage Coverage  `json:"coverage"`
	Mutation *Mutation `json:"mutation"` // nil: not asked for
	Index    *Index    `json:"index"`    // nil: not asked for
}

// Coverage is what the authors' tests and fixtures evaluate of their rules. The matrix
// does not count: it asks every question, whether anybody thought of it or not.
type Coverage struct {
	Percent float64  `json:"percent"`
	Lines   int      `json:"lines"`            // lines that can be evaluated
	Missed  []string `json:"missed,omitempty"` // file:line, of those that never were
	// Untested are the packages of which nothing was evaluated: a good figure for the
	// whole must not hide one that nobody tests.
	Untested []string `json:"untested,omitempty"`
}

// Index is whether the engine's shortcuts change an answer. They must not: a shortcut
// that does is a fault of the engine, and a leak.
type Index struct {
	Cells   int      `json:"cells"`             // questions asked with shortcuts and without
	Differs []string `json:"differs,omitempty"` // at most ten, in words
}

// Short says what the proof falls short of, in sentences; none: it is good.
func (p *Proof) Short() (short []string) {
	if p.Coverage.Percent < MinCoverage {
		short = append(short, fmt.Sprintf("coverage is %.1f %%, at least %.0f %%: add tests or fixtures for %s", p.Coverage.Percent, MinCoverage, some(p.Coverage.Missed)))
	}
	for _, name := range p.Coverage.Untested {
		short = append(short, "package residency.rules."+name+" has no test: no test and no fixture asks any of its rules")
	}
	if m := p.Mutation; m != nil && m.Score() < MinMutation {
		short = append(short, fmt.Sprintf("the mutation score is %.1f %%, at least %.0f %%: nothing notices %s", m.Score(), MinMutation, some(m.Survivors)))
	}
	if p.Index != nil && len(p.Index.Differs) > 0 {
		short = append(short, "the engine's index changes answers, among them "+p.Index.Differs[0]+": do not use this build")
	}
	return short
}

func some(list []string) string {
	if len(list) == 0 {
		return "what is missed"
	}
	if len(list) == 1 {
		return list[0]
	}
	return fmt.Sprintf("%s and %d more", list[0], len(list)-1)
}

// Prove loads a directory as Load does and measures its tests. thorough adds what takes
// seconds: the mutants, and the engine's shortcuts over the whole domain.
func Prove(ctx context.Context, dir string, f *regions.Federation, thorough bool) (*Proof, error) {
	p, err := Load(ctx, dir, f)
	if err != nil {
		return nil, err
	}
	proof := &Proof{Report: p.Report}
	if proof.Coverage, err = p.coverage(ctx); err != nil || !thorough {
		return proof, err
	}
	if proof.Index, err = p.judge.compareIndex(ctx, p); err != nil {
		return nil, err
	}
	proof.Mutation, err = p.mutate(ctx)
	return proof, err
}

// coverage runs the authors' tests and asks the fixtures' questions.
func (p *Policy) coverage(ctx context.Context) (Coverage, error) {
	covered := cover.New()
	if _, err := p.judge.policy.selfTest(ctx, p.source, covered); err != nil {
		return Coverage{}, err
	}
	for _, c := range p.written.cases {
		cell, err := p.Generation.Cell(c.Question)
		if err != nil {
			continue // refused by the vocabulary: no rule is asked
		}
		if _, err := p.judge.eval(ctx, p.Generation.Question(cell), rego.EvalQueryTracer(covered)); err != nil {
			return Coverage{}, err
		}
	}
	modules := map[string]*ast.Module{}
	for _, name := range p.judge.policy.authored {
		modules[name] = p.judge.policy.modules[name]
	}
	report := covered.Report(modules)
	var c Coverage
	hit, reached := 0, map[string]int{}
	for _, name := range p.judge.policy.authored {
		file := report.Files[name]
		if file == nil {
			continue
		}
		hit += file.CoveredLines
		if pkg, err := packageName(modules[name]); err == nil {
			reached[pkg] += file.CoveredLines
		}
		c.Lines += file.CoveredLines + file.NotCoveredLines
		for _, r := range file.NotCovered {
			if where := fmt.Sprintf("%s:%d", name, r.Start.Row); !slices.Contains(c.Missed, where) {
				c.Missed = append(c.Missed, where)
			}
		}
	}
	for _, pkg := range sortedKeys(reached) {
		if reached[pkg] == 0 {
			c.Untested = append(c.Untested, pkg)
		}
	}
	c.Percent = percent(hit, c.Lines)
	return c, nil
}

// percent of nothing is everything: there is nothing that could be missed.
func percent(part, whole int) float64 {
	if whole == 0 {
		return 100
	}
	return 100 * float64(part) / float64(whole)
}

// compareIndex asks every question with the engine's rule index and early exit, and
// without.
func (j *judge) compareIndex(ctx context.Context, p *Policy) (*Index, error) {
	x := &Index{}
	for q := range p.Generation.All() {
		with, err := j.eval(ctx, q)
		if err != nil {
			return nil, err
		}
		without, err := j.eval(ctx, q, rego.EvalRuleIndexing(false), rego.EvalEarlyExit(false))
		if err != nil {
			return nil, err
		}
		x.Cells++
		if !reflect.DeepEqual(with, without) && len(x.Differs) < 10 {
			x.Differs = append(x.Differs, q.String())
		}
	}
	return x, nil
}

// Matrix is the residency matrix as it was written, nil if there is none.
func (p *Policy) Matrix() []byte { return p.source.matrix }

// Table is every answer of the policy.
func (p *Policy) Table() *review.Table { return review.TableOf(p.Generation) }
