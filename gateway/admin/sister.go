package admin

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"domicile/api"
	pb "domicile/api/domicile/v1"
)

// Answer answers what an operator asked at another node of the region, from this node
// alone. What needs the region's logs is refused with NotReady while they are not open
// here.
func (a *Admin) Answer(ctx context.Context, q *pb.AskOver) (*pb.AskAnswer, error) {
	// Less than the asker waits: what a source that hangs leaves out must not be all of it.
	ctx, cancel := context.WithTimeout(ctx, askTimeout*2/3)
	defer cancel()
	if q.GetFiles() != nil {
		return &pb.AskAnswer{Answer: &pb.AskAnswer_Files{Files: a.files(ctx)}}, nil
	}
	if seat := a.config.Sources.Seat(); !seat.Open {
		return nil, a.notOpen("ask node", &seat)
	}
	switch {
	case q.GetStatus() != nil:
		return &pb.AskAnswer{Answer: &pb.AskAnswer_Status{Status: Assemble(a.view(ctx))}}, nil
	case q.GetTopics() != nil:
		m, err := a.topics(ctx, q.GetTopics().GetTopic())
		return &pb.AskAnswer{Answer: &pb.AskAnswer_Topics{Topics: m}}, err
	case q.GetLag() != nil:
		m, err := a.lagHere(ctx, q.GetLag().GetTopic())
		return &pb.AskAnswer{Answer: &pb.AskAnswer_Lag{Lag: m}}, err
	}
	return nil, &api.Error{Code: api.BadRequest, Op: "ask node", Region: a.config.Region, Field: "question", Hint: "this version does not know it"}
}

func (a *Admin) notOpen(op string, s *Seat) error {
	return &api.Error{Code: api.NotReady, Op: op, Region: a.config.Region, RetryAfter: time.Second, Hint: s.Reason}
}

// files is what this node has in force.
func (a *Admin) files(ctx context.Context) *pb.FilesResponse {
	p, _ := a.policy.get(ctx)
	return &pb.FilesResponse{ManifestDigest: a.config.Federation.Digest(), PolicyRevision: p.Revision}
}

// atHolder asks the node that holds the seat, within askTimeout.
func (a *Admin) atHolder(ctx context.Context, s *Seat, q *pb.AskOver) (*pb.AskAnswer, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	return a.config.Ask(ctx, s.Holder, q)
}

// askSisters completes a view with what only other nodes of the region know: the
// holder's status, if the seat is not here, and what each node has in force.
func (a *Admin) askSisters(ctx context.Context, s *Seat) (holder *pb.StatusResponse, files map[string]*pb.FilesResponse) {
	if s.Node == "" || a.config.Ask == nil {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	files = map[string]*pb.FilesResponse{s.Node: a.files(ctx)}
	var mu sync.Mutex
	var group sync.WaitGroup
	if s.Hands {
		group.Go(func() {
			if m, err := a.config.Ask(ctx, s.Holder, &pb.AskOver{Question: &pb.AskOver_Status{Status: &pb.StatusRequest{}}}); err == nil {
				holder = m.GetStatus()
			}
		})
	}
	for _, n := range s.Nodes {
		if n.Self || !n.Up {
			continue
		}
		group.Go(func() {
			m, err := a.config.Ask(ctx, n.Name, &pb.AskOver{Question: &pb.AskOver_Files{Files: &pb.FilesRequest{}}})
			if err != nil || m.GetFiles() == nil {
				return // what it has is unknown
			}
			mu.Lock()
			files[n.Name] = m.GetFiles()
			mu.Unlock()
		})
	}
	group.Wait()
	return holder, files
}

// filesApart names the nodes of the region that have other files in force than this one:
// what counts would change with the seat.
func filesApart(v *View) []string {
	var out []string
	own := v.Files[v.Seat.Node]
	for _, n := range v.Seat.Nodes {
		f := v.Files[n.Name]
		switch {
		case f == nil || own == nil:
		case f.GetManifestDigest() != own.GetManifestDigest():
			out = append(out, "node "+n.Name+" of this region has another federation.yaml in force")
		case f.GetPolicyRevision() != own.GetPolicyRevision():
			out = append(out, "node "+n.Name+" of this region has another policy in force")
		}
	}
	return out
}

// handsVerdict is the verdict of a node that leaves publishes and reads to the holder.
func handsVerdict(v *View, bad []string) (level, line string) {
	if v.Holder == nil {
		bad = append(bad, v.Seat.Holder+", which holds the region's seat and takes what is published here, does not answer: links and logs are unknown")
		return "degraded", "degraded: " + strings.Join(bad, "; ")
	}
	level = v.Holder.GetLevel()
	there := strings.TrimPrefix(v.Holder.GetVerdict(), level+": ")
	bad = slices.DeleteFunc(bad, func(s string) bool { return strings.Contains(there, s) })
	if len(bad) > 0 && level == "ok" {
		level = "degraded"
	}
	bad = append(bad, "at "+v.Seat.Holder+", which holds the region's seat and takes what is published here: "+there)
	return level, level + ": " + strings.Join(bad, "; ")
}

// join adds what the holder knows of the region to a status of this node.
func join(v *View, m *pb.StatusResponse) {
	h := v.Holder
	if h == nil || !v.Seat.Hands {
		return
	}
	m.From, m.Links, m.Troubles, m.Logs = v.Seat.Holder, h.GetLinks(), h.GetTroubles(), h.GetLogs()
	own := m.Policies[0]
	m.Policies = m.Policies[:1:1]
	for _, p := range h.GetPolicies() {
		if p.GetRegion() == v.Region {
			continue
		}
		if p.ManifestEqual = p.GetManifestDigest() == own.GetManifestDigest(); p.ManifestEqual {
			p.Differences = nil
		}
		m.Policies = append(m.Policies, p)
	}
	for _, c := range h.GetCertificates() {
		if c.GetName() != v.Region {
			m.Certificates = append(m.Certificates, c)
		}
	}
	m.Warnings = append(m.Warnings, fromNode(m.From, m.Warnings, h.GetWarnings())...)
	m.Heals = append(m.Heals, fromNode(m.From, m.Heals, h.GetHeals())...)
	m.Advice = append(m.Advice, fromNode(m.From, m.Advice, h.GetAdvice())...)
}

// fromNode marks whose words these are, and leaves out what was said already.
func fromNode(node string, said, words []string) []string {
	var out []string
	for _, w := range words {
		if !slices.Contains(said, w) {
			out = append(out, node+": "+w)
		}
	}
	return out
}
