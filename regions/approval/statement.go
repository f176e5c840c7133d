// Package approval is one person's consent to one thing: a statement of what, in which
// role and until when, signed with an operator's certificate. Whoever has to act on it
// checks it by its own trust and its own list of roles, wherever the statement came from.
package approval

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"strings"
	"time"
	"unicode/utf8"

	"domicile/api"
	"domicile/regions/identity"
)

// Bounds of a statement.
const (
	MaxLife    = 24 * time.Hour // from now until it ends: a consent is no standing order
	MaxEncoded = 8 << 10        // bytes of one signed statement
	maxHash    = 200
	minHash    = 8
	maxChain   = 4
)

// Statement is what a person consents to.
type Statement struct {
	Federation string    `json:"federation"`
	Hash       string    `json:"hash"`    // of what is approved; printable ASCII
	Role       string    `json:"role"`    // in which the person approves
	Expires    time.Time `json:"expires"` // it counts before this instant
}

// Signed is a statement with who signed it.
type Signed struct {
	Statement
	Chain     [][]byte `json:"certificates"` // DER, the signer's first
	Signature []byte   `json:"signature"`    // ECDSA, ASN.1, over a SHA-256
}

// Sign signs a statement with the certificate of an operator, both PEM. It refuses a
// statement that nobody would take (BadRequest) and another kind of certificate
// (PermissionDenied).
func Sign(s Statement, certPEM, keyPEM []byte) (Signed, error) {
	cert, err := tls.X509KeyPair(certPEM, keyPEM)
	if err != nil {
		return Signed{}, &api.Error{Code: api.ConfigInvalid, Op: "sign approval", Field: "certificate", Err: err, Hint: "certificate and key must be PEM and belong together"}
	}
	out := Signed{Statement: s, Chain: cert.Certificate}
	out.Expires = s.Expires.UTC().Truncate(time.Second)
	chain, err := out.check()
	if err != nil {
		return Signed{}, err
	}
	name, err := identity.NameOf(chain[0])
	switch key, ok := cert.PrivateKey.(*ecdsa.PrivateKey); {
	case err != nil:
		return Signed{}, err
	case name.Kind != identity.Operator || name.Federation != s.Federation:
		return Signed{}, denied("certificate", name.String(), "approvals are signed with a certificate of kind operator of federation "+s.Federation)
	case !ok:
		return Signed{}, denied("certificate", name.String(), "the key is not an ECDSA key: make one with `domicile certs request`")
	default:
		out.Signature, err = key.Sign(rand.Reader, out.digest(), crypto.SHA256)
	}
	return out, err
}

// digest is what is signed. The first line keeps a signature from meaning anything else.
func (s *Statement) digest() []byte {
	text, err := json.Marshal(s)
	if err != nil {
		panic("approval: " + err.Error()) // only strings and a time whose year was checked
	}
	sum := sha256.Sum256(append([]byte("domicile approval 1\n"), text...))
	return sum[:]
}

// check refuses what no statement may be, and reads the certificates.
func (s *Signed) check() ([]*x509.Certificate, error) {
	switch {
	case s.Federation == "":
		return nil, bad("federation", "name the federation")
	case len(s.Hash) < minHash || len(s.Hash) > maxHash || !plain(s.Hash):
		return nil, bad("hash", "copy it from the plan")
	case !KnownRole(s.Role):
		return nil, bad("role", hintRole(s.Role))
	case s.Expires.Year() < 2000 || s.Expires.Year() > 9000 || s.Expires.Location() != time.UTC || s.Expires.Nanosecond() != 0:
		return nil, bad("expires", "a time in whole seconds, UTC")
	case len(s.Chain) == 0 || len(s.Chain) > maxChain:
		return nil, bad("certificates", "the signer's certificate, and those between it and its authority")
	}
	var chain []*x509.Certificate
	for _, der := range s.Chain {
		c, err := x509.ParseCertificate(der)
		if err != nil {
			return nil, bad("certificates", "they cannot be read")
		}
		chain = append(chain, c)
	}
	return chain, nil
}

// Encode is the one spelling of a signed statement: one line of JSON without its end.
func (s Signed) Encode() (string, error) {
	text, err := json.Marshal(s)
	if err == nil && len(text) > MaxEncoded {
		err = bad("certificates", "the statement is too large with them")
	}
	return string(text), err
}

// Lines are the statements of a file, of which each has a line of its own, as Parse takes them.
func Lines(text string) []string {
	return strings.FieldsFunc(text, func(c rune) bool { return c == '\n' || c == '\r' })
}

// Parse reads what Encode wrote. Anything that Encode would not write back byte by byte
// is refused with BadRequest. What it reads is not verified.
func Parse(text string) (Signed, error) {
	var s Signed
	if len(text) > MaxEncoded || !utf8.ValidString(text) {
		return Signed{}, bad("approval", "it is too large, or no text")
	}
	d := json.NewDecoder(bytes.NewReader([]byte(text)))
	d.DisallowUnknownFields()
	err := d.Decode(&s)
	if err == nil {
		_, err = s.check()
	}
	if err != nil {
		return Signed{}, asBad(err)
	}
	if again, err := s.Encode(); err != nil || again != text {
		return Signed{}, bad("approval", "it is not in the one form that is taken")
	}
	return s, nil
}

func asBad(err error) error {
	var e *api.Error
	if errors.As(err, &e) {
		return e
	}
	return bad("approval", "pass the line that `domicile failover approve` printed")
}

func plain(s string) bool {
	for i := range len(s) {
		if s[i] <= ' ' || s[i] >= 0x7f {
			return false
		}
	}
	return true
}

func bad(field, hint string) error {
	return &api.Error{Code: api.BadRequest, Op: "read approval", Field: field, Hint: hint}
}

func denied(field, value, hint string) error {
	return &api.Error{Code: api.PermissionDenied, Op: "check approval", Field: field, Value: value, Hint: hint}
}
