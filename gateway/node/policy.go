package node

import (
	"context"
	"log/slog"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"domicile/api"
	"domicile/policy"
	"domicile/policy/bundle"
	"domicile/policy/opa"
	"domicile/regions"
)

const (
	// candidateEvery is how often the policy directory is looked at. A change is only
	// reported: activation is somebody's decision.
	candidateEvery = 5 * time.Second
	// loadWithin bounds one load, rules that hardly end included.
	loadWithin = 5 * time.Minute
)

// policies loads the policy directory, keeps the last good policy and knows why the
// last load failed. Safe for concurrent use.
type policies struct {
	dir        string
	federation *regions.Federation
	gate       *policy.Gate
	logger     *slog.Logger
	changed    func() // the active policy is another one now
	follow     bool   // load a changed directory unasked
	shared     *opa.Shared

	trust      bundle.Trust
	shelf      shelf
	clock      regions.Clock
	signedOnly atomic.Bool // no directory is loaded any more

	loading chan struct{} // holds one while a load is under way
	flipped chan struct{} // holds one when another policy is in force since foresee looked
	warned  time.Duration // before the end of the policy's time, logged last; watch's alone

	mu        sync.Mutex
	active    *opa.Policy
	live      *signed            // nil: the active one is not signed, or there is none
	fenced    int64              // serial of the signed one beside which nothing older is under way
	offered   *signed            // verified here, and handed to the node with the seat before it is active; nil: none
	spurned   map[string]spurned // by region or node: its policy that is not taken here
	merged    map[string]word    // by region or node: whose signatures of the active policy are all here
	problem   error              // why the directory that was tried last is not in force; nil: it is
	loaded    string             // digest of the directory that was tried last
	candidate string             // digest of the directory now, when it differs from loaded
}

func newPolicies(c *Config, f *regions.Federation, gate *policy.Gate, clock regions.Clock, logger *slog.Logger) *policies {
	return &policies{dir: c.Policies, trust: c.Policy, shelf: shelf{dir: filepath.Join(c.Data, "policy")}, clock: clock, federation: f, gate: gate, logger: logger,
		changed: func() {}, loading: make(chan struct{}, 1), flipped: make(chan struct{}, 1), spurned: map[string]spurned{}, merged: map[string]word{}}
}

// begin waits for its turn to load. end gives it back.
func (p *policies) begin(ctx context.Context) (_ context.Context, end func(), err error) {
	ctx, cancel := context.WithTimeout(ctx, loadWithin)
	select {
	case p.loading <- struct{}{}:
		return ctx, func() { <-p.loading; cancel() }, nil
	case <-ctx.Done():
		defer cancel()
		return nil, nil, &api.Error{Code: api.NotReady, Op: "load policy", Err: ctx.Err(), Hint: "another load is under way"}
	}
}

// load compiles, judges the whole domain, runs the tests and flips, or keeps what is
// active and says why. Loads run one after the other. If ctx ends while hand-overs
// judged under the older policy are open, the new one is in force all the same, and
// the error (NotReady) says so.
func (p *policies) load(ctx context.Context) (opa.Report, error) {
	ctx, end, err := p.begin(ctx)
	if err != nil {
		return opa.Report{}, err
	}
	defer end()
	if p.signedOnly.Load() {
		return opa.Report{}, p.onlySigned()
	}
	tried, _ := opa.Digest(p.dir) // "" for a directory that cannot be read: any that can be is a candidate
	next, err := p.shared.Load(ctx, p.dir, p.federation)
	if err == nil {
		tried = next.Generation.Digest
		err = p.gate.Activate(ctx, next.Generation)
	}
	flipped := p.note(tried, next, err)
	if flipped {
		p.changed()
	}
	if err != nil {
		p.logger.Error("loading the policy failed", "err", err)
		return opa.Report{}, err
	}
	p.logger.Info("policy active", "revision", next.Generation.Revision, "cells", next.Report.Cells, "tests", next.Report.Tests)
	return next.Report, nil
}

// adopt loads the directory for another manifest and puts both in force in one step.
// before runs when nothing but that step can fail any more; its error refuses the whole.
func (p *policies) adopt(ctx context.Context, next *regions.Federation, before func(context.Context) error) error {
	ctx, end, err := p.begin(ctx)
	if err != nil {
		return err
	}
	defer end()
	loaded, err := p.judge(ctx, next)
	if err == nil {
		err = p.gate.Check(loaded.Generation, next)
	}
	if err == nil {
		err = before(ctx)
	}
	if err != nil {
		return err
	}
	err = p.gate.Adopt(ctx, loaded.Generation, next)
	p.note(loaded.Generation.Digest, loaded, err)
	if p.gate.Current() == loaded.Generation {
		return nil // hand-overs of the older policy may still be out: nobody waits for them here
	}
	return err
}

// note keeps what came of a load. flipped: the policy in force is another one now.
func (p *policies) note(tried string, next *opa.Policy, err error) (flipped bool) {
	now := p.gate.Current()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.problem, p.loaded, p.candidate = err, tried, ""
	if next == nil || now == nil || now.Digest != next.Generation.Digest {
		return false
	}
	p.problem = nil // an error is then about the older policy's last hand-overs only
	if flipped = now == next.Generation; flipped {
		p.active = next
		select {
		case p.flipped <- struct{}{}:
		default:
		}
	}
	return flipped
}

// foresee asks the rules of each signed policy that comes into force what they answer once
// one of its terms is revoked, until ctx ends: a revocation has to stop flows at once.
func (p *policies) foresee(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-p.flipped:
		}
		active := p.activePolicy()
		if p.signedNow() == nil || active == nil || active.Generation.HasLapsed() {
			continue
		}
		next := active.Foresee(ctx)
		p.mu.Lock()
		if p.active == active {
			p.active = next
		}
		p.mu.Unlock()
	}
}

// watch looks for a changed directory, and for what a signed policy has scheduled, until
// ctx ends.
func (p *policies) watch(ctx context.Context, every time.Duration) {
	for {
		wait := every
		if next, ok := p.untilChange(); ok {
			wait = min(wait, next)
		}
		if !pause(ctx, wait) {
			return
		}
		if next, ok := p.untilChange(); ok && next == 0 {
			p.turnOver(ctx)
		}
		p.settle()
		p.warnEnd()
		if p.look() && p.follow {
			_, _ = p.load(ctx) // a refusal is logged and kept for status
		}
	}
}

// look notes whether the directory is another one than the one that was tried last.
func (p *policies) look() (changed bool) {
	if p.signedOnly.Load() {
		return false
	}
	digest, err := opa.Digest(p.dir)
	if err != nil {
		return false // a load would say why; the active policy does not depend on the directory
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if digest == p.loaded {
		p.candidate = ""
		return false
	}
	if p.candidate != digest && !p.follow {
		p.logger.Info("the policy directory has changed; `domicile policy reload` activates it", "candidate", digest)
	}
	p.candidate = digest
	return true
}

// state is what status shows of the policy.
func (p *policies) state() (candidate string, problem error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.candidate, p.problem
}

// explain answers one question with the rules that spoke.
func (p *policies) explain(ctx context.Context, q policy.Question) (*opa.Explanation, error) {
	p.mu.Lock()
	active := p.active
	p.mu.Unlock()
	if active == nil {
		return nil, &api.Error{Code: api.PolicyUnavailable, Op: "explain", Hint: "no policy is active; domicile policy check says what is wrong with the directory"}
	}
	return active.Explain(ctx, q)
}
