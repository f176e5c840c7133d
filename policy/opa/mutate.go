package opa

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/open-policy-agent/opa/v1/ast"

	"domicile/policy"
	"domicile/policy/review"
)

// Mutation is what notices a slip in the rules. Each mutant is the policy with one slip;
// it is taken through tests, judging, fixtures and matrix until one of them fails.
type Mutation struct {
	Mutants  int `json:"mutants"`
	ByTests  int `json:"noticed_by_tests"`
	ByJudge  int `json:"noticed_by_judging"` // some question has no valid answer
	ByCases  int `json:"noticed_by_fixtures"`
	ByMatrix int `json:"noticed_by_matrix"`
	Refused  int `json:"refused_by_checks"` // not loadable: no test has to notice them
	Same     int `json:"decide_the_same"`   // over the whole domain: there is nothing to notice
	// Survivors decide something else and nothing notices: file:line and the slip.
	Survivors []string `json:"survivors,omitempty"`
}

// Score is the share of mutants that something noticed among those that decide
// something else, in percent.
func (m *Mutation) Score() float64 {
	noticed := m.ByTests + m.ByJudge + m.ByCases + m.ByMatrix
	return percent(noticed, noticed+len(m.Survivors))
}

// mutant is one slip: apply makes it in a copy of the file's module.
type mutant struct {
	file, where, what string
	apply             func(*ast.Module)
}

// mutate takes every mutant through the authors' checks. It is bounded by ctx: an
// unfinished run is an error, never a score.
func (p *Policy) mutate(ctx context.Context) (*Mutation, error) {
	m := &Mutation{}
	original := review.TableOf(p.Generation)
	texts := map[string][]byte{kernelFile: []byte(kernelText), questionFile: []byte(questionText)}
	maps.Copy(texts, p.source.rules)
	modules, err := parse(texts)
	if err != nil {
		return nil, err
	}
	for _, slip := range mutants(modules, p.judge.policy) {
		m.Mutants++
		changed := maps.Clone(modules)
		changed[slip.file] = modules[slip.file].Copy()
		slip.apply(changed[slip.file])
		if err := p.notice(ctx, m, slip, changed, original); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// notice counts who notices a mutant first.
func (p *Policy) notice(ctx context.Context, m *Mutation, slip mutant, modules map[string]*ast.Module, original *review.Table) error {
	compiled, err := compileModules(modules, p.judge.policy.authored, p.judge.policy.catalog, p.judge.policy.federation)
	if err != nil {
		m.Refused++
		return ctx.Err()
	}
	if _, err := compiled.selfTest(ctx, p.source, nil); err != nil {
		m.ByTests++
		return ctx.Err()
	}
	j, err := newJudge(ctx, compiled)
	if err != nil {
		return err
	}
	g, err := policy.Build(ctx, compiled.catalog, compiled.federation, p.Generation.Digest, j.ask)
	if err != nil {
		m.ByJudge++
		return ctx.Err()
	}
	if len(p.written.checkCases(g)) > 0 {
		m.ByCases++
		return nil
	}
	table := review.TableOf(g)
	if p.written.matrix != nil && len(p.written.matrix.Check(table, compiled.federation)) > 0 {
		m.ByMatrix++
		return nil
	}
	if original.Same(table) {
		m.Same++
		return nil
	}
	m.Survivors = append(m.Survivors, slip.where+": "+slip.what)
	return nil
}

// mutants lists every slip there is to make in the authored modules, in order.
func mutants(modules map[string]*ast.Module, p *compiled) (out []mutant) {
	for _, file := range p.authored {
		for i, r := range modules[file].Rules {
			head := mutant{file: file, where: fmt.Sprintf("%s:%d", file, r.Location.Row), what: "the rule left out"}
			head.apply = func(m *ast.Module) { m.Rules = slices.Delete(m.Rules, i, i+1) }
			out = append(out, head)
			out = append(out, headMutants(file, i, r, p.words)...)
			for n := 0; r != nil; n, r = n+1, r.Else {
				out = append(out, bodyMutants(file, i, n, r, p.words)...)
			}
		}
	}
	return out
}

// branch is the n-th else of a module's i-th rule; 0: the rule itself.
func branch(m *ast.Module, i, n int) *ast.Rule {
	r := m.Rules[i]
	for ; n > 0; n-- {
		r = r.Else
	}
	return r
}

// bodyMutants leave out each condition, turn each comparison round, and put another word
// for each literal that is compared with the input.
func bodyMutants(file string, i, n int, r *ast.Rule, words map[string][]string) (out []mutant) {
	for e, expr := range r.Body {
		add := func(what string, change func(*ast.Rule)) {
			out = append(out, mutant{file, fmt.Sprintf("%s:%d", file, expr.Location.Row), what, func(m *ast.Module) { change(branch(m, i, n)) }})
		}
		if !expr.Location.HasFile() || string(expr.Location.Text) == "" {
			continue
		}
		text := oneLine(string(expr.Location.Text))
		if len(text) > 60 {
			text = text[:60] + "…"
		}
		if expr.Generated || text == "true" {
			continue
		}
		add("without the condition "+text, func(r *ast.Rule) {
			r.Body = slices.Delete(slices.Clone(r.Body), e, e+1)
			if len(r.Body) == 0 {
				r.Body = ast.NewBody(ast.NewExpr(ast.BooleanTerm(true)))
			}
		})
		if !expr.IsCall() {
			continue
		}
		if other, ok := map[string]*ast.Builtin{"equal": ast.NotEqual, "neq": ast.Equal}[expr.Operator().String()]; ok {
			add("the other way round: "+text, func(r *ast.Rule) { r.Body[e].SetOperator(ast.NewTerm(other.Ref())) })
		}
		for _, side := range []int{0, 1} {
			for _, known := range comparedWith(expr, side, words) {
				for k, slip := range slips(expr.Operand(side), known) {
					add(slip.what, func(r *ast.Rule) {
						operand := r.Body[e].Operand(side)
						operand.Value = slips(operand, known)[k].value
					})
				}
			}
		}
	}
	return out
}

// comparedWith is the vocabulary of the input field that an operand is compared with;
// empty: with none.
func comparedWith(e *ast.Expr, side int, words map[string][]string) [][]string {
	if len(e.Operands()) != 2 || !slices.Contains(comparisons, e.Operator().String()) {
		return nil
	}
	ref, ok := e.Operand(1 - side).Value.(ast.Ref)
	if !ok {
		return nil
	}
	path, ok := inputPath(ref)
	if !ok || words[path] == nil {
		return nil
	}
	return [][]string{words[path]}
}

// headMutants take words out of the literal regions of a finding, and put another
// destination.
func headMutants(file string, i int, r *ast.Rule, words map[string][]string) (out []mutant) {
	find := func(r *ast.Rule) *ast.Term {
		if r.Head.Key == nil {
			return nil
		}
		if finding, ok := r.Head.Key.Value.(ast.Object); ok {
			return finding.Get(ast.StringTerm("regions"))
		}
		return r.Head.Key
	}
	term := find(r)
	if term == nil {
		return nil
	}
	for k, slip := range slips(term, words["origin.region"]) {
		out = append(out, mutant{file, fmt.Sprintf("%s:%d", file, r.Location.Row), slip.what, func(m *ast.Module) {
			find(m.Rules[i]).Value = slips(find(m.Rules[i]), words["origin.region"])[k].value
		}})
	}
	return out
}

// slip is another value for a literal.
type slip struct {
	what  string
	value ast.Value
}

// slips are, of a word, the next one of its vocabulary, and of a collection that without
// each of its words.
func slips(t *ast.Term, known []string) (out []slip) {
	if word, ok := literal(t); ok {
		if at := slices.Index(known, word); at >= 0 && len(known) > 1 {
			next := known[(at+1)%len(known)]
			out = append(out, slip{fmt.Sprintf("%q in place of %q", next, word), ast.String(next)})
		}
		return out
	}
	var elements []*ast.Term
	switch v := t.Value.(type) {
	case ast.Set:
		elements = v.Slice()
	case *ast.Array:
		v.Foreach(func(t *ast.Term) { elements = append(elements, t) })
	}
	if len(elements) < 2 {
		return nil
	}
	for i, e := range elements {
		word, ok := literal(e)
		if !ok {
			continue
		}
		rest := slices.Delete(slices.Clone(elements), i, i+1)
		var value ast.Value = ast.NewArray(rest...)
		if _, set := t.Value.(ast.Set); set {
			value = ast.NewSet(rest...)
		}
		out = append(out, slip{fmt.Sprintf("without %q", word), value})
	}
	return out
}
