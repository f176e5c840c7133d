package identity

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"domicile/api"
	"domicile/regions"
)

func newCA(t *testing.T, federation string) *Authority {
	t.Helper()
	ca, err := NewCA(federation, time.Now(), time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	return ca
}

func issue(t *testing.T, ca *Authority, kind Kind, name string, clock regions.Clock, validity time.Duration) *Identity {
	t.Helper()
	from := clock.Now()
	if validity < 0 { // it ended that long ago
		from, validity = from.Add(validity-time.Minute), time.Minute
	}
	cert, key, err := ca.Issue(kind, name, from, validity)
	if err != nil {
		t.Fatal(err)
	}
	i, err := New(cert, key, ca.CertPEM(), clock)
	if err != nil {
		t.Fatal(err)
	}
	return i
}

// shake runs a real handshake over a real socket and returns what each side says.
func shake(t *testing.T, server, client *tls.Config) (peer Peer, serverErr, clientErr error) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	said := make(chan error, 1)
	go func() {
		c, err := l.Accept()
		if err != nil {
			said <- err
			return
		}
		defer c.Close()
		c.SetDeadline(time.Now().Add(5 * time.Second))
		conn := tls.Server(c, server)
		err = conn.Handshake()
		if err == nil {
			peer, err = PeerOf(conn.ConnectionState())
		}
		if err == nil {
			_, err = conn.Write([]byte("y"))
		}
		said <- err
	}()
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(5 * time.Second))
	conn := tls.Client(c, client)
	if clientErr = conn.Handshake(); clientErr == nil {
		_, clientErr = conn.Read(make([]byte, 1))
	}
	c.Close()
	return peer, <-said, clientErr
}

func TestNamesAreReadOneWayOnly(t *testing.T) {
	for _, n := range []Name{{"shop", Region, "eu-west"}, {"shop", Client, "orders.app-1"}, {"my_shop.prod", Operator, "Ada"}} {
		if got, err := ParseName(n.String()); err != nil || got != n {
			t.Errorf("%s: %+v %v", n, got, err)
		}
	}
	for _, uri := range []string{
		"", "domicile://", "domicile://shop/region", "domicile://shop/region/", "domicile://shop/region/eu-west/", "domicile://shop/region/EU-West",
		"domicile://shop/robot/x", "https://shop/region/eu-west", "domicile:shop/region/eu-west", "domicile://shop/region/home",
		"domicile://shop/client/a..b", "domicile://shop/client/a%2Fb", "domicile://shop/client/a?x", "Domicile://shop/client/a", "domicile://us@shop/client/a",
	} {
		if n, err := ParseName(uri); err == nil {
			t.Errorf("%q was read as %+v", uri, n)
		}
	}
}

func FuzzParseName(f *testing.F) {
	f.Add("domicile://shop/region/eu-west")
	f.Add("domicile://shop/client/a.b")
	f.Fuzz(func(t *testing.T, uri string) {
		if n, err := ParseName(uri); err == nil && n.String() != uri {
			t.Errorf("%q was read as %q", uri, n)
		}
	})
}

func TestEachKindIsTakenWhereItBelongs(t *testing.T) {
	clock := regions.NewSteadyClock()
	ca, foreign, bank := newCA(t, "shop"), newCA(t, "shop"), newCA(t, "bank")
	server := issue(t, ca, Region, "eu-west", clock, time.Hour)
	for name, c := range map[string]struct {
		caller *Identity
		kinds  []Kind
		says   string
	}{
		"region on the link port":   {issue(t, ca, Region, "us-east", clock, time.Hour), []Kind{Region}, ""},
		"client on the door":        {issue(t, ca, Client, "app", clock, time.Hour), []Kind{Client, Operator}, ""},
		"operator on the door":      {issue(t, ca, Operator, "ada", clock, time.Hour), []Kind{Client, Operator}, ""},
		"client on the link port":   {issue(t, ca, Client, "eu-west", clock, time.Hour), []Kind{Region}, "kind client is not taken here"},
		"region on the door":        {issue(t, ca, Region, "us-east", clock, time.Hour), []Kind{Client, Operator}, "kind region is not taken here"},
		"another authority, same":   {issue(t, foreign, Region, "us-east", clock, time.Hour), []Kind{Region}, "not signed by an authority"},
		"another federation":        {issue(t, bank, Region, "us-east", clock, time.Hour), []Kind{Region}, "not signed by an authority"},
		"expired":                   {issue(t, ca, Region, "us-east", clock, -time.Second), []Kind{Region}, "certificate expired"},
		"from the future":           {issue(t, ca, Region, "us-east", regions.NewManualClock(time.Now().Add(time.Hour)), 2*time.Hour), []Kind{Region}, "not valid yet"},
		"expired client on its own": {issue(t, ca, Client, "app", clock, -time.Second), []Kind{Client}, "certificate expired"},
	} {
		cfg := c.caller.ClientTLS(Region, "eu-west")
		cfg.VerifyConnection = nil // it is the server that must refuse
		cfg.Time = nil
		peer, err, clientErr := shake(t, server.ServerTLS(c.kinds...), cfg)
		switch {
		case c.says == "":
			if err != nil || clientErr != nil || peer.Name != c.caller.Name() {
				t.Errorf("%s: %+v %v %v", name, peer, err, clientErr)
			}
		case err == nil || !strings.Contains(err.Error(), c.says) || api.CodeOf(err) != api.PermissionDenied || clientErr == nil:
			t.Errorf("%s: %v; the caller: %v", name, err, clientErr)
		}
	}
}

// An authority that is trusted for one reason must not name members of another
// federation.
func TestTrustedAuthorityOfAnotherFederationIsRefused(t *testing.T) {
	clock := regions.NewSteadyClock()
	ca, bank := newCA(t, "shop"), newCA(t, "bank")
	cert, key, err := ca.Issue(Region, "eu-west", clock.Now(), time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	both, err := New(cert, key, append(ca.CertPEM(), bank.CertPEM()...), clock)
	if err != nil {
		t.Fatal(err)
	}
	cfg := issue(t, bank, Region, "us-east", clock, time.Hour).ClientTLS(Region, "eu-west")
	cfg.VerifyConnection = nil
	if _, err, _ := shake(t, both.ServerTLS(Region), cfg); err == nil || !strings.Contains(err.Error(), "another federation") {
		t.Errorf("%v", err)
	}
}

func TestDialerKnowsThePeerByItsURI(t *testing.T) {
	clock := regions.NewSteadyClock()
	ca := newCA(t, "shop")
	me := issue(t, ca, Region, "us-east", clock, time.Hour)
	server := issue(t, ca, Region, "eu-west", clock, time.Hour).ServerTLS(Region)
	if _, err, clientErr := shake(t, server, me.ClientTLS(Region, "eu-west")); err != nil || clientErr != nil {
		t.Errorf("%v %v", err, clientErr)
	}
	if _, _, err := shake(t, server, me.ClientTLS(Region, "ap-south")); err == nil || !strings.Contains(err.Error(), "expected region ap-south") {
		t.Errorf("another region answered: %v", err)
	}
	if _, _, err := shake(t, server, me.ClientTLS(Region, "")); err != nil {
		t.Errorf("any region would do: %v", err)
	}
	// A client's certificate cannot serve, DNS names or not.
	cert, key, err := ca.Issue(Client, "eu-west", clock.Now(), time.Hour, "localhost", "127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	posing, err := New(cert, key, ca.CertPEM(), clock)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := shake(t, posing.ServerTLS(Region), me.ClientTLS(Region, "eu-west")); err == nil || !strings.Contains(err.Error(), "kind client") {
		t.Errorf("a client posing as a region: %v", err)
	}
}

func TestOldTLSAndNoCertificateAreRefused(t *testing.T) {
	clock := regions.NewSteadyClock()
	ca := newCA(t, "shop")
	me := issue(t, ca, Region, "us-east", clock, time.Hour)
	server := issue(t, ca, Region, "eu-west", clock, time.Hour).ServerTLS(Region)
	old := me.ClientTLS(Region, "eu-west")
	old.MinVersion, old.MaxVersion = tls.VersionTLS12, tls.VersionTLS12
	if _, err, _ := shake(t, server, old); err == nil {
		t.Error("TLS 1.2 was spoken")
	}
	bare := me.ClientTLS(Region, "eu-west")
	bare.GetClientCertificate = nil
	if _, err, _ := shake(t, server, bare); err == nil {
		t.Error("a caller without certificate was let in")
	}
}

// A connection that is open can be held against the certificate's end.
func TestB55_VerifySeesExpiryOnAnOpenConnection(t *testing.T) {
	clock := regions.NewManualClock(time.Now())
	ca := newCA(t, "shop")
	server := issue(t, ca, Region, "eu-west", clock, time.Hour)
	client := issue(t, ca, Region, "us-east", clock, 10*time.Minute)
	leaf := client.current().cert.Leaf
	state := tls.ConnectionState{PeerCertificates: []*x509.Certificate{leaf}}
	if p, err := server.Verify(state, "us-east", Region); err != nil || p.Name != client.Name() || !p.Ends.Equal(client.Ends()) {
		t.Fatalf("%+v %v", p, err)
	}
	if d := client.DaysLeft(); d < 0 || d > 1 {
		t.Errorf("%f days left", d)
	}
	clock.Advance(11 * time.Minute)
	if _, err := server.Verify(state, "us-east", Region); err == nil || !strings.Contains(err.Error(), "certificate expired") {
		t.Errorf("after its end: %v", err)
	}
	if d := client.DaysLeft(); d >= 0 {
		t.Errorf("%f days left after the end", d)
	}
}

func TestB55_FilesAreTakenWithoutARestart(t *testing.T) {
	clock := regions.NewSteadyClock()
	ca, next := newCA(t, "shop"), newCA(t, "shop")
	dir := t.TempDir()
	files := Files{Cert: filepath.Join(dir, "cert.pem"), Key: filepath.Join(dir, "key.pem"), CA: filepath.Join(dir, "ca.pem")}
	put := func(a *Authority, name string, trusted []byte) {
		t.Helper()
		cert, key, err := a.Issue(Region, name, clock.Now(), time.Hour)
		if err == nil {
			err = SavePublic(files.Cert, cert)
		}
		if err == nil {
			err = SaveKey(files.Key, key)
		}
		if err == nil {
			err = SavePublic(files.CA, trusted)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	put(ca, "eu-west", ca.CertPEM())
	i, err := Load(files, clock)
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(files.Key); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the key's mode: %v %v", info.Mode(), err)
	}
	server, peer := i.ServerTLS(Region), issue(t, next, Region, "us-east", clock, time.Hour).ClientTLS(Region, "eu-west")
	peer.VerifyConnection = nil
	if _, err, _ := shake(t, server, peer); err == nil {
		t.Error("an authority that is not trusted yet")
	}
	put(next, "eu-west", append(ca.CertPEM(), next.CertPEM()...)) // the same configuration goes on
	if _, err, _ := shake(t, server, peer); err != nil {
		t.Errorf("after the files changed: %v", err)
	}
	before := i.Ends()
	if err := os.WriteFile(files.Cert, []byte("half a certif"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err, _ := shake(t, server, peer); err != nil || i.Problem() == nil || !i.Ends().Equal(before) {
		t.Errorf("damaged files must leave the last good reading: %v, %v", err, i.Problem())
	}
	put(next, "ap-south", next.CertPEM())
	if err := i.Reload(); err == nil || i.Name().Name != "eu-west" {
		t.Errorf("a running node became another region: %v %s", err, i.Name())
	}
}

func TestSigningGivesNothingThatWasNotMeant(t *testing.T) {
	ca := newCA(t, "shop")
	now := time.Now()
	req, _, err := NewRequest(Name{"shop", Region, "eu-west"}, "eu-west.example", "10.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ca.Sign(req, Client, now, time.Hour); api.CodeOf(err) != api.PermissionDenied {
		t.Errorf("a region's request signed as a client: %v", err)
	}
	stranger, _, err := NewRequest(Name{"bank", Client, "app"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ca.Sign(stranger, Client, now, time.Hour); api.CodeOf(err) != api.PermissionDenied {
		t.Errorf("another federation's request: %v", err)
	}
	if _, err := ca.Sign(req, Region, now, 0); api.CodeOf(err) != api.ConfigInvalid {
		t.Errorf("no validity: %v", err)
	}
	cert, err := ca.Sign(req, Region, now, 100*time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := parseCert(cert)
	if err != nil || leaf.NotAfter.After(ca.cert.NotAfter) || len(leaf.DNSNames) != 1 || len(leaf.IPAddresses) != 1 {
		t.Errorf("%+v %v", leaf, err)
	}
	for name, data := range map[string][]byte{"empty": nil, "a certificate": cert, "cut": req[:len(req)/2]} {
		if _, err := ca.Sign(data, Region, now, time.Hour); err == nil {
			t.Errorf("%s was signed", name)
		}
	}
	for _, n := range []Name{{"shop", "robot", "x"}, {"", Client, "x"}, {"shop", Client, "a b"}, {"shop", Region, "EU"}} {
		if _, _, err := NewRequest(n); api.CodeOf(err) != api.ConfigInvalid {
			t.Errorf("%+v: %v", n, err)
		}
	}
}

func TestAuthoritySurvivesItsFiles(t *testing.T) {
	ca := newCA(t, "shop")
	key, err := ca.KeyPEM()
	if err != nil {
		t.Fatal(err)
	}
	again, err := ParseCA(ca.CertPEM(), key)
	if err != nil || again.Federation() != "shop" {
		t.Fatal(err)
	}
	cert, leafKey, err := again.Issue(Client, "app", time.Now(), time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ParseCA(cert, leafKey); err == nil {
		t.Error("a client's certificate was taken for an authority")
	}
	otherKey, err := newCA(t, "shop").KeyPEM()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ParseCA(ca.CertPEM(), otherKey); err == nil {
		t.Error("another authority's key was taken")
	}
}

func TestLoadSaysWhichFileIsMissing(t *testing.T) {
	_, err := Load(Files{Cert: "nowhere.pem"}, regions.NewSteadyClock())
	var e *api.Error
	if !errors.As(err, &e) || e.Code != api.ConfigInvalid || e.Field != "cert" || e.Value != "nowhere.pem" || e.Hint == "" {
		t.Errorf("%v", err)
	}
}

// TestRA1_SiblingsAreOfTheSameRegion: the nodes of a region talk to each other with the
// region's own certificate; another region's, though trusted elsewhere, is refused.
func TestRA1_SiblingsAreOfTheSameRegion(t *testing.T) {
	clock := regions.NewSteadyClock()
	ca := newCA(t, "shop")
	here := issue(t, ca, Region, "eu-west", clock, time.Hour)
	for name, c := range map[string]struct {
		other *Identity
		takes bool
	}{
		"a sibling":      {issue(t, ca, Region, "eu-west", clock, time.Hour), true},
		"another region": {issue(t, ca, Region, "us-east", clock, time.Hour), false},
		"a client":       {issue(t, ca, Client, "eu-west", clock, time.Hour), false},
	} {
		blind := func(i *Identity) *tls.Config {
			cfg := i.SiblingTLS()
			cfg.VerifyConnection = nil
			return cfg
		}
		if _, err, _ := shake(t, here.SiblingTLS(), blind(c.other)); (err == nil) != c.takes {
			t.Errorf("%s dials: %v", name, err)
		}
		if _, _, err := shake(t, blind(c.other), here.SiblingTLS()); (err == nil) != c.takes {
			t.Errorf("%s is dialed: %v", name, err)
		}
	}
}
