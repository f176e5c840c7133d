package approval

import (
	"crypto/ecdsa"
	"crypto/x509"
	"slices"
	"strings"
	"time"

	"domicile/regions"
	"domicile/regions/identity"
)

// Certificates is whom this node trusts. *identity.Identity is one.
type Certificates interface {
	VerifyCertificates(chain []*x509.Certificate, name string, kinds ...identity.Kind) (identity.Peer, error)
}

// Verifier checks statements by this node's own trust: its authorities, its roles, its
// clock. Safe for concurrent use.
type Verifier struct {
	Federation string
	Trust      Certificates
	Rules      Rules
	Clock      regions.Clock
}

// Consent is a statement that was verified.
type Consent struct {
	Name    string // in the operator's certificate
	Role    string
	Expires time.Time
}

// Verify checks that the statement is an operator's consent to exactly hash, as of now,
// in one of the roles, which the operator has at this node. Any doubt is PermissionDenied.
func (v *Verifier) Verify(s Signed, hash string, wanted ...string) (Consent, error) {
	c, err := v.Authentic(s, hash, wanted...)
	if err == nil {
		err = v.Rules.Has(c.Name, c.Role)
	}
	if err != nil {
		return Consent{}, err
	}
	return c, nil
}

// Authentic is Verify for a node that does not act on the consent itself: whether the
// operator has the role is said by those that do.
func (v *Verifier) Authentic(s Signed, hash string, wanted ...string) (Consent, error) {
	chain, err := s.check()
	if err != nil {
		return Consent{}, err
	}
	peer, err := v.Trust.VerifyCertificates(chain, "", identity.Operator)
	if err != nil {
		return Consent{}, err
	}
	name, now := peer.Name.Name, v.Clock.Now()
	key, ok := chain[0].PublicKey.(*ecdsa.PublicKey)
	switch {
	case !ok || !ecdsa.VerifyASN1(key, s.digest(), s.Signature):
		return Consent{}, denied("signature", name, "the statement is not what was signed")
	case s.Federation != v.Federation:
		return Consent{}, denied("federation", s.Federation, "it was given to another federation")
	case s.Hash != hash:
		return Consent{}, denied("hash", s.Hash, "it consents to something else: read what is planned now, and approve that")
	case !now.Before(s.Expires):
		return Consent{}, denied("expires", s.Expires.Format(time.RFC3339), "it has ended; approve anew")
	case s.Expires.Sub(now) > MaxLife:
		return Consent{}, denied("expires", s.Expires.Format(time.RFC3339), "it lasts too long: at most "+MaxLife.String()+" from now; check both clocks")
	case !slices.Contains(wanted, s.Role):
		return Consent{}, denied("role", s.Role, "this takes an approval as "+strings.Join(wanted, " or "))
	}
	return Consent{Name: name, Role: s.Role, Expires: s.Expires}, nil
}

// Given is Verify for a consent that was acted on in time, however long ago.
func (v *Verifier) Given(s Signed, hash string, wanted ...string) (Consent, error) {
	then := *v
	if !v.Clock.Now().Before(s.Expires) {
		then.Clock = regions.NewManualClock(s.Expires.Add(-1))
	}
	return then.Verify(s, hash, wanted...)
}

// People verifies statements and gives one consent for each person other than asker, by
// name, and why the others do not count.
func (v *Verifier) People(signed []Signed, hash, asker string, wanted ...string) (people []Consent, refused []error) {
	for _, s := range signed {
		c, err := v.Verify(s, hash, wanted...)
		switch {
		case err != nil:
			refused = append(refused, err)
		case c.Name == asker:
			refused = append(refused, denied("operator", c.Name, "whoever asks for it cannot approve it too"))
		case !slices.ContainsFunc(people, func(p Consent) bool { return p.Name == c.Name }):
			people = append(people, c)
		}
	}
	slices.SortFunc(people, func(a, b Consent) int { return strings.Compare(a.Name, b.Name) })
	return people, refused
}
