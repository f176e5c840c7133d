package link

import (
	"maps"
	"time"

	"domicile/api"
	"domicile/regions"
)

// What happens on a link, booked under its lock.

// accept judges a peer's hello and keeps it. What another run of the peer opened here is
// closed then: what it still sends must not pass for this one's.
func (p *peerLink) accept(theirs regions.Hello) error {
	err := p.admit(theirs)
	if err == nil {
		p.mesh.gates.closeAccepted(p.name, func(c *gatedConn) bool {
			run := c.run.Load()
			return run != nil && *run != theirs.BootID
		})
	}
	return err
}

func (p *peerLink) admit(theirs regions.Hello) error {
	ours := p.mesh.hello()
	now := p.now()
	m := met{owner: p.mesh.cfg.Fabrics.owner(theirs.FabricID)}
	for _, other := range p.mesh.peers {
		if h := other.connected(now); other != p && h != nil && h.FabricID == theirs.FabricID {
			m.claimed = other.name
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	m.present = p.present(now)
	if err := checkHello(ours, theirs, p.name, m); err != nil {
		return err
	}
	if p.hello != nil && p.hello.BootID != theirs.BootID {
		p.offset.reset()
		p.displace()
	}
	p.greeted, p.wire = now, min(ours.WireVersion, theirs.WireVersion)
	if p.hello == nil || !sameHello(p.hello, &theirs) {
		p.hello = &theirs
		signal(p.changed)
	}
	return nil
}

// displace ends what an earlier run of the peer, or another of its gateways, opened or
// answered: none of it may prove anything of the one that has the link now, nor set the
// link free when it ends. Callers hold mu.
func (p *peerLink) displace() {
	if s := p.session; s != nil {
		p.session, p.outWhy = nil, errDisplaced
		s.end(errDisplaced)
	}
	p.inbound = nil
	p.health.answered, p.health.heard, p.health.hearsUs = time.Time{}, time.Time{}, false
	p.evaluate(p.now())
}

func sameHello(a, b *regions.Hello) bool {
	return maps.Equal(a.TopicDigests, b.TopicDigests) && maps.Equal(a.Incarnations, b.Incarnations) && a.FabricID == b.FabricID && a.BootID == b.BootID && a.Version == b.Version && a.WireVersion == b.WireVersion &&
		a.OldestWire == b.OldestWire && a.PolicySerial == b.PolicySerial && a.PolicyRevision == b.PolicyRevision &&
		a.SignedPolicy == b.SignedPolicy && a.FencedPolicy == b.FencedPolicy && a.PolicySigners == b.PolicySigners && a.ManifestDigest == b.ManifestDigest && a.Gateway == b.Gateway && a.TakesTails == b.TakesTails && a.CertificateEnds.Equal(b.CertificateEnds)
}

// present is the peer's hello while it is connected; else nil. Callers hold mu.
func (p *peerLink) present(now time.Time) *regions.Hello {
	if p.hello != nil && (p.health.in(now) || p.session != nil && p.health.out(now) || p.health.fresh(p.greeted, now)) {
		return p.hello
	}
	return nil
}

func (p *peerLink) connected(now time.Time) *regions.Hello {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.present(now)
}

func (p *peerLink) lastHello() *regions.Hello {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.hello
}

// speaks reports whether the link is this run's of the peer.
func (p *peerLink) speaks(run string) bool {
	h := p.lastHello()
	return h != nil && h.BootID == run
}

func (p *peerLink) hearsPeer(now time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.session != nil && p.health.hearsPeer(now)
}

// sessionBegun is false if the run that the session was made with has lost the link.
func (p *peerLink) sessionBegun(s *session) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.hello.BootID != s.data.hello.BootID {
		return false
	}
	p.session, p.health.answered, p.outWhy, p.nextDial = s, time.Time{}, nil, time.Time{}
	return true
}

func (p *peerLink) sessionOver(s *session, why error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.session == s {
		p.greeted = time.Time{}
		p.session, p.health.answered, p.outWhy = nil, time.Time{}, why
		p.evaluate(p.now())
		signal(p.changed)
	}
}

// answered books the answer to one of our heartbeats.
func (p *peerLink) answered(s *session, t0, t1, t2 time.Time) {
	now := p.now()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.session != s {
		return
	}
	before := p.health.hearsPeer(now)
	p.health.answered, p.heardAt = now, now
	p.offset.add(t0, t1, t2, now)
	p.proven(now, before)
}

// heard books a heartbeat of the peer.
func (p *peerLink) heard(in *inboundControl, hearsUs bool) {
	now := p.now()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.inbound != in {
		return
	}
	before := p.health.hearsPeer(now)
	p.health.heard, p.health.hearsUs, p.heardAt = now, hearsUs, now
	p.inWhy = nil
	p.proven(now, before)
}

// proven goes on from a new proof: what we hear now is told at once, so that a link
// comes up in round trips and not in heartbeats.
func (p *peerLink) proven(now time.Time, heardBefore bool) {
	if p.health.hearsPeer(now) != heardBefore && p.session != nil {
		signal(p.session.beatDue)
	}
	p.evaluate(now)
}

// inboundControl is one control stream that the peer opened.
type inboundControl struct{ conn *gatedConn }

// inboundBegun is false if the run that opened it has lost the link.
func (p *peerLink) inboundBegun(in *inboundControl) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.hello.BootID != *in.conn.run.Load() {
		return false
	}
	p.inbound, p.health.heard, p.health.hearsUs = in, time.Time{}, false
	signal(p.kick) // the peer is there: do not sit out a wait that was set while it was not
	return true
}

func (p *peerLink) inboundOver(in *inboundControl) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.inbound == in {
		p.greeted = time.Time{}
		p.inbound, p.health.heard, p.health.hearsUs = nil, time.Time{}, false
		p.evaluate(p.now())
		signal(p.changed)
	}
}

func (p *peerLink) isInbound(in *inboundControl) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.inbound == in
}

// refused keeps why the peer was turned away, for status.
func (p *peerLink) refused(why error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.inWhy = why
	signal(p.changed)
}

func isUnknown(err error) bool { return api.CodeOf(err) == api.OutcomeUnknown }
