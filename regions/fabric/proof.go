package fabric

import (
	"context"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// A node that comes back with less than it had has forgotten what it stored and voted. That
// is harmless from the moment on at which both its siblings have all that was ever agreed
// on without it: nothing is then held by two nodes of which it is one. They prove that to
// it, group by group of the replicas of a stream: one of them leads, under a term that the
// other follows, and the other has, on disk and carried out, all that the leader had when it
// was asked.

// replica is one node's word on its part in a group.
type replica struct {
	Term  uint64 `json:"term"`
	Leads bool   `json:"leads,omitempty"`
	After string `json:"after,omitempty"` // the server that it follows
	Whole bool   `json:"whole,omitempty"` // a leader: the other has all; a follower: it carried out all
}

// proved: these two, of a group without its third replica, have the same, and all of it.
func proved(a, b replica, serverA, serverB string) bool {
	if b.Leads {
		a, b, serverA = b, a, serverB
	}
	return a.Leads && !b.Leads && b.After == serverA && a.Term == b.Term && a.Whole && b.Whole
}

// standing says how this node's groups stand without one of the region's nodes, once they
// are whole or when ctx ends.
func (f *Fabric) standing(ctx context.Context, without string) map[string]replica {
	out := map[string]replica{}
	b, err := f.running()
	if err != nil || b.js == nil {
		return out
	}
	first := raftGroups(b.srv)
	tick := time.NewTicker(max(f.cfg.Pace.Of(lookEvery), time.Millisecond))
	defer tick.Stop()
	for {
		now, whole := raftGroups(b.srv), true
		for name, g := range first {
			r := f.replicaOf(now[name], g, without)
			out[name] = r
			whole = whole && r.Whole
		}
		if whole {
			return out
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return out
		}
	}
}

// replicaOf holds how a group stands now against how it stood first.
func (f *Fabric) replicaOf(now, first server.RaftzGroup, without string) replica {
	r := replica{Term: now.Term, Leads: now.State == server.Leader.String(), After: now.Peers[now.Leader].Name}
	if !r.Leads {
		r.Whole = !now.Paused && !now.CatchingUp && now.Applied >= first.Committed && now.Term == first.Term
		return r
	}
	r.After = ""
	for _, p := range now.Peers {
		if p.Name != serverName(f.cfg.Region, without) && p.Name != "" {
			r.Whole = p.LastReplicatedIndex >= first.PIndex && now.Term == first.Term && first.State == now.State
		}
	}
	return r
}
