package node

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"domicile/policy"
	"domicile/policy/bundle"
	"domicile/policy/opa"
)

// narrows lets one trusted person take something away at once: go back to a policy that
// was fully approved and is kept here, or revoke exceptions and mechanisms of the active
// one. It may allow nothing, now or later, that the active one refuses then, and not
// outlast it.
func (p *policies) narrows(s *signed, a bundle.Approvals, next *opa.Policy) error {
	enough := a.Enough()
	refuse := func(why string) error {
		return refusePolicy("signatures", names(a.By), why+", so all have to sign; still needed: "+a.Text(), errors.Unwrap(enough))
	}
	live, active := p.signedNow(), p.activePolicy()
	switch {
	case len(a.By) == 0:
		return enough
	case live == nil || active == nil:
		return refuse("no signed policy is active that it could be compared with")
	case s.bundle.Manifest.ValidUntil.After(live.bundle.Manifest.ValidUntil):
		return refuse("it is valid longer than the active one, until " + until(live))
	}
	why := ""
	if s.bundle.Manifest.RollsBackTo > 0 {
		why = p.isBack(s)
	} else {
		why = revokesOnly(s, live)
	}
	if why != "" {
		return refuse(why)
	}
	for _, at := range instants(active, next) {
		if wider := policy.Widens(inForce(active, at), inForce(next, at)); len(wider) > 0 {
			return refuse(fmt.Sprintf("it newly allows %d questions, the first: %s", len(wider), wider[0]))
		}
	}
	return nil
}

// isBack says why a bundle is not an earlier one again; "" when it is.
func (p *policies) isBack(s *signed) string {
	to := s.bundle.Manifest.RollsBackTo
	kept, _, err := p.shelf.get(to)
	if err != nil {
		return fmt.Sprintf("serial %d, to which it goes back, is not kept here", to)
	}
	before, err := kept.Approvals(p.trust)
	if err != nil || before.Enough() != nil {
		return fmt.Sprintf("serial %d, to which it goes back, was not approved by all who are needed now", to)
	}
	if !s.bundle.SameFiles(kept) {
		return fmt.Sprintf("its files are not those of serial %d", to)
	}
	return ""
}

// revokesOnly says why a bundle is not the active one less some of its terms; "" when it is.
func revokesOnly(s, live *signed) string {
	if !s.bundle.SameFiles(live.bundle) {
		return fmt.Sprintf("its files are not those of the active policy, serial %d", live.serial())
	}
	for _, name := range live.bundle.Manifest.Revokes {
		if !slices.Contains(s.bundle.Manifest.Revokes, name) {
			return name + " is revoked already, and it says otherwise"
		}
	}
	return ""
}

// instants are those at which one of two policies changes, and now.
func instants(policies ...*opa.Policy) []time.Time {
	out := []time.Time{{}}
	for _, p := range policies {
		for _, later := range p.Later {
			out = append(out, later.From)
		}
	}
	return out
}

// inForce is what a policy decides at an instant; the zero one is now.
func inForce(p *opa.Policy, at time.Time) *policy.Generation {
	g := p.Generation
	for _, later := range p.Later {
		if !later.From.After(at) {
			g = later.Generation
		}
	}
	return g
}
