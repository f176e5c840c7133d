package identity

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"math/big"
	"net"
	"time"

	"domicile/api"
)

// Validities of what the commands make when nothing else is asked for.
const (
	AuthorityValidity = 10 * 365 * 24 * time.Hour
	DefaultValidity   = 365 * 24 * time.Hour

	// backdate lets a certificate be used at once on a machine whose clock is a
	// little behind the one that signed it.
	backdate = 5 * time.Minute
)

// Authority signs the certificates of one federation. Safe for concurrent use.
type Authority struct {
	federation string
	cert       *x509.Certificate
	key        *ecdsa.PrivateKey
}

// NewCA makes an authority with a fresh ECDSA P-256 key.
func NewCA(federation string, now time.Time, validity time.Duration) (*Authority, error) {
	if err := (Name{Federation: federation, Kind: Client, Name: "x"}).Check(); err != nil {
		return nil, err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	serial, err := newSerial()
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber: serial,
		Subject:      pkix.Name{CommonName: "domicile authority", Organization: []string{federation}},
		NotBefore:    now.Add(-backdate), NotAfter: now.Add(validity),
		IsCA: true, BasicConstraintsValid: true, MaxPathLenZero: true,
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, err
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	return &Authority{federation: federation, cert: cert, key: key}, nil
}

// ParseCA reads an authority from PEM.
func ParseCA(certPEM, keyPEM []byte) (*Authority, error) {
	cert, err := parseCert(certPEM)
	if err != nil {
		return nil, err
	}
	key, err := parseKey(keyPEM)
	if err != nil {
		return nil, err
	}
	if !cert.IsCA || len(cert.Subject.Organization) != 1 {
		return nil, badCertificate("not a certificate of an authority", "use the files that `domicile certs init` wrote")
	}
	if !key.PublicKey.Equal(cert.PublicKey) {
		return nil, badCertificate("key and certificate do not belong together", "use the files that `domicile certs init` wrote")
	}
	return &Authority{federation: cert.Subject.Organization[0], cert: cert, key: key}, nil
}

// Federation is the one the authority signs for.
func (a *Authority) Federation() string { return a.federation }

// CertPEM is the authority's certificate, what every node trusts.
func (a *Authority) CertPEM() []byte { return encodeCert(a.cert.Raw) }

// KeyPEM is the authority's private key. Whoever has it can name new regions.
func (a *Authority) KeyPEM() ([]byte, error) { return encodeKey(a.key) }

// NewRequest makes a key and a signing request for a name, with the DNS names or IP
// addresses under which tools without our checks reach the holder.
func NewRequest(name Name, hosts ...string) (requestPEM, keyPEM []byte, err error) {
	if err := name.Check(); err != nil {
		return nil, nil, err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	template := &x509.CertificateRequest{Subject: pkix.Name{CommonName: name.Name}}
	template.URIs = append(template.URIs, name.url())
	for _, h := range hosts {
		if ip := net.ParseIP(h); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, h)
		}
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, template, key)
	if err != nil {
		return nil, nil, err
	}
	if keyPEM, err = encodeKey(key); err != nil {
		return nil, nil, err
	}
	return encodeRequest(der), keyPEM, nil
}

// Sign signs a request. kind is what the signer means to give: a request for
// another kind or another federation is refused, so that signing a client can
// never make a region.
func (a *Authority) Sign(requestPEM []byte, kind Kind, now time.Time, validity time.Duration) ([]byte, error) {
	req, err := parseRequest(requestPEM)
	if err != nil {
		return nil, err
	}
	if err := req.CheckSignature(); err != nil {
		return nil, badCertificate("the request is not signed by its own key", "make a new one with `domicile certs request`")
	}
	name, err := nameOf(req.URIs)
	if err != nil {
		return nil, err
	}
	if name.Kind != kind {
		return nil, &api.Error{Code: api.PermissionDenied, Op: "sign certificate", Field: "kind", Value: string(name.Kind),
			Hint: "the request asks for kind " + string(name.Kind) + "; sign it with --kind " + string(name.Kind) + " if that is meant"}
	}
	if name.Federation != a.federation {
		return nil, &api.Error{Code: api.PermissionDenied, Op: "sign certificate", Field: "federation", Value: name.Federation,
			Hint: "this authority signs for federation " + a.federation}
	}
	if validity <= 0 {
		return nil, &api.Error{Code: api.ConfigInvalid, Op: "sign certificate", Field: "validity", Value: validity.String(), Hint: "give a time above zero"}
	}
	return a.sign(req, name, now, validity)
}

func (a *Authority) sign(req *x509.CertificateRequest, name Name, now time.Time, validity time.Duration) ([]byte, error) {
	serial, err := newSerial()
	if err != nil {
		return nil, err
	}
	usage := []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	if name.Kind == Region {
		usage = append(usage, x509.ExtKeyUsageServerAuth)
	}
	ends := now.Add(validity)
	if ends.After(a.cert.NotAfter) {
		ends = a.cert.NotAfter // a longer one would fail on the day its authority ends, unannounced
	}
	template := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: name.Name, Organization: []string{a.federation}},
		NotBefore: now.Add(-backdate), NotAfter: ends,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: usage, BasicConstraintsValid: true,
		DNSNames: req.DNSNames, IPAddresses: req.IPAddresses, URIs: req.URIs,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, req.PublicKey, a.key)
	if err != nil {
		return nil, err
	}
	return encodeCert(der), nil
}

// Issue makes a key and a signed certificate in one step.
func (a *Authority) Issue(kind Kind, name string, now time.Time, validity time.Duration, hosts ...string) (certPEM, keyPEM []byte, err error) {
	req, keyPEM, err := NewRequest(Name{Federation: a.federation, Kind: kind, Name: name}, hosts...)
	if err != nil {
		return nil, nil, err
	}
	certPEM, err = a.Sign(req, kind, now, validity)
	return certPEM, keyPEM, err
}

func newSerial() (*big.Int, error) {
	n, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, errors.New("no random numbers from the system: " + err.Error())
	}
	return n, nil
}
