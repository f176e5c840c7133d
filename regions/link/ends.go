package link

import (
	"net"
	"net/netip"

	"domicile/regions"
)

// End is an open connection of a link, as this node sees it.
type End struct {
	Peer          string
	Local, Remote netip.AddrPort // zero: the connection has no such address
}

// Open lists the open connections whose peer is known.
func (g *Gates) Open() []End {
	g.mu.Lock()
	defer g.mu.Unlock()
	var out []End
	for e := range g.ends {
		for c := range e.conns {
			if peer, _ := c.who(); peer != "" {
				out = append(out, End{peer, addressOf(c.LocalAddr()), addressOf(c.RemoteAddr())})
			}
		}
	}
	return out
}

func addressOf(a net.Addr) netip.AddrPort {
	if tcp, ok := a.(*net.TCPAddr); ok {
		at := tcp.AddrPort()
		return netip.AddrPortFrom(at.Addr().Unmap(), at.Port())
	}
	return netip.AddrPort{}
}

// ends are the connections of one mesh under the gates of its node.
type ends struct {
	*Gates
	told func(peer string) // a cut of this peer began or ended

	conns map[*gatedConn]struct{} // guarded by Gates.mu, as what follows
	over  bool
}

// attach begins the life of a mesh under the gates; detach ends it.
func (g *Gates) attach(told func(peer string)) *ends {
	e := &ends{Gates: g, told: told, conns: map[*gatedConn]struct{}{}}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.ends[e] = struct{}{}
	return e
}

func (e *ends) add(c *gatedConn) {
	e.mu.Lock()
	over := e.over
	if !over {
		e.conns[c] = struct{}{}
	}
	e.mu.Unlock()
	if over {
		c.Close()
	}
}

func (e *ends) remove(c *gatedConn) {
	e.mu.Lock()
	delete(e.conns, c)
	e.mu.Unlock()
}

// closeAccepted closes the connections that a peer opened and that doomed picks.
func (e *ends) closeAccepted(peer string, doomed func(*gatedConn) bool) {
	e.closeSome(peer, func(c *gatedConn) bool { return c.origin == regions.In && doomed(c) })
}

// closeSome closes the connections with a peer that doomed picks.
func (e *ends) closeSome(peer string, doomed func(*gatedConn) bool) {
	var theirs []*gatedConn
	e.mu.Lock()
	for c := range e.conns {
		if name, _ := c.who(); name == peer {
			theirs = append(theirs, c)
		}
	}
	e.mu.Unlock()
	for _, c := range theirs {
		if doomed(c) {
			c.Close()
		}
	}
}

// detach closes every connection of the mesh. What is cut stays so for the node's next.
func (e *ends) detach() {
	e.mu.Lock()
	e.over = true
	delete(e.ends, e)
	left := make([]*gatedConn, 0, len(e.conns))
	for c := range e.conns {
		left = append(left, c)
	}
	e.mu.Unlock()
	for _, c := range left {
		c.Close()
	}
}
