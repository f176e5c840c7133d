package opa

import (
	"errors"
	"fmt"
	"strings"

	"domicile/api"
	"domicile/policy"
	"domicile/policy/review"
	"domicile/regions"
)

// written is what people wrote down of the answers a policy must give.
type written struct {
	cases  []review.Case
	matrix *review.Matrix // nil: none
}

// readWritten reads the fixtures and the matrix of a source.
func readWritten(s *source, g *policy.Generation) (w written, err error) {
	for _, name := range sortedKeys(s.cases) {
		cases, err := review.ParseFixtures(name, s.cases[name])
		if err != nil {
			return w, err
		}
		w.cases = append(w.cases, cases...)
	}
	if s.matrix != nil {
		w.matrix, err = review.ParseMatrix(s.matrix, review.TableOf(g))
	}
	return w, err
}

// check holds a generation against both.
func (w *written) check(g *policy.Generation, f *regions.Federation) []review.Problem {
	problems := w.checkCases(g)
	if w.matrix != nil {
		problems = append(problems, w.matrix.Check(review.TableOf(g), f)...)
	}
	return problems
}

func (w *written) checkCases(g *policy.Generation) (problems []review.Problem) {
	for i := range w.cases {
		if p := w.cases[i].Check(g); p != nil {
			problems = append(problems, *p)
		}
	}
	return problems
}

// Unmet is the cause of a refusal of a directory whose policy does not answer as its own
// fixtures and matrix say.
type Unmet struct{ Problems []review.Problem }

// Error names the first ten.
func (u *Unmet) Error() string {
	var texts []string
	for _, p := range u.Problems[:min(len(u.Problems), 10)] {
		texts = append(texts, p.Where+": "+p.What)
	}
	return strings.Join(texts, "; ")
}

func unmet(problems []review.Problem) error {
	if len(problems) == 0 {
		return nil
	}
	count := "1 problem"
	if n := len(problems); n > 1 {
		count = fmt.Sprintf("%d problems", n)
	}
	return &api.Error{Code: api.PolicyError, Op: "hold policy against what is written", Field: problems[0].Where, Value: count,
		Err: &Unmet{problems}, Hint: problems[0].Fix}
}

func fieldOf(err error) string {
	var e *api.Error
	if errors.As(err, &e) {
		return e.Field
	}
	return ""
}

func causeOf(err error) string {
	var e *api.Error
	if errors.As(err, &e) && e.Err != nil {
		return e.Err.Error()
	}
	return err.Error()
}
