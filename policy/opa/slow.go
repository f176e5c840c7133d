package opa

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/open-policy-agent/opa/v1/profiler"
	"github.com/open-policy-agent/opa/v1/rego"

	"domicile/api"
	"domicile/policy"
)

// questionWithin bounds one question. Usual ones take a fifth of a millisecond, so that a
// busy machine does not reach it and a rule that loops does.
const questionWithin = 2 * time.Second

// errSlow is the cause of a question that was given up.
var errSlow = errors.New("the rules took too long")

const slowHint = "rules are asked for every question of the domain: compare words, and loop over nothing that grows"

// slowest is the question that took longest so far.
type slowest struct {
	question policy.Question
	took     time.Duration
}

// inTime evaluates a question within questionWithin. One that takes longer is asked once more:
// a machine that stands still for a moment makes no rule a slow one.
func (j *judge) inTime(ctx context.Context, q policy.Question) (any, error) {
	raw, err := j.once(ctx, q)
	if errors.Is(err, errSlow) {
		raw, err = j.once(ctx, q)
	}
	if errors.Is(err, errSlow) {
		return nil, fmt.Errorf("%s: %w, twice more than %s; %s", j.hottest(ctx, q), errSlow, questionWithin, slowHint)
	}
	return raw, err
}

// once evaluates a question, or fails with errSlow.
func (j *judge) once(ctx context.Context, q policy.Question) (any, error) {
	start := j.clock.Now()
	limited, cancel := context.WithTimeoutCause(ctx, questionWithin, errSlow)
	defer cancel()
	raw, err := j.eval(limited, q)
	took := j.clock.Now().Sub(start)
	j.mu.Lock()
	if took > j.slow.took {
		j.slow = slowest{q, took}
	}
	j.mu.Unlock()
	if err != nil && context.Cause(limited) == errSlow {
		return nil, errSlow
	}
	return raw, err
}

// hottest is the line of the authors' rules that takes the longest for a question,
// "rules" if that cannot be found out.
func (j *judge) hottest(ctx context.Context, q policy.Question) string {
	limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), questionWithin)
	defer cancel()
	p := profiler.New()
	_, _ = j.eval(limited, q, rego.EvalQueryTracer(p)) // it ends at its limit: what it did until then counts
	for _, s := range p.ReportTopNResults(20, []string{"total_time_ns"}) {
		if s.Location != nil && s.Location.File != kernelFile && s.Location.File != questionFile && s.Location.HasFile() {
			return fmt.Sprintf("%s:%d", s.Location.File, s.Location.Row)
		}
	}
	return "rules"
}

// ranOut says, of a load that ended with its context, which rules took the time.
func (j *judge) ranOut(ctx context.Context, err error) error {
	var e *api.Error
	j.mu.Lock()
	slow := j.slow
	j.mu.Unlock()
	if ctx.Err() == nil || !errors.As(err, &e) || slow.took < 100*time.Millisecond {
		return err
	}
	told := *e
	told.Field, told.Hint = j.hottest(ctx, slow.question), "loading ran out of time: one question took "+slow.took.Round(time.Millisecond).String()+"; "+slowHint
	return &told
}
