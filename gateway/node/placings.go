package node

import (
	"slices"
	"strings"
	"time"

	"domicile/api"
	pb "domicile/api/domicile/v1"
	"domicile/gateway/admin"
	"domicile/regions/fabric"
	"domicile/regions/placement"
)

// openPlacings makes what operators see of the placement.
func (n *Node) openPlacings() {
	n.placings = admin.NewPlacements(admin.PlacementConfig{
		Region: n.cfg.Region, Federation: n.federation, Clock: n.seams.Clock, Logs: n.placedLogs, Lease: n.lease, Authority: n.authorityState,
		Change: n.changeAuthority, Widen: n.widenTerms,
	})
}

func (n *Node) placedLogs() map[api.LogID]placement.Log {
	if n.placer == nil {
		return nil
	}
	logs, _ := n.placer.Placements()
	return logs
}

// lease is how much is left of the region's lease on a log, in the node's own time. Only
// the node with the region's seat has any.
func (n *Node) lease(id api.LogID) (time.Duration, bool) {
	if n.placer == nil || n.turn.Load() == nil {
		return 0, false
	}
	left, ok := n.placer.Left(id)
	return n.seams.Pace.Of(left), ok
}

func (n *Node) authorityState() *pb.AuthorityState {
	m := &pb.AuthorityState{Voters: n.federation.Voters(), Role: "none", Witness: n.cfg.Witness(n.federation)}
	if n.placer == nil {
		return m
	}
	m.Role = "follower"
	if t := n.voterless.Load(); t != nil {
		m.Trouble = *t
	}
	m.Name, m.Generation, m.Version = n.placer.Authority()
	var ago time.Duration
	if ago, m.Reached, m.Heard = n.placer.Answered(); m.Heard {
		m.AnsweredNanoAgo = int64(n.seams.Pace.Of(ago))
	}
	v := n.voter.Load()
	if v == nil {
		return m
	}
	s := v.Status()
	m.Role, m.Leader, m.Term, m.Entries, m.Applied, m.Voting = "voter", s.Leader, s.Term, s.Entries, s.Applied, s.Voters
	m.LeaderHeard, m.LeaderHeardNanoAgo = s.Heard, int64(s.HeardAgo)
	if free, _, err := fabric.Statfs(n.cfg.Data); err == nil {
		m.FreeKnown, m.FreeBytes = true, uint64(free)
	}
	if s.Failed != nil {
		m.Trouble = "the voter stands still: " + s.Failed.Error()
	}
	for region, r := range s.Rivals {
		m.Rivals = append(m.Rivals, region)
		if r.Generation == 0 && s.Generation == 0 {
			if ours := strings.Join(s.Roll, ","); r.Voters != "" && ours != "" && r.Voters != ours {
				m.Trouble = "the voter of " + region + " was made by a federation.yaml that has " + r.Voters + " vote, this one's by " + ours + ": bring the files to one list; "
			}
			m.Trouble += "voters that were founded under differing names never agree: stop the nodes of all but one of them, move their folder " + councilFolder + " away, and run domicile control found there with --authority " + s.Authority
		}
	}
	slices.Sort(m.Rivals)
	if m.Trouble == "" && m.Role == "voter" && len(m.Voting) > 0 && !slices.Equal(slices.Sorted(slices.Values(m.Voting)), m.Voters) {
		m.Trouble = "who votes and who does by federation.yaml differ: " + strings.Join(m.Voting, ", ") + " | " + strings.Join(m.Voters, ", ") + "; domicile control voters add and remove change the first"
	}
	return m
}

// placementWarnings are what an operator should know of this region's part in the
// placement authority.
func (n *Node) placementWarnings() []string {
	if n.placer == nil {
		return nil
	}
	var out []string
	m := n.authorityState()
	if m.Trouble != "" {
		out = append(out, m.Trouble)
	}
	if n.turn.Load() == nil {
		return out
	}
	if t := n.placer.Trouble(); t != "" {
		out = append(out, "the placement authority has not taken a log's declaration: "+t)
	}
	if !m.Reached {
		out = append(out, "the placement authority is out of reach: logs with fence_after take no record once their lease has run out, the others that may move go on and say so in their acks; logs that never move are not touched")
	}
	return out
}
