package opa

import (
	"context"
	"slices"
	"time"

	"domicile/api"
	"domicile/policy"
	"domicile/regions"
	"domicile/regions/strict"
)

const (
	termsFile      = "terms.yaml"
	exceptionsRoot = "exceptions"
	mechanismsRoot = "mechanisms"
)

// readTerms gives the catalog the terms of the directory.
func (s *source) readTerms(c *policy.Catalog) error {
	if s.terms == nil {
		return nil
	}
	if err := strict.Decode(termsFile, s.terms, &c.Terms); err != nil {
		return err
	}
	return c.Terms.Check()
}

// Terms are the exceptions and mechanisms of the directory, whether they last or not.
func (p *Policy) Terms() policy.Terms { return p.judge.policy.catalog.Terms }

// schedule is the policy as it decides at a moment, with those that follow. p was judged
// without any term.
func (p *Policy) schedule(ctx context.Context, m Moment, f *regions.Federation) (*Policy, error) {
	terms := p.judge.policy.catalog.Terms
	for _, name := range m.Revoked {
		if !slices.Contains(terms.Names(), name) {
			return nil, &api.Error{Code: api.PolicyError, Op: "revoke", Field: "revokes", Value: name, Hint: "terms.yaml has no such exception or mechanism"}
		}
	}
	if len(terms.Names()) == 0 || m.Now.IsZero() {
		return p, nil
	}
	now := m.Now
	if now.After(m.Until) {
		now = m.Until
	}
	out, err := p.at(ctx, now, m.Revoked, f)
	if err != nil {
		return nil, err
	}
	for _, b := range terms.Boundaries() {
		if !b.After(now) || !b.Before(m.Until) {
			continue
		}
		later, err := p.at(ctx, b, m.Revoked, f)
		if err != nil {
			return nil, err
		}
		out.Later = append(out.Later, later)
	}
	return out, nil
}

// at judges the policy again as it decides at an instant.
func (p *Policy) at(ctx context.Context, now time.Time, revoked []string, f *regions.Federation) (*Policy, error) {
	c := *p.judge.policy.catalog
	c.At, c.Revoked = now, revoked
	compiled, err := compile(p.source, &c, f)
	if err != nil {
		return nil, err
	}
	j, err := newJudge(ctx, compiled)
	if err != nil {
		return nil, err
	}
	g, err := policy.Build(ctx, &c, f, p.Generation.Digest, j.ask)
	if err != nil {
		return nil, err
	}
	next := *p
	next.Generation, next.judge, next.From = g.Fenced(), j, now
	next.Report.Revision = g.Revision
	return &next, nil
}
