package admin

import (
	pb "domicile/api/domicile/v1"
	"domicile/api/wire"
)

// The modes of a region as they are written.
const (
	modeSolo   = "solo"
	modeQuorum = "quorum"
)

func seatState(v *View) *pb.SeatState {
	s := &v.Seat
	m := &pb.SeatState{Mode: modeSolo, Node: s.Node, Holder: s.Holder, Open: s.Open, Term: s.Term,
		SinceUnixNano: wire.TimeToProto(s.Since), Reason: s.Reason, Quorum: s.Quorum}
	if s.Node != "" {
		m.Mode = modeQuorum
	}
	for _, n := range s.Nodes {
		files := v.Files[n.Name]
		m.Nodes = append(m.Nodes, &pb.NodeState{Name: n.Name, Self: n.Self, Up: n.Up, HeardUnixNano: wire.TimeToProto(n.Heard),
			ManifestDigest: files.GetManifestDigest(), PolicyRevision: files.GetPolicyRevision(), Lacks: n.Lacks})
	}
	return m
}

// missingNodes says which nodes of the region are not heard: one more, and there is no
// quorum.
func missingNodes(s *Seat) []string {
	var out []string
	for _, n := range s.Nodes {
		if !n.Up {
			out = append(out, "node "+n.Name+" of this region is not heard")
		}
	}
	return out
}

// lackingNodes says which nodes that are up do not hold all of the region's logs: until they
// do, the region may not be able to spare another one.
func lackingNodes(s *Seat) []string {
	var out []string
	for _, n := range s.Nodes {
		if n.Lacks != "" {
			out = append(out, "node "+n.Name+" may lack records of the region: "+n.Lacks)
		}
	}
	return out
}

// lacks is what this node lacks; nothing while it has the logs open.
func (s *Seat) lacks() string {
	for _, n := range s.Nodes {
		if n.Self && !s.Open {
			return n.Lacks
		}
	}
	return ""
}

// belowQuorum: the region is one of three nodes and less than a majority is heard.
func (s *Seat) belowQuorum() bool { return s.Node != "" && !s.Quorum }
