package main

import (
	"fmt"
	"strings"
	"time"

	pb "domicile/api/domicile/v1"
)

type seatView struct {
	Mode   string        `json:"mode"`
	Node   string        `json:"node,omitempty"`
	Holder *string       `json:"holder"`
	Open   bool          `json:"open_here"`
	Term   *uint64       `json:"term"`
	Since  *time.Time    `json:"since"`
	Reason string        `json:"reason,omitempty"`
	Quorum bool          `json:"quorum"`
	Nodes  []siblingView `json:"nodes"`
}

type siblingView struct {
	Name  string     `json:"name"`
	Self  bool       `json:"self"`
	Up    bool       `json:"up"`
	Heard *time.Time `json:"heard"`
	// Null where the node was not asked or did not answer.
	Manifest *string `json:"manifest_digest"`
	Policy   *string `json:"policy_revision"`
	Lacks    *string `json:"lacks"` // null: not known
}

func viewSeat(s *pb.SeatState) *seatView {
	if s == nil {
		return nil // a node of an older version
	}
	v := &seatView{Mode: s.GetMode(), Node: s.GetNode(), Holder: known(s.GetHolder(), s.GetHolder() != ""), Open: s.GetOpen(),
		Term: known(s.GetTerm(), s.GetTerm() != 0), Since: timeView(s.GetSinceUnixNano()), Reason: s.GetReason(), Quorum: s.GetQuorum(), Nodes: []siblingView{}}
	for _, n := range s.GetNodes() {
		v.Nodes = append(v.Nodes, siblingView{Name: n.GetName(), Self: n.GetSelf(), Up: n.GetUp(), Heard: timeView(n.GetHeardUnixNano()),
			Manifest: known(n.GetManifestDigest(), n.GetManifestDigest() != ""), Policy: known(n.GetPolicyRevision(), n.GetManifestDigest() != ""),
			Lacks: known(n.GetLacks(), n.GetUp())})
	}
	return v
}

// seatText is the region's nodes and who of them writes its logs; nothing for a region
// of one node that does.
func seatText(s *pb.SeatState, now time.Time) string {
	if s == nil || s.GetMode() != "quorum" && s.GetOpen() {
		return ""
	}
	var rows [][]string
	if s.GetMode() == "quorum" {
		holder := "held by " + firstOf(s.GetHolder(), "nobody, as far as this node knows")
		if s.GetOpen() {
			holder = "held here"
		}
		if s.GetTerm() > 0 {
			holder += fmt.Sprintf(", term %d", s.GetTerm())
		}
		if s.GetSinceUnixNano() != 0 {
			holder += ", for " + sinceText(s.GetSinceUnixNano(), now)
		}
		rows = append(rows, []string{"seat", holder}, []string{"quorum", quorumText(s)})
		for _, n := range s.GetNodes() {
			rows = append(rows, []string{n.GetName(), siblingText(n, now)})
		}
	}
	if !s.GetOpen() && s.GetReason() != "" {
		rows = append(rows, []string{"not here", s.GetReason()})
	}
	var b strings.Builder
	section(&b, "Nodes of this region", rows, unknown)
	return b.String()
}

func quorumText(s *pb.SeatState) string {
	up := 0
	for _, n := range s.GetNodes() {
		if n.GetUp() {
			up++
		}
	}
	if s.GetQuorum() {
		return fmt.Sprintf("yes: %d of %d nodes are heard", up, len(s.GetNodes()))
	}
	return fmt.Sprintf("no: %d of %d nodes is heard; nothing is stored", up, len(s.GetNodes()))
}

func siblingText(n *pb.NodeState, now time.Time) string {
	files := ""
	if n.GetManifestDigest() != "" {
		files = ", manifest " + n.GetManifestDigest() + ", policy " + firstOf(n.GetPolicyRevision(), "none active")
	}
	switch {
	case n.GetSelf():
		return "up, this node" + files + lacksText(n)
	case n.GetUp():
		return "up" + files + lacksText(n)
	case n.GetHeardUnixNano() == 0:
		return "not heard in this run"
	}
	return "not heard for " + sinceText(n.GetHeardUnixNano(), now)
}

// saidBy names the node that knows, when another one was asked.
func saidBy(node string) string {
	if node == "" {
		return ""
	}
	return " (from " + node + ", which holds the region's seat)"
}

// logsKnown: the logs are open at the node that was asked, or the one where they are
// told of them.
func logsKnown(s *pb.StatusResponse) bool {
	return s.GetSeat() == nil || s.GetSeat().GetOpen() || s.GetFrom() != ""
}

func lacksText(n *pb.NodeState) string {
	if n.GetLacks() == "" {
		return ""
	}
	return "; may lack records: " + n.GetLacks()
}

// noTrouble is what stands for an empty list of troubles: none, if the logs are known.
func noTrouble(s *pb.StatusResponse) string {
	if !logsKnown(s) {
		return "  " + unknown + ": this node does not have the logs open\n"
	}
	return fmt.Sprintf("  none of %d\n", s.GetLogs())
}
