package identity

import (
	"crypto/ecdsa"
	"crypto/x509"

	"domicile/api"
)

const maxChain = 4

// Signer signs with a node's certificate. *Identity is one.
type Signer interface {
	Sign(digest []byte) (chain [][]byte, signature []byte, err error)
}

// Trust is whom a node trusts. *Identity is one.
type Trust interface {
	VerifyCertificates(chain []*x509.Certificate, name string, kinds ...Kind) (Peer, error)
}

// Signed is who vouches for something, whatever way it came.
type Signed struct {
	Certificates [][]byte `json:"certificates"` // DER, the signer's first
	Signature    []byte   `json:"signature"`    // ECDSA, ASN.1, over a SHA-256
}

// SignWith signs a SHA-256 digest.
func SignWith(by Signer, digest []byte) (s Signed, err error) {
	s.Certificates, s.Signature, err = by.Sign(digest)
	return s, err
}

// Verify checks that the digest was signed with a certificate that is trusted now, of one of
// the kinds and, unless it is "", of the name.
func (s *Signed) Verify(trust Trust, digest []byte, name string, kinds ...Kind) (Peer, error) {
	if len(s.Certificates) == 0 || len(s.Certificates) > maxChain {
		return Peer{}, refuse("none shown, or too many", "show the signer's certificate, and those between it and its authority", nil)
	}
	var chain []*x509.Certificate
	for _, der := range s.Certificates {
		c, err := x509.ParseCertificate(der)
		if err != nil {
			return Peer{}, refuse("unreadable", "show the signer's certificate, and those between it and its authority", nil)
		}
		chain = append(chain, c)
	}
	peer, err := trust.VerifyCertificates(chain, name, kinds...)
	if err != nil {
		return Peer{}, err
	}
	key, ok := chain[0].PublicKey.(*ecdsa.PublicKey)
	if !ok || !ecdsa.VerifyASN1(key, digest, s.Signature) {
		return Peer{}, &api.Error{Code: api.PermissionDenied, Op: "verify signature", Field: "signature", Value: peer.Name.Name,
			Hint: "it is not what was signed"}
	}
	return peer, nil
}
