package identity

import (
	"crypto/tls"
	"crypto/x509"
	"os"
	"sync"
	"time"

	"domicile/api"
	"domicile/regions"
)

// Files are where a node's certificate, private key and trusted authorities lie,
// all PEM. CA may hold several authorities while one replaces another.
type Files struct{ Cert, Key, CA string }

// material is one consistent reading of the files, immutable.
type material struct {
	cert  tls.Certificate
	name  Name
	roots *x509.CertPool
}

// Identity is who this node is, and whom it trusts. Files are read again when they
// change, at the next handshake; what cannot be read leaves the last good reading in
// force. Safe for concurrent use.
type Identity struct {
	files *Files // nil: given in memory
	clock regions.Clock

	mu      sync.Mutex
	now     *material
	stamp   [3]fileStamp
	problem error
}

type fileStamp struct {
	modified time.Time
	size     int64
}

// New is an identity from PEM in memory. It never changes.
func New(certPEM, keyPEM, caPEM []byte, clock regions.Clock) (*Identity, error) {
	m, err := parseMaterial(certPEM, keyPEM, caPEM)
	if err != nil {
		return nil, err
	}
	return &Identity{clock: clock, now: m}, nil
}

// Load is an identity from files.
func Load(files Files, clock regions.Clock) (*Identity, error) {
	i := &Identity{files: &files, clock: clock}
	if err := i.Reload(); err != nil {
		return nil, err
	}
	return i, nil
}

// Name is who this node is.
func (i *Identity) Name() Name { return i.current().name }

// Ends is when this node's certificate expires.
func (i *Identity) Ends() time.Time { return i.current().cert.Leaf.NotAfter }

// Span is from when to when this node's certificate is valid.
func (i *Identity) Span() (from, to time.Time) {
	leaf := i.current().cert.Leaf
	return leaf.NotBefore, leaf.NotAfter
}

// DaysLeft is the time until Ends in days, negative once it has passed.
func (i *Identity) DaysLeft() float64 { return i.Ends().Sub(i.clock.Now()).Hours() / 24 }

// Problem is why the last re-reading of the files failed; nil when it did not.
func (i *Identity) Problem() error {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.problem
}

// Reload reads the files again, or keeps the last good reading and says why. New
// handshakes use the new reading; connections that are open are held against it by
// Verify. An identity in memory has nothing to reload.
func (i *Identity) Reload() error {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.files == nil {
		return nil
	}
	return i.reload(i.stamps())
}

func (i *Identity) reload(stamp [3]fileStamp) error {
	m, err := readMaterial(*i.files)
	if err == nil && i.now != nil && m.name != i.now.name {
		err = &api.Error{Code: api.ConfigInvalid, Op: "reload certificate", Field: "certificate", Value: m.name.String(),
			Hint: "a running node cannot become " + m.name.String() + ": restart it, or put back the files of " + i.now.name.String()}
	}
	i.problem = err
	if err != nil {
		return err
	}
	i.now, i.stamp = m, stamp
	return nil
}

// current is the reading in force, renewed first if the files have changed. The
// stamps are taken before the files are read, so that a change in between is seen
// the next time.
func (i *Identity) current() *material {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.files != nil {
		if stamp := i.stamps(); stamp != i.stamp {
			_ = i.reload(stamp) // kept in problem; the last good reading stays
		}
	}
	return i.now
}

func (i *Identity) stamps() [3]fileStamp {
	var s [3]fileStamp
	for n, path := range []string{i.files.Cert, i.files.Key, i.files.CA} {
		if info, err := os.Stat(path); err == nil {
			s[n] = fileStamp{info.ModTime(), info.Size()}
		}
	}
	return s
}

func readMaterial(files Files) (*material, error) {
	var data [3][]byte
	for n, path := range []string{files.Cert, files.Key, files.CA} {
		b, err := os.ReadFile(path)
		if err != nil {
			return nil, &api.Error{Code: api.ConfigInvalid, Op: "read certificate", Field: []string{"cert", "key", "ca"}[n], Value: path, Err: err,
				Hint: "make certificates with `domicile certs`, or correct the path in node.yaml"}
		}
		data[n] = b
	}
	return parseMaterial(data[0], data[1], data[2])
}

func parseMaterial(certPEM, keyPEM, caPEM []byte) (*material, error) {
	cert, err := tls.X509KeyPair(certPEM, keyPEM)
	if err != nil {
		return nil, &api.Error{Code: api.ConfigInvalid, Op: "read certificate", Field: "certificate", Err: err,
			Hint: "certificate and key must be PEM and belong together"}
	}
	if cert.Leaf == nil {
		if cert.Leaf, err = x509.ParseCertificate(cert.Certificate[0]); err != nil {
			return nil, err
		}
	}
	name, err := nameOf(cert.Leaf.URIs)
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(caPEM) {
		return nil, badCertificate("no authority in the CA file", "give the ca.pem that `domicile certs init` wrote")
	}
	return &material{cert: cert, name: name, roots: roots}, nil
}
