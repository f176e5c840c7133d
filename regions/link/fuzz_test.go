package link

import (
	"crypto/tls"
	"math/rand/v2"
	"net"
	"slices"
	"testing"

	"domicile/regions"
	"domicile/regions/identity"
)

// names hands a server name and a protocol, which come before any certificate, to the accepting
// side: it is refused, or it names a lane and a region that has a link, and none else.
func names(t testing.TB, c claimed, server, protocol string) {
	here, there := net.Pipe()
	raw := newGatedConn(here, c.mesh.gates, c.clock, regions.In, nil)
	defer there.Close()
	defer raw.Close()
	var caller identity.Peer
	config := laneCredentials{c.mesh}.config(raw, &caller)
	if _, err := config.GetConfigForClient(&tls.ClientHelloInfo{ServerName: server, SupportedProtos: []string{protocol}}); err != nil {
		return
	}
	peer, plane := raw.who()
	if c.mesh.peers[peer] == nil || !slices.Contains(Planes(), plane) || serverName(plane, peer) != server {
		t.Errorf("%q is taken for lane %q of region %q", server, plane, peer)
	}
}

func FuzzServerName(f *testing.F) {
	c := newClaimed(f)
	for _, plane := range Planes() {
		f.Add(serverName(plane, "eu-west"), "h2")
		f.Add(serverName(plane, "us-east"), "domicile-gossip")
	}
	f.Add("control.eu-west.eu-west.link.domicile", "")
	f.Add(".link.domicile", "\x00")
	f.Fuzz(func(t *testing.T, server, protocol string) { names(t, c, server, protocol) })
}

func TestFA7_AThousandServerNames(t *testing.T) {
	c := newClaimed(t)
	random := rand.New(rand.NewPCG(7, 0x41))
	for range 1000 {
		b := make([]byte, random.IntN(100))
		for i := range b {
			b[i] = byte(random.Uint32())
		}
		names(t, c, string(b), string(b))
		lie := []byte(serverName(Planes()[random.IntN(len(Planes()))], "eu-west"))
		lie[random.IntN(len(lie))] = byte(random.Uint32())
		names(t, c, string(lie), "h2")
	}
}
