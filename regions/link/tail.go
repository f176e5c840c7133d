package link

import (
	"context"
	"time"

	"google.golang.org/protobuf/proto"

	pb "domicile/api/domicile/v1"
	"domicile/api/wire"
	"domicile/regions"
)

const (
	tailShare   = 0.05 // of what the data lane is measured to carry
	tailsAbeat  = 4    // so often a heartbeat the node is asked
	leastTail   = 512  // bytes; below that no list is begun
	tailsQueued = 16   // heard, and not taken by the node yet; more are dropped
)

// Tails is the node's part in telling which records are on their way. What of it gets lost
// is unknown to the peer, and harms nothing else.
type Tails interface {
	// TellTail says what a peer's copies lack, in lists of about budget bytes in all. It is
	// called from one goroutine for each peer while the link is up. send waits until the
	// list is on its way.
	TellTail(ctx context.Context, peer string, budget int, send func(context.Context, regions.TailList) error)
	// HearTail takes a peer's list. Those of one peer come in order.
	HearTail(peer string, l regions.TailList)
}

// perSecond is the rate of the line as it was measured last; 0: it was not.
func (p *pacer) perSecond() float64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.rate.perSecond
}

// tellTails asks the node, every part of a heartbeat, for as much as the lane may carry.
// What was not used is good for a second.
func (s *session) tellTails() error {
	node := s.peer.mesh.cfg.Tails
	if node == nil {
		return nil
	}
	every := s.peer.beat / tailsAbeat
	tick := time.NewTicker(every)
	defer tick.Stop()
	left := float64(leastTail)
	for {
		select {
		case <-tick.C:
		case <-s.ctx.Done():
			return nil
		}
		rate := tailShare * max(s.data.raw.pacer.perSecond(), slowestLine)
		left = min(left+rate*every.Seconds(), max(rate, leastTail))
		if h := s.peer.lastHello(); left < leastTail || h == nil || !h.TakesTails {
			continue
		}
		ctx, cancel := context.WithTimeout(s.ctx, s.peer.beat)
		node.TellTail(ctx, s.peer.name, int(left), func(ctx context.Context, l regions.TailList) error {
			m := wire.TailToProto(&l)
			left -= float64(proto.Size(m))
			select {
			case s.tails <- m:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		})
		cancel()
	}
}

// hearTail hands a list on, apart from the stream. What the node does not keep up with is
// dropped.
func (s *service) hearTail(m *pb.TailList, tails chan<- regions.TailList) error {
	if s.mesh.cfg.Tails == nil {
		return nil
	}
	l, err := wire.TailFromProto(m)
	if err != nil {
		return err
	}
	select {
	case tails <- l:
	default:
	}
	return nil
}

// passTails gives the node the lists of a stream until it ends.
func (p *peerLink) passTails(ctx context.Context, in *inboundControl, tails <-chan regions.TailList) {
	for {
		select {
		case l := <-tails:
			if p.isInbound(in) {
				p.mesh.cfg.Tails.HearTail(p.name, l)
			}
		case <-ctx.Done():
			return
		}
	}
}
