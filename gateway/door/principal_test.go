package door_test

import (
	"context"
	"errors"
	"net"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"domicile/api"
	"domicile/api/client"
	pb "domicile/api/domicile/v1"
	"domicile/gateway/door"
	"domicile/regions"
	"domicile/regions/identity"
)

// authority makes certificates of one federation.
type authority struct {
	t  *testing.T
	ca *identity.Authority
}

func newAuthority(t *testing.T, federation string) authority {
	t.Helper()
	ca, err := identity.NewCA(federation, time.Now(), time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	return authority{t, ca}
}

func (a authority) issue(kind identity.Kind, name string, clock regions.Clock) *identity.Identity {
	a.t.Helper()
	cert, key, err := a.ca.Issue(kind, name, time.Now().Add(-time.Minute), 30*time.Minute)
	if err != nil {
		a.t.Fatal(err)
	}
	id, err := identity.New(cert, key, a.ca.CertPEM(), clock)
	if err != nil {
		a.t.Fatal(err)
	}
	return id
}

// statusOnly is an AdminService that answers status and lag.
type statusOnly struct {
	pb.UnimplementedAdminServiceServer
}

func (statusOnly) Status(context.Context, *pb.StatusRequest) (*pb.StatusResponse, error) {
	return &pb.StatusResponse{Region: "us-east"}, nil
}

func (statusOnly) Topics(context.Context, *pb.TopicsRequest) (*pb.TopicsResponse, error) {
	return &pb.TopicsResponse{}, nil
}

// TestR14b_TheCertificateSaysWhoIsCalling: kind, class and place come from the
// verified certificate and the table, and nothing passes for anything else.
func TestR14b_TheCertificateSaysWhoIsCalling(t *testing.T) {
	r := newRig(t)
	ca, foreign := newAuthority(t, "test"), newAuthority(t, "test")
	other := newAuthority(t, "elsewhere")
	d := r.open(func(c *door.Config) {
		c.Identity, c.Admin = ca.issue(identity.Region, "us-east", r.clock), statusOnly{}
		c.Rules = []door.PrincipalRule{
			{Match: "app-us-*", Class: "app", Place: "us-east"}, {Match: "app-none", Class: "app", Place: "none"},
			{Match: "app-eu", Class: "app", Place: "eu-west"}, {Match: "root", Class: "no-class", Place: "us-east"}, {Match: "operator", Class: "app"},
		}
	})
	as := func(id *identity.Identity) *client.Client {
		return r.client(func(c *client.Config) {
			c.TLS, c.Attempts = id.ClientTLS(identity.Region, "us-east"), 1
		}, d)
	}
	publish := func(c *client.Client, residency string) api.Code {
		rec := order(residency, "x")
		_, err := c.Publish(deadline(t), &rec)
		return api.CodeOf(err)
	}
	read := func(c *client.Client) (n int, code api.Code) {
		err := c.Read(deadline(t), &pb.ReadRequest{Topic: "orders"}, func(b *pb.ReadResponse) error { n += len(b.GetRecords()); return nil })
		return n, api.CodeOf(err)
	}
	status := func(c *client.Client) api.Code { _, err := c.Status(deadline(t)); return api.CodeOf(err) }
	topics := func(c *client.Client) api.Code { _, err := c.Topics(deadline(t), ""); return api.CodeOf(err) }

	us := as(ca.issue(identity.Client, "app-us-1", r.clock))
	if code := publish(us, "us"); code != "" {
		t.Fatalf("a client: %s", code)
	}
	if n, code := read(us); n != 1 || code != "" {
		t.Errorf("a reader placed here: %d %s", n, code)
	}
	for _, name := range []string{"app-none", "app-eu"} {
		if n, code := read(as(ca.issue(identity.Client, name, r.clock))); n != 0 || code != "" {
			t.Errorf("%s reads %d resident records, %s", name, n, code)
		}
	}
	if code := status(us); code != api.PermissionDenied {
		t.Errorf("a client asks for status: %s", code)
	}
	if code := topics(us); code != "" {
		t.Errorf("a client asks for contracts: %s", code)
	}
	operator := as(ca.issue(identity.Operator, "operator", r.clock))
	if code := status(operator); code != "" {
		t.Errorf("an operator: %s", code)
	}
	if code := publish(operator, "us"); code != api.PermissionDenied {
		t.Errorf("an operator publishes: %s", code)
	}
	for name, id := range map[string]*identity.Identity{
		"no rule":           ca.issue(identity.Client, "nobody", r.clock),
		"a region":          ca.issue(identity.Region, "eu-west", r.clock),
		"another authority": foreign.issue(identity.Client, "app-us-1", r.clock),
		"other federation":  other.issue(identity.Client, "app-us-1", r.clock),
	} {
		if code := publish(as(id), "us"); code == "" {
			t.Errorf("%s: was let in", name)
		}
	}
	if code := publish(as(ca.issue(identity.Client, "nobody", r.clock)), "us"); code != api.PermissionDenied {
		t.Errorf("no rule: %s", code)
	}
	if code := publish(as(ca.issue(identity.Client, "root", r.clock)), "us"); code != api.ResidencyDenied {
		t.Errorf("a class that the policy does not know: %s", code)
	}
	if code := publish(r.client(func(c *client.Config) { c.Attempts = 1 }, d), "us"); code != api.OutcomeUnknown {
		t.Errorf("plain text on the TLS port: %s", code)
	}
}

// TestB55_ACertificateIsRenewedUnderAConnection: calls end with the certificate, and the
// refusal says when it ended. With another one in its file the next call is taken, and so is
// the next stream.
func TestB55_ACertificateIsRenewedUnderAConnection(t *testing.T) {
	r := newRig(t)
	clock := regions.NewManualClock(time.Now())
	ca := newAuthority(t, "test")
	d := r.open(func(c *door.Config) {
		c.Identity, c.Clock = ca.issue(identity.Region, "us-east", clock), clock
		c.Rules = []door.PrincipalRule{{Match: "*", Class: "app", Place: "us-east"}}
	})
	dir := t.TempDir()
	files := identity.Files{Cert: filepath.Join(dir, "cert.pem"), Key: filepath.Join(dir, "key.pem"), CA: filepath.Join(dir, "ca.pem")}
	put := func(validity time.Duration) {
		t.Helper()
		cert, key, err := ca.ca.Issue(identity.Client, "app", clock.Now().Add(-time.Minute), validity)
		if err = errors.Join(err, identity.SavePublic(files.CA, ca.ca.CertPEM()), identity.SavePublic(files.Cert, cert), identity.SaveKey(files.Key, key)); err != nil {
			t.Fatal(err)
		}
	}
	put(10 * time.Minute)
	id, err := identity.Load(files, clock)
	if err != nil {
		t.Fatal(err)
	}
	var dials atomic.Int32
	c := r.client(func(c *client.Config) {
		c.TLS, c.Attempts = id.ClientTLS(identity.Region, "us-east"), 1
		c.Dial = func(ctx context.Context, address string) (net.Conn, error) {
			dials.Add(1)
			return (&net.Dialer{}).DialContext(ctx, "tcp", address)
		}
	}, d)
	publish := func() error { rec := order("us", "x"); _, err := c.Publish(deadline(t), &rec); return err }
	read := func() error {
		return c.Read(deadline(t), &pb.ReadRequest{Topic: "orders"}, func(*pb.ReadResponse) error { return nil })
	}
	if err := publish(); err != nil {
		t.Fatal(err)
	}
	ends := id.Ends()
	for ended, ask := range []func() error{publish, read} {
		clock.Advance(11 * time.Minute)
		for range 2 { // nothing new lies there: the connection stays, and so does the answer
			if err := ask(); api.CodeOf(err) != api.PermissionDenied || !strings.Contains(err.Error(), "it ended "+ends.UTC().Format(time.RFC3339)) {
				t.Errorf("got %v", err)
			}
		}
		put(12 * time.Minute)
		if err := ask(); api.CodeOf(err) != api.PermissionDenied {
			t.Errorf("the call that finds the new one: %v", err)
		}
		if err := errors.Join(ask(), ask()); err != nil {
			t.Errorf("with the new one: %v", err)
		}
		if n := dials.Load(); n != int32(ended)+2 {
			t.Errorf("%d connections", n)
		}
		ends = id.Ends()
	}
}

func TestRulesThatCannotBeMeantAreRefused(t *testing.T) {
	r := newRig(t)
	id := newAuthority(t, "test").issue(identity.Region, "us-east", r.clock)
	for name, rule := range map[string]door.PrincipalRule{
		"no match":       {Class: "app"},
		"broken pattern": {Match: "[", Class: "app"},
		"no class":       {Match: "x"},
		"unknown place":  {Match: "x", Class: "app", Place: "mars"},
	} {
		l := listen(t)
		_, err := door.New(door.Config{Listener: l, Identity: id, Rules: []door.PrincipalRule{rule}, Region: "us-east", Federation: r.fed, Clock: r.clock})
		if api.CodeOf(err) != api.ConfigInvalid {
			t.Errorf("%s: %v", name, err)
		}
		_ = l.Close()
	}
}

// TestTheDoorSaysWhoWasTurnedAway: the certificate of a region, good as it is, is none
// for the door.
func TestTheDoorSaysWhoWasTurnedAway(t *testing.T) {
	r := newRig(t)
	ca := newAuthority(t, "test")
	d := r.open(func(c *door.Config) { c.Identity = ca.issue(identity.Region, "us-east", r.clock) })
	for range 3 { // more than one in ten seconds is counted, not written
		c := r.client(func(c *client.Config) {
			c.TLS, c.Attempts = ca.issue(identity.Region, "eu-west", r.clock).ClientTLS(identity.Region, "us-east"), 1
		}, d)
		rec := order("us", "x")
		if _, err := c.Publish(deadline(t), &rec); err == nil {
			t.Fatal("a region was let in")
		}
	}
	eventually(t, "a line about the refusal", func() bool {
		return strings.Contains(r.log.String(), "PERMISSION_DENIED") && strings.Contains(r.log.String(), "kind region is not taken here")
	})
	if n := strings.Count(r.log.String(), "handshake refused"); n != 1 {
		t.Errorf("%d lines", n)
	}
}

// TestPlainTCPOnTheTLSPort: what speaks no TLS is cut off, and the log says why.
func TestPlainTCPOnTheTLSPort(t *testing.T) {
	r := newRig(t)
	d := r.open(func(c *door.Config) { c.Identity = newAuthority(t, "test").issue(identity.Region, "us-east", r.clock) })
	conn, err := net.Dial("tcp", d.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.Write([]byte("PUB orders 5\r\nhello\r\n")); err != nil {
		t.Fatal(err)
	}
	if err := conn.SetReadDeadline(time.Now().Add(wait)); err != nil {
		t.Fatal(err)
	}
	buffer := make([]byte, 64)
	for err == nil {
		_, err = conn.Read(buffer)
	}
	if e, ok := err.(net.Error); ok && e.Timeout() {
		t.Error("the connection was kept")
	}
	eventually(t, "a line about the caller", func() bool {
		return strings.Contains(r.log.String(), "PERMISSION_DENIED") && strings.Contains(r.log.String(), "does not speak TLS")
	})
	if strings.Contains(r.log.String(), "hello") {
		t.Errorf("what the caller sent is in the log:\n%s", r.log)
	}
}
