package node

import (
	"context"

	"domicile/api"
	"domicile/regions"
	"domicile/regions/link"
)

// peers is a turn as its links see it: what comes from other regions goes to the part
// that it is for.
type peers turn

// Forwarded gives a peer's record to the gateway.
func (p *peers) Forwarded(ctx context.Context, peer string, f regions.Forward, done func(api.Ack, error)) {
	p.gateway.Forwarded(ctx, peer, f, done)
}

// OpenMirror gives a peer's flow to the copy it is for.
func (p *peers) OpenMirror(ctx context.Context, peer string, o regions.MirrorOpen) (link.MirrorSink, regions.MirrorReply) {
	sink, reply := p.target.OpenMirror(ctx, peer, o)
	if sink == nil {
		return nil, reply // not a nil *Sink in an interface
	}
	p.named(o.Log, o.Incarnation)
	return sink, reply
}

// Marks is this region's next watermark round for a peer.
func (p *peers) Marks(peer string, all bool) regions.Watermarks { return p.source.Marks(peer, all) }

// Watermarks gives a peer's round to the copies.
func (p *peers) Watermarks(peer string, w regions.Watermarks) {
	p.target.Watermarks(peer, w)
	for _, m := range w.Logs {
		if home, _, ok := p.federation.Home(m.Log); ok && home == peer {
			p.named(m.Log, m.Incarnation)
		}
	}
}

const maxIncarnation = 128 // bytes; see mirror

// named takes in the incarnation of a log, as its home says it, if it may move.
func (p *peers) named(id api.LogID, incarnation string) {
	if api.IsWord(incarnation, maxIncarnation) && p.logs.movable(id, p.federation) {
		p.placer.Heard(id, incarnation)
	}
}

// TellTail says which records of this region's movable logs a peer does not have yet.
func (p *peers) TellTail(ctx context.Context, peer string, budget int, send func(context.Context, regions.TailList) error) {
	p.source.TellTail(ctx, peer, budget, send)
}

// HearTail takes what a peer says of its logs that this region has copies of.
func (p *peers) HearTail(peer string, l regions.TailList) { p.target.HearTail(peer, l) }

// LinkChanged wakes the flows that waited for the link and whoever fetches policies, and
// takes in which logs the peer has.
func (p *peers) LinkChanged(s regions.LinkStatus) {
	if s.Hello != nil {
		for id, incarnation := range s.Hello.Incarnations {
			if home, _, ok := p.federation.Home(id); ok && home == s.Peer {
				p.named(id, incarnation)
			}
		}
	}
	p.source.LinkChanged(s)
	select {
	case p.newer <- struct{}{}:
	default:
	}
}

// LinkTo is what this node knows of its region's link to a peer, while it holds the seat.
func (n *Node) LinkTo(peer string) (regions.LinkStatus, bool) {
	if t := n.turn.Load(); t != nil {
		return t.mesh.Status(peer)
	}
	return regions.LinkStatus{}, false
}
