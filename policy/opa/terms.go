package opa

import (
	"cmp"
	"context"
	"slices"
	"strings"
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
	before := m.Before
	if !before.answersFor(p.source, f) {
		before = p
	}
	out, err := p.at(ctx, now, m.Revoked, f, before)
	if err != nil {
		return nil, err
	}
	for _, b := range terms.Boundaries() {
		if !b.After(now) || !b.Before(m.Until) {
			continue
		}
		later, err := p.at(ctx, b, m.Revoked, f, before)
		if err != nil {
			return nil, err
		}
		out.Later = append(out.Later, later)
	}
	out.Report.Asked = p.Report.Asked
	return out, nil
}

// at is the policy as it decides at an instant. The rules are asked unless p, or another
// one of the same files, has been while the same terms lasted.
func (p *Policy) at(ctx context.Context, now time.Time, revoked []string, f *regions.Federation, before *Policy) (*Policy, error) {
	c := *p.judge.policy.catalog
	c.At, c.Revoked = now, revoked
	j, err := newJudge(ctx, p.judge.policy.under(&c))
	if err != nil {
		return nil, err
	}
	lasting := strings.Join(c.Terms.Lasting(now, revoked), " ")
	known, ask := cmp.Or(p.answers[lasting], before.answers[lasting]), j.ask
	if known != nil {
		ask = known.Again
	}
	g, err := policy.Build(ctx, &c, f, p.Generation.Digest, ask)
	if err != nil {
		return nil, err
	}
	if known == nil {
		p.Report.Asked += g.Cells()
	}
	p.answers[lasting] = g
	next := *p
	next.Generation, next.judge, next.From = g.Fenced(), j, now
	next.Report.Revision = g.Revision
	return &next, nil
}

// answersFor reports whether p was loaded from the same files, for the same federation.
func (p *Policy) answersFor(s *source, f *regions.Federation) bool {
	return p != nil && p.Generation.Digest == s.digest() && p.judge.policy.federation.Digest() == f.Digest()
}

// again is p, as it decides while no term lasts, under the serial of a source that has its
// files, in a federation in which rules read the same. Its tests hold as they did.
func (p *Policy) again(ctx context.Context, s *source, f *regions.Federation) (*Policy, error) {
	c, err := s.readCatalog(f)
	if err != nil {
		return nil, err
	}
	g, err := policy.Build(ctx, c, f, p.Generation.Digest, p.answers[""].Again)
	if err != nil {
		return nil, err
	}
	if err := unmet(p.written.check(g, f)); err != nil {
		return nil, err
	}
	compiled := p.judge.policy.under(c)
	compiled.federation = f
	j, err := newJudge(ctx, compiled)
	if err != nil {
		return nil, err
	}
	next := &Policy{Generation: g, Report: p.Report, judge: j, source: s, written: p.written, answers: map[string]*policy.Generation{"": g}}
	next.Report.Serial, next.Report.Revision, next.Report.Asked = g.Serial, g.Revision, 0
	next.Report.Warnings = nil
	next.Report.warn(c, f)
	return next, nil
}
