package link

import (
	"log/slog"
	"testing"
	"time"

	"domicile/api"
	"domicile/regions"
	"domicile/regions/identity"
)

// The first hello that is accepted holds the link for three beats, before any heartbeat
// has come; what was opened on it ending sets it free at once.
func TestB42_FirstHelloHoldsTheLink(t *testing.T) {
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
	gateway := func(name string) regions.Hello {
		return regions.Hello{Federation: "shop", Region: "eu-west", FabricID: "fabric-eu-west", BootID: "boot-" + name, Gateway: name, WireVersion: 1, OldestWire: 1}
	}
	m := &Mesh{cfg: Config{Self: "us-east", Identity: self, Clock: clock, Logger: slog.New(slog.DiscardHandler), Hello: func() regions.Hello {
		return regions.Hello{Federation: "shop", FabricID: "fabric-us-east", BootID: "boot-us"}
	}}}
	p := newPeerLink(m, "eu-west", []string{"x:1", "y:1"})
	m.peers = map[string]*peerLink{"eu-west": p}
	accept := func(name string, want api.Code) {
		t.Helper()
		if err := p.accept(gateway(name)); err == nil && want != "" || err != nil && api.CodeOf(err) != want {
			t.Errorf("gateway %s: %v, want %q", name, err, want)
		}
	}
	accept("a", "")
	accept("b", api.PermissionDenied)
	clock.Advance(2 * time.Second)
	accept("b", api.PermissionDenied)
	accept("a", "") // its other lane
	clock.Advance(2 * time.Second)
	accept("b", api.PermissionDenied)
	clock.Advance(time.Second)
	accept("b", "") // a was silent for three beats
	in := &inboundControl{}
	p.inboundBegun(in)
	p.heard(in, true)
	accept("a", api.PermissionDenied)
	p.inboundOver(in) // b has closed
	accept("a", "")
}
