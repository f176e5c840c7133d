package link

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"testing"
	"time"

	"domicile/api"
	"domicile/regions"
	"domicile/regions/identity"
)

// claimed is the end of a link with a region of several gateways, on a clock that a test
// sets. Nothing is dialed.
type claimed struct {
	testing.TB
	*peerLink
	clock *regions.ManualClock
}

func newClaimed(t testing.TB) claimed {
	clock := regions.NewManualClock(start)
	ca, err := identity.NewCA("shop", start, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	cert, key, err := ca.Issue(identity.Region, "us-east", start, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	self, err := identity.New(cert, key, ca.CertPEM(), clock)
	if err != nil {
		t.Fatal(err)
	}
	m := &Mesh{cfg: Config{Self: "us-east", Identity: self, Clock: clock, Logger: slog.New(slog.DiscardHandler), Hello: func() regions.Hello {
		return regions.Hello{Federation: "shop", FabricID: "fabric-us-east", BootID: "boot-us"}
	}}}
	p := newPeerLink(m, "eu-west", []string{"x:1", "y:1"})
	m.peers = map[string]*peerLink{"eu-west": p}
	m.gates = newGates(func() time.Duration { return 0 }, func(string) bool { return true }, func(string) {})
	return claimed{t, p, clock}
}

// greets says hello for a gateway and wants this code, "" for accepted.
func (c claimed) greets(gateway string, want api.Code) {
	c.Helper()
	err := c.accept(regions.Hello{Federation: "shop", Region: "eu-west", FabricID: "fabric-eu-west", BootID: "boot-" + gateway, Gateway: gateway, WireVersion: 1, OldestWire: 1})
	if err == nil && want != "" || err != nil && api.CodeOf(err) != want {
		c.Errorf("gateway %s: %v, want %q", gateway, err, want)
	}
}

// accepts is a connection that a gateway opened and greeted on.
func (c claimed) accepts(gateway string, plane Plane) *gatedConn {
	here, there := net.Pipe()
	conn := newGatedConn(here, c.mesh.gates, c.clock, regions.In, nil)
	c.Cleanup(func() { conn.Close(); there.Close() })
	run := "boot-" + gateway
	conn.identify("eu-west", plane)
	conn.run.Store(&run)
	return conn
}

// The first hello that is accepted holds the link for three beats, before any heartbeat
// has come; what was opened on it ending sets it free at once.
func TestB42_FirstHelloHoldsTheLink(t *testing.T) {
	c := newClaimed(t)
	c.greets("a", "")
	c.greets("b", api.PermissionDenied)
	c.clock.Advance(2 * time.Second)
	c.greets("b", api.PermissionDenied)
	c.greets("a", "") // its other lane
	c.clock.Advance(2 * time.Second)
	c.greets("b", api.PermissionDenied)
	c.clock.Advance(time.Second)
	c.greets("b", "") // a was silent for three beats
	in := &inboundControl{conn: c.accepts("b", Control)}
	c.inboundBegun(in)
	c.heard(in, true)
	c.greets("a", api.PermissionDenied)
	c.inboundOver(in) // b has closed
	c.greets("a", "")
}

// A holder of the seat goes silent, the next one takes the link, and the first one wakes
// up: nothing that it opened, answers or sends proves anything from then on, and its end
// sets nothing free.
func TestB42_NothingOfTheFormerHolderCounts(t *testing.T) {
	c := newClaimed(t)
	c.greets("a", "")
	s := newSession(c.peerLink)
	s.control, s.data = &lane{hello: regions.Hello{BootID: "boot-a"}}, &lane{hello: regions.Hello{BootID: "boot-a"}}
	s.ctx, s.stop = context.WithCancelCause(t.Context())
	control, data := c.accepts("a", Control), c.accepts("a", Data)
	in := &inboundControl{conn: control}
	if !c.sessionBegun(s) || !c.inboundBegun(in) {
		t.Fatal("the first holder did not get the link")
	}
	hears := func() {
		c.answered(s, c.now(), c.now(), c.now())
		c.heard(in, true)
	}
	if hears(); !c.health.up(c.now()) || !c.up {
		t.Fatal("the link is not up with the first holder")
	}
	c.clock.Advance(3 * time.Second)
	c.greets("b", "")
	if c.current() != nil || !errors.Is(context.Cause(s.ctx), errDisplaced) {
		t.Errorf("the session with the first holder goes on: %v", context.Cause(s.ctx))
	}
	for _, conn := range []*gatedConn{control, data} {
		select {
		case <-conn.closed:
		default:
			t.Errorf("the %s lane of the first holder is open", conn.plane)
		}
	}
	if hears(); c.up || c.health.out(c.now()) || c.health.in(c.now()) || c.isInbound(in) {
		t.Error("the first holder proves something for the second")
	}
	c.sessionOver(s, errUnanswered)
	c.inboundOver(in)
	c.greets("a", api.PermissionDenied)
	if c.sessionBegun(s) || c.inboundBegun(in) {
		t.Error("the first holder has the link again without a hello")
	}
	if hello := c.lastHello(); hello.Gateway != "b" {
		t.Errorf("the link is said to be with %s", hello.Gateway)
	}
}
