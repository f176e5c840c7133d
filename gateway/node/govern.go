package node

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"time"

	"domicile/api"
	pb "domicile/api/domicile/v1"
	"domicile/regions/approval"
	"domicile/regions/placement"
)

// governWithin bounds a change of who decides, at pace 1.
const governWithin = time.Minute

// governing is a change of who decides, or of how far a log may go: what it would do, whose
// consent it takes, and how it is done.
type governing struct {
	act       string
	plan      string // names all that it rests on
	says      []string
	approvals int
	role      string   // of those who approve
	may       []string // roles of those who ask
	topic     string
	do        func(ctx context.Context, who, reason string, people []placement.Approval) error
}

// planOf is a hash of what a change rests on.
func planOf(act string, parts ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(append([]string{act}, parts...), "\n")))
	return act + "/" + hex.EncodeToString(sum[:16])
}

// govern carries a change out, or says what it would do.
func (n *Node) govern(ctx context.Context, g *governing, plan, reason string, dryRun bool, approvals []string) (*pb.GovernResponse, error) {
	out := &pb.GovernResponse{Plan: g.plan, Says: g.says, Approvals: uint32(g.approvals), ApprovalRole: g.role}
	if dryRun && plan == "" {
		return out, nil
	}
	if plan != g.plan {
		return nil, &api.Error{Code: api.Conflict, Op: g.act, Topic: g.topic, Field: "plan", Value: plan, Hint: "what it rests on has changed, or it was made for something else: run it with --dry-run, look, and name the plan that it prints"}
	}
	who := caller(ctx)
	if !n.seams.Dev {
		if err := n.cfg.Operators.Has(who, g.may...); err != nil {
			return nil, err
		}
	}
	people, err := n.consents(g, who, approvals)
	if err != nil || dryRun {
		return out, err
	}
	if err := checkReason(true, reason); err != nil {
		return nil, err
	}
	a, err := n.begin(ctx, act{Act: g.act, Topic: g.topic, Forced: g.approvals > 0, Reason: reason, Plan: plan, Changes: g.says})
	if err != nil {
		return nil, err
	}
	ctx, cancel := n.detached(ctx, governWithin)
	defer cancel()
	err = g.do(ctx, a.Who, reason, people)
	n.finish(a, err)
	out.Done = err == nil
	return out, err
}

// consents verifies approvals by this node's own trust, and refuses if they are too few.
func (n *Node) consents(g *governing, who string, texts []string) ([]placement.Approval, error) {
	if g.approvals == 0 {
		return nil, nil
	}
	var signed []approval.Signed
	lines := map[string]string{} // by name
	v := n.verifier()
	for _, text := range texts {
		s, err := approval.Parse(text)
		if err != nil {
			return nil, err
		}
		if c, err := v.Verify(s, g.plan, g.role); err == nil {
			lines[c.Name] = text
		}
		signed = append(signed, s)
	}
	people, refused := v.People(signed, g.plan, who, g.role)
	if len(people) < g.approvals {
		hint := fmt.Sprintf("%d of %d people have approved %s as %s, other than the one who asks: domicile control approve", len(people), g.approvals, g.plan, g.role)
		for _, err := range refused {
			hint += "; " + err.Error()
		}
		return nil, &api.Error{Code: api.PlacementRefused, Op: g.act, Topic: g.topic, Region: n.cfg.Region, Field: "rule", Value: placement.RuleApprovals, Hint: hint}
	}
	var out []placement.Approval
	for _, c := range people {
		out = append(out, placement.Approval{Actor: c.Name, Role: c.Role, Signed: lines[c.Name]})
	}
	return out, nil
}

func (n *Node) verifier() *approval.Verifier {
	return &approval.Verifier{Federation: n.federation.Name(), Trust: n.identity, Rules: n.cfg.Operators, Clock: (*ends)(n)}
}

// changeAuthority changes who decides where logs are.
func (n *Node) changeAuthority(ctx context.Context, req *pb.ChangeAuthorityRequest) (*pb.GovernResponse, error) {
	done, err := n.alone()
	if err != nil {
		return nil, err
	}
	defer done()
	p := n.delegate.Load()
	switch {
	case n.placer == nil:
		return nil, &api.Error{Code: api.PlacementRefused, Op: "change authority", Region: n.cfg.Region, Field: "authority.voters", Hint: "federation.yaml names no authority, so no log of this federation moves"}
	case p == nil:
		return nil, n.notHere("change authority")
	case req.GetVerb() != "remove" && req.GetRegion() != "" && req.GetRegion() != n.cfg.Region:
		return nil, &api.Error{Code: api.BadRequest, Op: "change authority", Region: n.cfg.Region, Field: "region", Value: req.GetRegion(), Hint: "its voter is made on its own disk: ask a node of that region"}
	}
	var g *governing
	switch req.GetVerb() {
	case "found":
		g, err = p.foundAnew(ctx)
	case "add":
		g, err = p.joinVoters(ctx)
	case "remove":
		g, err = p.removeVoter(req.GetRegion())
	case "snapshot":
		g, err = p.shortenLog()
	default:
		err = &api.Error{Code: api.BadRequest, Op: "change authority", Field: "verb", Value: req.GetVerb(), Hint: "found, add, remove or snapshot"}
	}
	if err != nil {
		return nil, err
	}
	return n.govern(ctx, g, req.GetPlan(), req.GetReason(), req.GetDryRun(), req.GetApprovals())
}
