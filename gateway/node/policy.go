package node

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"domicile/api"
	"domicile/policy"
	"domicile/policy/opa"
	"domicile/regions"
)

// candidateEvery is how often the policy directory is looked at. A change is only
// reported: activation is somebody's decision.
const candidateEvery = 5 * time.Second

// policies loads the policy directory, keeps the last good policy and knows why the
// last load failed. Safe for concurrent use.
type policies struct {
	dir        string
	federation *regions.Federation
	gate       *policy.Gate
	logger     *slog.Logger
	changed    func() // the active policy is another one now

	loading sync.Mutex // one load at a time

	mu        sync.Mutex
	active    *opa.Policy
	problem   error  // of the last load; nil: it worked
	loaded    string // digest of the directory that was tried last
	candidate string // digest of the directory now, when it differs from loaded
}

// load compiles, judges the whole domain, runs the tests and flips, or keeps what is
// active and says why.
func (p *policies) load(ctx context.Context) (opa.Report, error) {
	p.loading.Lock()
	defer p.loading.Unlock()
	tried, _ := opa.Digest(p.dir)
	next, err := opa.Load(ctx, p.dir, p.federation)
	if err == nil {
		err = p.gate.Activate(ctx, next.Generation)
	}
	flipped := next != nil && p.gate.Current() == next.Generation
	p.mu.Lock()
	p.problem, p.loaded, p.candidate = err, tried, ""
	if flipped {
		p.active = next
	}
	p.mu.Unlock()
	if flipped {
		p.changed()
	}
	if err != nil {
		p.logger.Error("policy not activated", "err", err)
		return opa.Report{}, err
	}
	p.logger.Info("policy active", "revision", next.Generation.Revision, "cells", next.Report.Cells, "tests", next.Report.Tests)
	return next.Report, nil
}

// watch looks for a changed directory until ctx ends.
func (p *policies) watch(ctx context.Context, every time.Duration) {
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			p.look()
		}
	}
}

func (p *policies) look() {
	digest, err := opa.Digest(p.dir)
	if err != nil {
		return // a load would say why; the active policy does not depend on the directory
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if digest == p.loaded {
		p.candidate = ""
		return
	}
	if p.candidate != digest {
		p.logger.Info("the policy directory has changed; `domicile policy reload` activates it", "candidate", digest)
	}
	p.candidate = digest
}

// state is what status shows of the policy.
func (p *policies) state() (candidate string, problem error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.candidate, p.problem
}

// explain answers one question with the rules that spoke and the revision they are of.
func (p *policies) explain(ctx context.Context, q policy.Question) (e *opa.Explanation, revision string, err error) {
	p.mu.Lock()
	active := p.active
	p.mu.Unlock()
	if active == nil {
		return nil, "", &api.Error{Code: api.PolicyUnavailable, Op: "explain", Hint: "no policy is active; domicile policy check says what is wrong with the directory"}
	}
	e, err = active.Explain(ctx, q)
	return e, active.Report.Revision, err
}
