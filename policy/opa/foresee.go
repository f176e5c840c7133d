package opa

import (
	"context"
	"maps"
	"slices"
	"strings"

	"domicile/policy"
)

// Foresee is the policy with what its rules answer once any one of its terms is revoked, now
// or at an instant that is scheduled, so that such a revocation asks them nothing. It asks
// what was not asked yet, which may take as long as loading does for each term; when ctx
// ends, what was answered until then counts. What is revoked beside is not foreseen, and
// neither is a revocation that would be refused.
func (p *Policy) Foresee(ctx context.Context) *Policy {
	next := *p
	next.answers = maps.Clone(p.answers)
	next.Later = slices.Clone(p.Later)
	for i, later := range next.Later {
		known := *later
		known.answers = next.answers
		next.Later[i] = &known
	}
	for _, at := range append([]*Policy{&next}, next.Later...) {
		c := at.judge.policy.catalog
		for _, name := range c.Terms.Names() {
			if at.revoking(ctx, *c, name) != nil && ctx.Err() != nil {
				return &next
			}
		}
	}
	return &next
}

// revoking asks the rules what they answer with one term less than those that last.
func (p *Policy) revoking(ctx context.Context, c policy.Catalog, name string) error {
	c.Revoked = append(slices.Clone(c.Revoked), name)
	lasting := strings.Join(c.Terms.Lasting(c.At, c.Revoked), " ")
	if p.answers[lasting] != nil {
		return nil
	}
	compiled := p.judge.policy.under(&c)
	j, err := newJudge(ctx, compiled)
	if err != nil {
		return err
	}
	g, err := policy.Build(ctx, &c, compiled.federation, p.Generation.Digest, j.ask)
	if err == nil {
		p.answers[lasting] = g
	}
	return err
}
