package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"domicile/api"
	"domicile/policy/opa"
	"domicile/policy/review"
)

// problemView is one thing that a policy and what is written about it do not agree on,
// or why a directory cannot be loaded.
type problemView struct {
	Code  string `json:"code,omitempty"`
	Where string `json:"where"`
	What  string `json:"what"`
	Cells int    `json:"cells,omitempty"`
	Fix   string `json:"fix"`
}

// proofView is the JSON of policy test. Without a proof, problems say why.
type proofView struct {
	Passed bool `json:"passed"`
	*opa.Proof
	Score    *float64      `json:"mutation_score"` // percent; null: not measured
	Short    []string      `json:"falls_short,omitempty"`
	Problems []problemView `json:"problems,omitempty"`
}

func (a *app) policyTest() *cobra.Command {
	var manifest string
	var quick bool
	cmd := &cobra.Command{
		Use: "test DIR", Short: "Prove a policy directory by its tests, fixtures and residency matrix",
		Long: `Runs the Rego tests (tests/*_test.rego), the cases that people wrote (fixtures/*.json) and
holds every question there can be against the residency matrix (matrix.csv). Then it
tells how good these are: how much of the rules they evaluate (at least 95 %), how many
deliberate slips in the rules they notice (at least 90 %), and that the engine answers
the same with its shortcuts and without. Ends with 1 if anything falls short.`,
		Example: "  domicile policy test ./federation/policies",
		Args:    arguments(1, 1, "a DIR"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.prove(cmd.Context(), args[0], manifest, !quick, a.printProof)
		},
	}
	cmd.Flags().BoolVar(&quick, "quick", false, "leave out the slips and the engine's shortcuts, which take seconds")
	return manifestFlag(cmd, &manifest)
}

func (a *app) policyCoverage() *cobra.Command {
	var manifest string
	cmd := &cobra.Command{
		Use: "coverage DIR", Short: "Show which lines of the rules no test and no fixture evaluates",
		Example: "  domicile policy coverage ./federation/policies",
		Args:    arguments(1, 1, "a DIR"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.prove(cmd.Context(), args[0], manifest, false, a.printCoverage)
		},
	}
	return manifestFlag(cmd, &manifest)
}

// prove measures a directory and prints it. What cannot be loaded is printed as well.
func (a *app) prove(ctx context.Context, dir, manifest string, thorough bool, show func(*opa.Proof) error) error {
	f, err := manifestFor(dir, manifest)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, loadWithin)
	defer cancel()
	p, err := opa.Prove(ctx, dir, f, thorough)
	if err != nil {
		return a.checked(err)
	}
	if err := show(p); err != nil {
		return err
	}
	if len(p.Short()) > 0 {
		return ended(exitFailure)
	}
	return foundIn(&p.Report)
}

// checked prints why a directory does not hold: each problem on a line of its own where
// there are several, and for scripts as one object.
func (a *app) checked(err error) error {
	var problems []problemView
	var unmet *opa.Unmet
	var e *api.Error
	switch {
	case errors.As(err, &unmet):
		for _, p := range unmet.Problems {
			problems = append(problems, problemView{string(api.PolicyError), p.Where, p.What, p.Cells, p.Fix})
		}
	case errors.As(err, &e):
		what := e.Value
		if e.Err != nil {
			what = strings.TrimPrefix(what+": "+e.Err.Error(), ": ")
		}
		problems = append(problems, problemView{Code: string(e.Code), Where: e.Field, What: what, Fix: e.Hint})
	default:
		return checkFailed{err}
	}
	if a.json() {
		if err := a.printJSON(proofView{Problems: problems}); err != nil {
			return err
		}
		return ended(exitFailure)
	}
	if unmet == nil {
		return checkFailed{err}
	}
	for _, p := range unmet.Problems {
		fmt.Fprintln(a.out, p.String()+cells(p))
	}
	fmt.Fprintf(a.out, "%s: a policy that does not answer as its own fixtures and matrix say is not activated\n", plural(len(unmet.Problems), "problem"))
	return ended(exitFailure)
}

func cells(p review.Problem) string {
	if p.Cells == 0 {
		return ""
	}
	return " (" + plural(p.Cells, "question") + ")"
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return count(n) + " " + what + "s"
}

func (a *app) printProof(p *opa.Proof) error {
	v := proofView{Passed: len(p.Short())+len(p.Report.Findings) == 0, Proof: p, Short: p.Short()}
	if p.Mutation != nil {
		score := p.Mutation.Score()
		v.Score = &score
	}
	if a.json() {
		return a.printJSON(v)
	}
	r := &p.Report
	rows := [][]string{
		{"questions", fmt.Sprintf("%s judged, %s allowed", count(r.Cells), count(r.Allowed))},
		{"tests", fmt.Sprintf("%d passed", r.Tests)},
		{"fixtures", fmt.Sprintf("%s as wanted", plural(r.Cases, "case"))},
		{"matrix", fmt.Sprintf("%s hold over the whole domain", plural(r.Rows, "row"))},
		{"coverage", fmt.Sprintf("%.1f %% of %s", p.Coverage.Percent, plural(p.Coverage.Lines, "line"))},
	}
	if r.Rows == 0 {
		rows[3][1] = "there is none: nobody has written down what each question should get"
	}
	if m := p.Mutation; m != nil {
		rows = append(rows, []string{"slips", fmt.Sprintf("%.1f %% of those that change a decision are noticed: %d by tests, %d by fixtures, %d by the matrix, %d by judging; of %d, %d change none and %d do not load",
			m.Score(), m.ByTests, m.ByCases, m.ByMatrix, m.ByJudge, m.Mutants, m.Same, m.Refused)})
	}
	if x := p.Index; x != nil {
		rows = append(rows, []string{"shortcuts", fmt.Sprintf("%s questions asked without the engine's index: %s", count(x.Cells), map[bool]string{true: "the same answers", false: "OTHER ANSWERS"}[len(x.Differs) == 0])})
	}
	fmt.Fprintf(a.out, "%s, revision %s\n", map[bool]string{true: "proven", false: "not proven"}[v.Passed], r.Revision)
	table(a.out, "  ", rows)
	if p.Mutation != nil {
		for _, s := range p.Mutation.Survivors {
			fmt.Fprintln(a.out, "not noticed:", s)
		}
	}
	for _, s := range v.Short {
		fmt.Fprintln(a.out, "falls short:", s)
	}
	for _, f := range r.Findings {
		fmt.Fprintf(a.out, "%s: %s: %s; %s\n", f.Where, f.Check, f.Reason, f.Fix)
	}
	a.printWarnings(r)
	return nil
}

func (a *app) printCoverage(p *opa.Proof) error {
	if a.json() {
		return a.printJSON(p.Coverage)
	}
	fmt.Fprintf(a.out, "%.1f %% of %s that can be evaluated\n", p.Coverage.Percent, plural(p.Coverage.Lines, "line"))
	for _, m := range p.Coverage.Missed {
		fmt.Fprintf(a.out, "  %s\n", m)
	}
	return nil
}
