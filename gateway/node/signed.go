package node

import (
	"context"
	"errors"
	"time"

	"domicile/api"
	"domicile/policy"
	"domicile/policy/bundle"
	"domicile/policy/opa"
	"domicile/regions"
)

// signed is a signed policy that is active here.
type signed struct {
	bundle *bundle.Bundle
	data   []byte // exact
	digest string
	by     []bundle.Key
}

func (s *signed) serial() int64 { return s.bundle.Manifest.Serial }

func refusePolicy(field, value, hint string, err error) error {
	return &api.Error{Code: api.PolicyError, Op: "activate policy", Field: field, Value: value, Hint: hint, Err: err}
}

// open puts a policy in force when the node starts: the signed one that it keeps, or the
// directory's where no signed one was ever active and nobody is trusted to sign. If there
// is none the node runs, and refuses records.
func (p *policies) open(ctx context.Context) error {
	m, err := p.shelf.mark()
	p.signedOnly.Store(p.trust.Signed() || m != nil || err != nil)
	if !p.signedOnly.Load() {
		_, err := p.load(ctx)
		return err
	}
	if err == nil && m == nil {
		err = p.onlySigned()
	}
	if err == nil {
		err = p.reopen(ctx, m)
	}
	if err != nil {
		p.note("", nil, err)
	}
	return err
}

// onlySigned refuses a directory.
func (p *policies) onlySigned() error {
	return refusePolicy("policies", p.dir, "only signed policies count in this region: domicile policy build, sign, approve and activate", nil)
}

// reopen verifies what is kept as if it had just come, but for its time: one whose time is
// over still decides what stays within a border.
func (p *policies) reopen(ctx context.Context, m *mark) error {
	ctx, end, err := p.begin(ctx)
	if err != nil {
		return err
	}
	defer end()
	b, data, err := p.shelf.get(m.Serial)
	if err != nil {
		return err
	}
	s := &signed{bundle: b, data: data, digest: b.Digest()}
	if s.digest != m.Digest {
		return p.shelf.damaged(p.shelf.path(m.Serial), errors.New("it is another policy than was activated"))
	}
	a, err := p.approvals(b)
	if err == nil {
		err = b.Fits(p.federation.Name(), opa.Engine())
	}
	if err == nil && !(m.Narrowed && len(a.By) > 0) {
		err = a.Enough()
	}
	if err != nil {
		return err
	}
	s.by = a.By
	next, err := p.judgeSigned(ctx, s, p.federation)
	if err != nil {
		return err
	}
	return p.flip(ctx, next, s)
}

// approvals are the signatures of a bundle that count here. A region that trusts nobody
// takes none, also not one that it kept while it trusted somebody.
func (p *policies) approvals(b *bundle.Bundle) (bundle.Approvals, error) {
	if len(p.trust.Keys) == 0 {
		return bundle.Approvals{}, refusePolicy("policy.keys", "", "this region trusts nobody to sign: put keys and need under policy: in node.yaml and start it anew", bundle.ErrWrongKey)
	}
	return b.Approvals(p.trust)
}

// judge makes the policy that is in force here from its files, for a manifest.
func (p *policies) judge(ctx context.Context, f *regions.Federation) (*opa.Policy, error) {
	if !p.signedOnly.Load() {
		return p.shared.Load(ctx, p.dir, f)
	}
	s := p.signedNow()
	if s == nil {
		return nil, p.onlySigned()
	}
	return p.judgeSigned(ctx, s, f)
}

func (p *policies) judgeSigned(ctx context.Context, s *signed, f *regions.Federation) (*opa.Policy, error) {
	m, now := s.bundle.Manifest, p.clock.Now()
	next, err := opa.LoadFiles(ctx, s.bundle.Files, opa.Moment{Serial: m.Serial, Now: now, Until: m.ValidUntil, Revoked: m.Revokes, Before: p.activePolicy()}, f)
	if err == nil && s.bundle.Valid(now) != nil {
		next.Later, next.Generation = nil, next.Generation.Lapsed(f.Snapshot(), until(s))
	}
	return next, err
}

func until(s *signed) string { return s.bundle.Manifest.ValidUntil.Format(time.RFC3339) }

// flip puts a signed policy in force and waits until nothing older is under way. s is
// remembered with it.
func (p *policies) flip(ctx context.Context, next *opa.Policy, s *signed) error {
	err := p.gate.Activate(ctx, next.Generation)
	in := p.gate.Current() == next.Generation
	if in {
		p.mu.Lock()
		p.live = s
		p.mu.Unlock()
		p.signedOnly.Store(true)
	}
	p.note(next.Generation.Digest, next, err)
	if in && err == nil {
		p.mu.Lock()
		p.fenced = s.serial()
		p.mu.Unlock()
	}
	if in {
		p.changed()
	}
	return err
}

func (p *policies) signedNow() *signed {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.live
}

// activation is what came of one.
type activation struct {
	changed  bool
	previous string
	report   opa.Report
	signed   *signed
	narrowed []policy.Question // that were answered with more before
}

// activate verifies a signed policy, judges it whole, keeps it and puts it in force, or
// keeps what is in force and says why. It answers when nothing that was judged under an
// older one is under way here any more. The very same policy may come again: then
// signatures that it has besides are kept, and it waits for that alone. late takes one whose time is over as well: it stands over the older
// one, and lets nothing cross a border. audit is asked before anything is changed, and told
// the end.
func (p *policies) activate(ctx context.Context, data []byte, late bool, audit func(*signed) (func(error), error)) (activation, error) {
	ctx, end, err := p.begin(ctx)
	if err != nil {
		return activation{}, err
	}
	defer end()
	out := activation{}
	if g := p.gate.Current(); g != nil {
		out.previous = g.Revision
	}
	b, err := bundle.Read(data)
	if err != nil {
		return out, err
	}
	if live := p.signedNow(); live != nil && live.digest == b.Digest() && p.gate.Current().Serial == live.serial() {
		if out.signed, err = p.sign(live, b, audit); err != nil {
			return out, err
		}
		active := p.activePolicy()
		out.report = active.Report
		return out, p.flip(ctx, active, out.signed)
	}
	next, m, s, err := p.accept(ctx, b, data, late)
	if err != nil {
		p.logger.Warn("a signed policy is refused", "err", err)
		return out, err
	}
	out.signed, out.report = s, next.Report
	out.changed = true
	if g := p.gate.Current(); g != nil {
		out.narrowed = policy.Widens(next.Generation, g)
	}
	finish, err := audit(s)
	if err != nil {
		return out, err
	}
	if err = p.shelf.put(s.serial(), s.data); err == nil {
		if err = p.shelf.activate(*m); err == nil {
			err = p.flip(ctx, next, s)
		}
	}
	finish(err)
	if err == nil {
		p.logger.Info("a signed policy is active", "revision", next.Generation.Revision, "signed_by", names(s.by))
	}
	return out, err
}

// sign keeps the signatures that a bundle has beyond those of the active one, whose contents
// it has: also those of keys that other regions alone trust. One that does not fit refuses
// them all.
func (p *policies) sign(live *signed, b *bundle.Bundle, audit func(*signed) (func(error), error)) (*signed, error) {
	more := live.bundle.With(b.Signatures)
	if more == nil {
		return live, nil
	}
	a, err := p.approvals(more)
	if err != nil {
		return nil, err
	}
	next := &signed{bundle: more, data: more.Bytes(), digest: live.digest, by: a.By}
	finish, err := audit(next)
	if err != nil {
		return nil, err
	}
	err = p.shelf.put(next.serial(), next.data)
	finish(err)
	return next, err
}

// accept is all that may refuse a bundle.
func (p *policies) accept(ctx context.Context, b *bundle.Bundle, data []byte, late bool) (*opa.Policy, *mark, *signed, error) {
	a, err := p.approvals(b)
	if err != nil {
		return nil, nil, nil, err
	}
	s := &signed{bundle: b, data: data, digest: b.Digest()}
	now := p.clock.Now()
	valid := b.Valid(now)
	if late && errors.Is(valid, bundle.ErrExpired) {
		valid = nil
	}
	if err := errors.Join(b.Fits(p.federation.Name(), opa.Engine()), valid, p.follows(s)); err != nil {
		return nil, nil, nil, first(err)
	}
	if b.Manifest.RollsBackTo == 0 && len(b.Manifest.Revokes) == 0 {
		err = a.Enough() // before it is judged, which costs
	}
	if err != nil {
		return nil, nil, nil, err
	}
	s.by = a.By
	next, err := p.judgeSigned(ctx, s, p.federation)
	if err != nil {
		return nil, nil, nil, err
	}
	m := &mark{Serial: s.serial(), Digest: s.digest, At: now.UTC()}
	if a.Enough() != nil {
		m.Narrowed = true
		err = p.narrows(s, a, next)
	}
	return next, m, s, err
}

// first is the first of joined errors: one reason, one way out.
func first(err error) error {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		return joined.Unwrap()[0]
	}
	return err
}

// follows refuses what does not come after all that was active here.
func (p *policies) follows(s *signed) error {
	if g := p.gate.Current(); g != nil && p.signedNow() == nil {
		return s.bundle.Follows(g.Serial+1, s.digest) // a directory's, which nobody signed
	}
	m, err := p.shelf.mark()
	switch {
	case err == nil && m != nil:
		return s.bundle.Follows(m.Serial, m.Digest)
	case err == nil:
		return nil
	}
	serials := p.shelf.serials()
	if len(serials) == 0 {
		return err // nobody knows how far the region was
	}
	last := serials[len(serials)-1]
	if kept, _, err := p.shelf.get(last); err == nil {
		return s.bundle.Follows(last, kept.Digest())
	}
	return s.bundle.Follows(last+1, s.digest)
}

func names(keys []bundle.Key) string {
	text := ""
	for i, k := range keys {
		if i > 0 {
			text += ", "
		}
		text += k.ID + " (" + k.Role + ")"
	}
	return text
}

func (p *policies) activePolicy() *opa.Policy {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.active
}
