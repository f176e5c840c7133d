package node

import (
	"context"
	"maps"
	"slices"

	"domicile/gateway/admin"
	"domicile/regions/gossip"
)

// openGossip begins to gossip with the regions that have a link with this one. Nothing
// depends on it: where it does not open the node says so, and goes on.
func (t *turn) openGossip(context.Context) error {
	pool, err := gossip.Open(t.life, gossip.Config{
		Region: t.cfg.Region, Gateway: t.cfg.Node, Gateways: t.gateways(), Lines: t.mesh.Gossip(), Ours: t.word, Refused: t.refused,
		Clock: t.seams.Clock, Pace: t.seams.Pace, Logger: t.logger,
	})
	if err != nil {
		t.logger.Error("this node does not gossip, and hints at nothing", "err", err)
		return nil
	}
	t.gossip = pool
	t.onClose("gossip", func(context.Context) error { return pool.Close() })
	return nil
}

// gateways are those of the manifest, of this region and of each that has a link with it.
func (t *turn) gateways() map[string][]string {
	out := map[string][]string{}
	for _, name := range append(t.federation.Peers(t.cfg.Region), t.cfg.Region) {
		out[name] = []string{""}
		if r, ok := t.federation.Region(name); ok && r.Quorum() {
			out[name] = slices.Sorted(maps.Keys(r.Gateways))
		}
	}
	return out
}

// word is what this node says of itself.
func (t *turn) word() gossip.Word {
	w := gossip.Word{Manifest: t.federation.Digest()}
	if t.placer != nil {
		w.Authority, w.Generation, w.Version = t.placer.Authority()
	}
	return w
}

// gossiped is what the gossip says on the node that has the region's seat.
func (n *Node) gossiped() (admin.Gossip, bool) {
	t := n.turn.Load()
	if t == nil || t.gossip == nil {
		return admin.Gossip{}, false
	}
	p := t.gossip
	return admin.Gossip{Members: p.Members(), Peers: p.Peers(), Hints: p.Hints(), Refused: p.Refused()}, true
}
