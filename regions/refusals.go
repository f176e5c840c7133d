package regions

import (
	"cmp"
	"log/slog"
	"slices"
	"sync"
	"time"
)

// Lane is a way in for what another region says.
type Lane string

// The lanes. A name in metrics and status: not changed once it is there.
const (
	LaneHello     Lane = "hello"
	LaneWatermark Lane = "watermark" // heartbeats too: all of the control stream but hellos and tails
	LaneTail      Lane = "tail"
	LaneForward   Lane = "forward"
	LaneMirror    Lane = "mirror"
	LanePolicy    Lane = "policy"
	LaneAuthority Lane = "authority"
	LaneGossip    Lane = "gossip"
	LaneHandover  Lane = "handover" // of the nodes of one region: the peer is a node
)

// Refusal is why something that another region said was not taken.
type Refusal string

// The reasons.
const (
	Malformed  Refusal = "malformed"  // it can't be read, or no correct node says it
	TooLarge   Refusal = "too_large"  // beyond what the lane takes
	NotTheirs  Refusal = "not_theirs" // it speaks for another region, or of what is another's
	NotAllowed Refusal = "not_allowed"
	Impossible Refusal = "impossible" // it contradicts what is known, as a fabric that is another region's
	otherwise  Refusal = "other"
)

// otherLane stands for a lane that is not of the list, so that no caller widens the set.
const otherLane Lane = "other"

// PeerRefused is how often one reason was met on one lane of one peer.
type PeerRefused struct {
	Peer   string
	Lane   Lane
	Reason Refusal
	Count  uint64
	Last   time.Time
}

// PeerRefusals counts the lies and the garbage of other regions that were refused in this run.
// What passes by itself is none of it: a version, a policy or a manifest that differs, a peer
// that is busy or shuts down. It is safe for concurrent use; a nil one counts nothing.
type PeerRefusals struct {
	clock Clock
	log   *slog.Logger

	mu    sync.Mutex
	total map[PeerRefused]PeerRefused // key: without count and time
	told  map[PeerRefused]time.Time   // when the log had a line of it
}

// tellEvery is how long the log has no second line of the same peer, lane and reason.
const tellEvery = time.Minute

// NewPeerRefusals counts from nothing. The log gets a line of each peer, lane and reason, and
// then one a minute at most: whoever lies does not fill it.
func NewPeerRefusals(clock Clock, log *slog.Logger) *PeerRefusals {
	return &PeerRefusals{clock: clock, log: log, total: map[PeerRefused]PeerRefused{}, told: map[PeerRefused]time.Time{}}
}

// Add counts one. The peer is the region in a verified certificate, never what a message
// says: these are the regions of the manifest, and bound how much is kept.
func (r *PeerRefusals) Add(peer string, lane Lane, why Refusal) {
	if r == nil {
		return
	}
	switch lane {
	case LaneHello, LaneWatermark, LaneTail, LaneForward, LaneMirror, LanePolicy, LaneAuthority, LaneGossip, LaneHandover:
	default:
		lane = otherLane
	}
	switch why {
	case Malformed, TooLarge, NotTheirs, NotAllowed, Impossible:
	default:
		why = otherwise
	}
	key := PeerRefused{Peer: peer, Lane: lane, Reason: why}
	now := r.clock.Now()
	r.mu.Lock()
	t := key
	t.Count, t.Last = r.total[key].Count+1, now
	r.total[key] = t
	last, told := r.told[key]
	tell := !told || now.Sub(last) >= tellEvery
	if tell {
		r.told[key] = now
	}
	r.mu.Unlock()
	if tell {
		r.log.Warn("what another region says is refused: no correct node says it",
			"peer", peer, "lane", string(lane), "reason", string(why), "count", t.Count)
	}
}

// Totals lists what was counted, by peer, lane and reason.
func (r *PeerRefusals) Totals() []PeerRefused {
	if r == nil {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	out := make([]PeerRefused, 0, len(r.total))
	for _, t := range r.total {
		out = append(out, t)
	}
	slices.SortFunc(out, func(a, b PeerRefused) int {
		return cmp.Or(cmp.Compare(a.Peer, b.Peer), cmp.Compare(a.Lane, b.Lane), cmp.Compare(a.Reason, b.Reason))
	})
	return out
}
