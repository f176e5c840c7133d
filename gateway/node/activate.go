package node

import (
	"context"
	"fmt"
	"time"

	pb "domicile/api/domicile/v1"
	"domicile/policy/bundle"
)

const (
	// confirmWithin bounds how long an activation waits for other regions, at pace 1: each
	// fetches, verifies and judges by itself.
	confirmWithin = 20 * time.Second
	confirmPoll   = 50 * time.Millisecond
)

// activatePolicy activates a signed policy here, in a region of three at the node with the
// seat before, and waits until every node and region that can be reached has confirmed it. From then on nothing that an older policy let through leaves or
// enters a confirmed region.
func (n *Node) activatePolicy(ctx context.Context, req *pb.ActivatePolicyRequest) (*pb.ActivatePolicyResponse, error) {
	ctx, cancel := n.whileOpen(ctx)
	defer cancel()
	done, err := n.policies.activate(ctx, req.GetBundle(), false, func(s *signed) (func(error), error) {
		if err := n.handToHolder(ctx, s); err != nil {
			return nil, err
		}
		return n.auditPolicy(ctx, s, "")
	})
	if err != nil {
		return nil, err
	}
	return &pb.ActivatePolicyResponse{
		Changed: done.changed, Revision: n.policyState().Revision, Previous: done.previous,
		Cells: uint64(done.report.Cells), Tests: uint64(done.report.Tests), Warnings: done.report.Warnings,
		Policy: done.signed.view(), Fences: n.awaitFences(ctx, done.signed.serial()),
		Narrowed: n.narrowed(done.narrowed),
	}, nil
}

// auditPolicy writes an activation down before it is done; what it returns writes its end.
func (n *Node) auditPolicy(ctx context.Context, s *signed, from string) (func(error), error) {
	line := act{Act: "policy", Policy: &actOn{Serial: s.serial(), Digest: s.digest, Before: n.policyState().Revision, SignedBy: keyIDs(s.by), From: from}}
	line, err := n.begin(ctx, line)
	return func(err error) { n.finish(line, err) }, err
}

func keyIDs(keys []bundle.Key) []string {
	out := make([]string, 0, len(keys))
	for _, k := range keys {
		out = append(out, k.ID)
	}
	return out
}

func (s *signed) view() *pb.SignedPolicy {
	m := s.bundle.Manifest
	v := &pb.SignedPolicy{Serial: m.Serial, Digest: s.digest, ValidFromUnixNano: m.ValidFrom.UnixNano(), ValidUntilUnixNano: m.ValidUntil.UnixNano(),
		RollsBackTo: m.RollsBackTo, MinEngine: m.MinEngine, Revokes: m.Revokes}
	for _, k := range s.by {
		v.SignedBy = append(v.SignedBy, fmt.Sprintf("%s (%s)", k.ID, k.Role))
	}
	return v
}

// awaitFences waits until no node that is heard and no region whose link is up still has to
// confirm.
func (n *Node) awaitFences(ctx context.Context, serial int64) []*pb.PolicyFence {
	ctx, cancel := context.WithTimeout(ctx, n.seams.Pace.Of(confirmWithin))
	defer cancel()
	tick := time.NewTicker(n.seams.Pace.Of(confirmPoll))
	defer tick.Stop()
	for {
		fences, open := n.fences(ctx, serial)
		if !open {
			return fences
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fences
		}
	}
}

// fences says of each other node of the region, and of each region with a link to this one,
// whether it has confirmed a policy. open: one of those that are reached has not, and may yet.
func (n *Node) fences(ctx context.Context, serial int64) (out []*pb.PolicyFence, open bool) {
	for _, m := range n.others() {
		w := n.siblings.said(m.Node)
		f := &pb.PolicyFence{Region: n.cfg.Region, Gateway: m.Node, Serial: w.GetSerial()}
		out = append(out, f)
		switch {
		case w.GetFenced() >= serial:
			f.Confirmed = true
		case !m.Up:
			f.Why = "it is not heard: it takes the policy before it opens the region's logs"
		case w.GetSerial() >= serial:
			open, f.Why = true, "what it judged under the older policy is still under way there"
		default:
			open, f.Why = true, "it has not taken the policy: its status says why; it opens no logs of the region meanwhile"
		}
	}
	regions, more := n.regionFences(serial)
	if seat, _ := n.seats(); n.turn.Load() == nil && n.cfg.Node != "" && seat.Node != "" && seat.Node != n.cfg.Node {
		if a, err := n.talk(ctx, seat.Node, &pb.PolicyAsk{Want: &pb.PolicyAsk_Confirmed{Confirmed: serial}}, talkWithin); err == nil && a.GetHolds() {
			regions, more = a.GetRegions(), a.GetOpen()
		}
	}
	return append(out, regions...), open || more
}

// regionFences is what the node with the seat knows of other regions.
func (n *Node) regionFences(serial int64) (out []*pb.PolicyFence, open bool) {
	t := n.turn.Load()
	for _, peer := range n.federation.Peers(n.cfg.Region) {
		f := &pb.PolicyFence{Region: peer, Why: "this node does not hold the region's seat: what other regions confirm is known there"}
		out = append(out, f)
		if t == nil {
			continue
		}
		s, _ := t.mesh.Status(peer)
		switch h := s.Hello; {
		case h != nil && h.FencedPolicy >= serial:
			f.Confirmed, f.Serial, f.Why = true, h.PolicySerial, ""
		case !s.Up:
			f.Why = "the link is not up: it gets the policy before records pass again"
			if s.Reason != "" {
				f.Why += "; " + s.Reason
			}
		case h.SignedPolicy >= serial:
			open, f.Serial, f.Why = true, h.PolicySerial, "what it judged under the older policy is still under way there, or one of its nodes has not taken the new one"
		default:
			open, f.Serial, f.Why = true, h.PolicySerial, "it has not taken the policy: its status says why; nothing of its older one is taken here meanwhile"
		}
	}
	return out, open
}

// policyStatus is what this node knows of its policy and of where it is confirmed.
func (n *Node) policyStatus(ctx context.Context) (*pb.PolicyStatusResponse, error) {
	state := n.policyState()
	out := &pb.PolicyStatusResponse{Revision: state.Revision, Serial: state.Serial, Problem: state.Problem,
		SignedOnly: n.policies.signedOnly.Load(), Lapsed: n.policies.lapsed(), Kept: n.policies.shelf.serials(), Warnings: n.policies.warnings()}
	if live := n.policies.signedNow(); live != nil {
		out.Policy = live.view()
		out.Fences, _ = n.fences(ctx, live.serial())
	}
	return out, nil
}
