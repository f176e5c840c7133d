package identity

import (
	"crypto"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"slices"
	"time"

	"domicile/api"
)

// Peer is who stands on the other side of a verified connection.
type Peer struct {
	Name
	Ends time.Time // of its certificate
}

// ServerTLS is a configuration for a listener that takes certificates of these
// kinds only. TLS 1.3, both sides show a certificate, no session outlives its
// connection.
func (i *Identity) ServerTLS(kinds ...Kind) *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13, NextProtos: []string{"h2"}, Time: i.clock.Now,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return &i.current().cert, nil },
		// The chain is verified in VerifyConnection, against the authorities as they
		// are then and not as they were when this configuration was made.
		ClientAuth:             tls.RequireAnyClientCert,
		SessionTicketsDisabled: true,
		VerifyConnection: func(s tls.ConnectionState) error {
			_, err := i.Verify(s, "", kinds...)
			return err
		},
	}
}

// ClientTLS is a configuration for dialing the one peer of this kind and name. The
// peer is known by the URI in its certificate; DNS names play no part. With name
// "" any name of the kind is taken, for clients that know only an address.
func (i *Identity) ClientTLS(kind Kind, name string) *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13, NextProtos: []string{"h2"}, Time: i.clock.Now,
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &i.current().cert, nil },
		// Turns off only the library's check of the DNS name; VerifyConnection checks
		// the chain, the time, the federation, the kind and the name.
		InsecureSkipVerify: true,
		VerifyConnection: func(s tls.ConnectionState) error {
			_, err := i.Verify(s, name, kind)
			return err
		},
	}
}

// SiblingTLS is a configuration for both ends of the connections between the nodes of
// this region: it takes certificates of kind region that carry this node's own name, and
// nothing else.
func (i *Identity) SiblingTLS() *tls.Config {
	c := i.ServerTLS(Region)
	c.NextProtos = nil
	c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &i.current().cert, nil }
	c.InsecureSkipVerify = true // only of the DNS name, as in ClientTLS
	c.VerifyConnection = func(s tls.ConnectionState) error {
		_, err := i.Verify(s, i.Name().Name, Region)
		return err
	}
	return c
}

// Verify checks the other side's certificate as of now: chain, time, federation,
// kind and, unless name is "", name. The error is an *api.Error with code
// PermissionDenied. Called again on an open connection it tells whether that
// connection would still be accepted.
func (i *Identity) Verify(s tls.ConnectionState, name string, kinds ...Kind) (Peer, error) {
	if len(s.PeerCertificates) == 0 {
		return Peer{}, refuse("none shown", "connect with a certificate of this federation", nil)
	}
	return i.VerifyCertificates(s.PeerCertificates, name, kinds...)
}

// VerifyCertificates checks a chain of certificates, its holder's first, as Verify checks
// those of a connection. It proves nothing of who sent them: for that the holder has to
// have signed something.
func (i *Identity) VerifyCertificates(chain []*x509.Certificate, name string, kinds ...Kind) (Peer, error) {
	if len(chain) == 0 {
		return Peer{}, refuse("none shown", "show a certificate of this federation", nil)
	}
	leaf, mine, now := chain[0], i.current(), i.clock.Now()
	if err := verifyChain(chain, mine.roots, now); err != nil {
		return Peer{}, err
	}
	holder, err := nameOf(leaf.URIs)
	peer := Peer{Name: holder, Ends: leaf.NotAfter}
	switch {
	case err != nil:
		return Peer{}, err
	case peer.Federation != mine.name.Federation:
		return Peer{}, refuse(peer.String(), "of another federation: this is "+mine.name.Federation, nil)
	case !slices.Contains(kinds, peer.Kind):
		return Peer{}, refuse(peer.String(), "a certificate of kind "+string(peer.Kind)+" is not taken here", nil)
	case name != "" && peer.Name.Name != name:
		return Peer{}, refuse(peer.String(), "expected "+string(peer.Kind)+" "+name+": check the address it was reached at", nil)
	case leaf.IsCA:
		return Peer{}, refuse(peer.String(), "an authority's own certificate is nobody's identity", nil)
	}
	return peer, nil
}

func verifyChain(chain []*x509.Certificate, roots *x509.CertPool, now time.Time) error {
	leaf := chain[0]
	opts := x509.VerifyOptions{
		Roots: roots, CurrentTime: now, Intermediates: x509.NewCertPool(),
		KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}, // every kind carries it; the kind itself is in the URI
	}
	for _, c := range chain[1:] {
		opts.Intermediates.AddCert(c)
	}
	_, err := leaf.Verify(opts)
	var invalid x509.CertificateInvalidError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired && now.After(leaf.NotAfter):
		return Ended(leaf.NotAfter)
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return refuse("certificate not valid yet", "it begins "+leaf.NotBefore.UTC().Format(time.RFC3339)+": check both clocks", nil)
	}
	return refuse("not signed by an authority that is trusted here", "give both sides certificates of the same authority", err)
}

func refuse(value, hint string, err error) error {
	return &api.Error{Code: api.PermissionDenied, Op: "check certificate", Field: "certificate", Value: value, Hint: hint, Err: err}
}

// Ended is the refusal of a certificate whose time is over.
func Ended(at time.Time) error {
	return refuse(api.CertificateExpired, "it ended "+at.UTC().Format(time.RFC3339)+": sign a new one and replace the files, no restart is needed", nil)
}

// PeerOf reads the name out of a connection whose certificate was verified by a
// configuration of this package.
func PeerOf(s tls.ConnectionState) (Peer, error) {
	if len(s.PeerCertificates) == 0 {
		return Peer{}, refuse("none shown", "connect with a certificate of this federation", nil)
	}
	leaf := s.PeerCertificates[0]
	name, err := nameOf(leaf.URIs)
	if err != nil {
		return Peer{}, err
	}
	return Peer{Name: name, Ends: leaf.NotAfter}, nil
}

// Sign signs a SHA-256 digest with this node's key, and gives the certificates that show
// whose it is, DER, its own first.
func (i *Identity) Sign(digest []byte) (chain [][]byte, signature []byte, err error) {
	mine := i.current()
	key, ok := mine.cert.PrivateKey.(crypto.Signer)
	if !ok {
		return nil, nil, badCertificate("the private key cannot sign", "make one with `domicile certs request`")
	}
	signature, err = key.Sign(rand.Reader, digest, crypto.SHA256)
	return mine.cert.Certificate, signature, err
}
