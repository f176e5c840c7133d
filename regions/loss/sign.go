package loss

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/json"

	"domicile/api"
	"domicile/regions/identity"
)

// maxSigned bounds a signed report: one of a full tail list and as many records found.
const maxSigned = 32 << 20

// Signer signs with a region's certificate. *identity.Identity is one.
type Signer interface {
	Sign(digest []byte) (chain [][]byte, signature []byte, err error)
}

// Certificates is whom this node trusts. *identity.Identity is one.
type Certificates interface {
	VerifyCertificates(chain []*x509.Certificate, name string, kinds ...identity.Kind) (identity.Peer, error)
}

// Signed is a report and the region that vouches for it.
type Signed struct {
	Report       Report   `json:"report"`
	Certificates [][]byte `json:"certificates"` // DER, the signer's first
	Signature    []byte   `json:"signature"`    // ECDSA, ASN.1, over a SHA-256
}

// Sign signs a report.
func Sign(r Report, by Signer) (Signed, error) {
	digest, err := r.digest()
	if err != nil {
		return Signed{}, err
	}
	s := Signed{Report: r}
	s.Certificates, s.Signature, err = by.Sign(digest)
	return s, err
}

// digest is what is signed. The first line keeps a signature from meaning anything else.
func (r *Report) digest() ([]byte, error) {
	text, err := json.Marshal(r)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(append([]byte("domicile loss report 1\n"), text...))
	return sum[:], nil
}

// Encode is the signed report as JSON in one line without its end.
func (s *Signed) Encode() ([]byte, error) { return json.Marshal(s) }

// Parse reads what Encode wrote. It verifies nothing.
func Parse(text []byte) (Signed, error) {
	var s Signed
	if len(text) > maxSigned {
		return s, bad("report", "it is too large")
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&s); err != nil {
		return s, bad("report", "pass the file that `domicile divergence report -o json` wrote")
	}
	if v := s.Report.Version; v != AtCut && v != Rejoin {
		return s, bad("version", "this version knows reports 1 and 2")
	}
	return s, nil
}

// Verify checks that the report is, to the letter, what the region that made it signed, and
// that its certificate is one that this node trusts now. It answers that region.
func (s *Signed) Verify(trust Certificates) (string, error) {
	var chain []*x509.Certificate
	for _, der := range s.Certificates {
		c, err := x509.ParseCertificate(der)
		if err != nil {
			return "", bad("certificates", "they cannot be read")
		}
		chain = append(chain, c)
	}
	peer, err := trust.VerifyCertificates(chain, s.Report.By, identity.Region)
	if err != nil {
		return "", err
	}
	digest, err := s.Report.digest()
	if err != nil {
		return "", err
	}
	key, ok := chain[0].PublicKey.(*ecdsa.PublicKey)
	if !ok || !ecdsa.VerifyASN1(key, digest, s.Signature) {
		return "", &api.Error{Code: api.PermissionDenied, Op: "verify report", Field: "signature", Value: peer.Name.Name, Hint: "the report is not what was signed: fetch it from the region again"}
	}
	return peer.Name.Name, nil
}

func bad(field, hint string) error {
	return &api.Error{Code: api.BadRequest, Op: "read report", Field: field, Hint: hint}
}
