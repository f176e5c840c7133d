package node

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"domicile/api"
	pb "domicile/api/domicile/v1"
	"domicile/gateway/failover"
	"domicile/regions/approval"
	"domicile/regions/placement"
)

// widenTerms brings to the authority what only people may: that a log may go further than it
// was declared before. What the terms are to be follows from manifest and policy alone.
func (n *Node) widenTerms(ctx context.Context, req *pb.WidenTermsRequest) (*pb.GovernResponse, error) {
	const op = "widen terms"
	if n.moves.Service == nil {
		return nil, &api.Error{Code: api.PlacementRefused, Op: op, Field: "rule", Value: placement.RulePinned, Hint: "federation.yaml names no authority, so no log of this federation moves"}
	}
	id, err := n.moves.Service.LogOf(req.GetTopic(), req.GetSlot())
	if err != nil {
		return nil, err
	}
	c, from, ok, err := n.placer.Widening(id)
	if err != nil {
		return nil, err
	}
	if !ok {
		hint := "the authority has it as manifest and policy declare it, or a move is under way"
		if home, _, _ := n.federation.Home(id); home != n.cfg.Region {
			hint = "its home declares it: ask a node of " + home
		}
		return nil, &api.Error{Code: api.Conflict, Op: op, Topic: id.Topic, Region: n.cfg.Region, Field: "log", Value: id.String(), Hint: hint}
	}
	terms, err := json.Marshal(c.Terms)
	if err != nil {
		return nil, err
	}
	g := n.widening(&c, terms)
	g.topic, g.says, g.may = id.Topic, widened(id, from, *c.Terms), []string{approval.Operator, approval.Incident, approval.Compliance}
	g.do = func(ctx context.Context, who, reason string, people []placement.Approval) error {
		c.Actor, c.Reason, c.Approvals, c.Plan = who, reason, people, g.plan
		_, err := n.placer.Submit(ctx, c)
		return err
	}
	return n.govern(ctx, g, req.GetPlan(), req.GetReason(), req.GetDryRun(), req.GetApprovals())
}

// widening is whose consent it takes that a log goes further, to exactly these terms.
func (n *Node) widening(c *placement.Command, terms []byte) *governing {
	plan := planOf("widen", n.federation.Name(), c.Log, c.Expect.String(), string(terms))
	return &governing{act: "widen", plan: plan, approvals: 2, role: approval.Compliance}
}

// widened says in words what changes of a log's terms.
func widened(id api.LogID, from, to placement.Terms) []string {
	var out []string
	for _, f := range []struct {
		name     string
		was, now []string
	}{{"may rest in", from.Allowed, to.Allowed}, {"may move to", from.Targets, to.Targets}} {
		if !slices.Equal(f.was, f.now) {
			out = append(out, fmt.Sprintf("%s %s %s; before: %s", id, f.name, strings.Join(f.now, ", "), strings.Join(f.was, ", ")))
		}
	}
	if from.Mode != to.Mode || from.Isolation != to.Isolation || from.FenceAfter != to.FenceAfter || from.RPO != to.RPO || from.Approvals != to.Approvals {
		out = append(out, id.String()+" moves by another rule: its declaration in federation.yaml differs from what the authority has")
	}
	return out
}

// mayPlace is asked where the authority's leader is, of what a region sends, by this node's
// own manifest, trust and roles.
func (n *Node) mayPlace(c placement.Command, l placement.Log) error {
	if c.Verb != placement.Alter || len(c.Approvals) == 0 {
		return failover.MayPlace(n.verifier(), n.federation, &c, &l)
	}
	denied := func(why string) error {
		return &api.Error{Code: api.PermissionDenied, Op: "widen terms", Field: "approvals", Value: c.Actor, Hint: why}
	}
	terms, err := json.Marshal(c.Terms)
	if err != nil {
		return err
	}
	g := n.widening(&c, terms)
	if c.Plan != g.plan {
		return denied("they stand for other terms than these")
	}
	var texts []string
	for _, a := range c.Approvals {
		if _, err := approval.Parse(a.Signed); err != nil {
			return denied("they are not signed")
		}
		texts = append(texts, a.Signed)
	}
	people, err := n.consents(g, c.Actor, texts)
	for _, a := range c.Approvals {
		if err == nil && !slices.Contains(people, a) {
			err = &api.Error{Code: api.PlacementRefused, Op: g.act, Region: n.cfg.Region, Field: "approvals", Value: a.Actor,
				Hint: "this approval does not count where the authority's leader is"}
		}
	}
	return err
}
