package identity

import (
	"crypto/ecdsa"
	"crypto/x509"
	"encoding/pem"
	"net/url"
	"os"
	"path/filepath"

	"domicile/api"
)

const (
	certBlock    = "CERTIFICATE"
	keyBlock     = "PRIVATE KEY"
	requestBlock = "CERTIFICATE REQUEST"
)

func badCertificate(problem, hint string) error {
	return &api.Error{Code: api.ConfigInvalid, Op: "read certificate", Field: "certificate", Value: problem, Hint: hint}
}

func encodeCert(der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: certBlock, Bytes: der})
}

func encodeRequest(der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: requestBlock, Bytes: der})
}

func encodeKey(key *ecdsa.PrivateKey) ([]byte, error) {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: keyBlock, Bytes: der}), nil
}

func decode(data []byte, block string) ([]byte, error) {
	for b, rest := pem.Decode(data); b != nil; b, rest = pem.Decode(rest) {
		if b.Type == block {
			return b.Bytes, nil
		}
	}
	return nil, badCertificate("no PEM block of type "+block, "pass a file that `domicile certs` wrote")
}

func parseCert(data []byte) (*x509.Certificate, error) {
	der, err := decode(data, certBlock)
	if err != nil {
		return nil, err
	}
	return x509.ParseCertificate(der)
}

func parseRequest(data []byte) (*x509.CertificateRequest, error) {
	der, err := decode(data, requestBlock)
	if err != nil {
		return nil, err
	}
	return x509.ParseCertificateRequest(der)
}

func parseKey(data []byte) (*ecdsa.PrivateKey, error) {
	der, err := decode(data, keyBlock)
	if err != nil {
		return nil, err
	}
	key, err := x509.ParsePKCS8PrivateKey(der)
	if err != nil {
		return nil, badCertificate("the private key cannot be read", "pass a file that `domicile certs` wrote")
	}
	ec, ok := key.(*ecdsa.PrivateKey)
	if !ok {
		return nil, badCertificate("the private key is not an ECDSA key", "make one with `domicile certs request`")
	}
	return ec, nil
}

// NameOf is the name that a certificate carries. It does not say that anybody trusts it.
func NameOf(c *x509.Certificate) (Name, error) { return nameOf(c.URIs) }

// nameOf is the one name a certificate or request carries; none or several are
// refused, since nobody could say which one is meant.
func nameOf(uris []*url.URL) (Name, error) {
	if len(uris) != 1 {
		return Name{}, &api.Error{Code: api.PermissionDenied, Op: "read certificate", Field: "certificate",
			Value: "not exactly one URI", Hint: "make certificates with `domicile certs`"}
	}
	n, err := ParseName(uris[0].String())
	if err != nil {
		return Name{}, &api.Error{Code: api.PermissionDenied, Op: "read certificate", Field: "certificate", Err: err,
			Hint: "make certificates with `domicile certs`"}
	}
	return n, nil
}

// SavePublic writes a certificate or a request, mode 0644, whole or not at all.
func SavePublic(path string, data []byte) error { return save(path, data, 0o644) }

// SaveKey writes a private key, mode 0600, whole or not at all.
func SaveKey(path string, data []byte) error { return save(path, data, 0o600) }

func save(path string, data []byte, mode os.FileMode) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".pem-*") // made with mode 0600
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) // fails once renamed, which is meant
	if err = f.Chmod(mode); err == nil {
		_, err = f.Write(data)
	}
	if err == nil {
		err = f.Sync()
	}
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}
