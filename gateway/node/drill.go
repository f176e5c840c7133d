package node

import (
	"context"

	"domicile/gateway/drill"
	"domicile/regions/approval"
)

// openDrills makes what operators cut links with. What it holds ends with the node.
func (n *Node) openDrills(context.Context) error {
	n.drills = drill.New(drill.Config{
		Self: n.cfg.Region, Federation: n.federation, Gates: n.drillGates, Audit: n.auditDrill,
		Verifier: &approval.Verifier{Federation: n.federation.Name(), Trust: n.identity, Rules: n.operators(), Clock: n.seams.Clock},
		Clock:    n.seams.Clock, Boot: n.seams.Boot, Logger: n.logger,
	})
	n.onClose("drills", func(context.Context) error { n.drills.Release(); return nil })
	return nil
}

// drillGates are the gates under the region's links, which are at the node with the seat.
func (n *Node) drillGates() (drill.Gates, error) {
	t := n.turn.Load()
	if t == nil {
		return nil, n.notHere("hold drill")
	}
	return t.mesh.Gates(), nil
}

// auditDrill notes in this region's audit that a drill was armed here.
func (n *Node) auditDrill(ctx context.Context, id, reason string) error {
	_, err := n.begin(ctx, act{Act: "drill", Reason: reason, Plan: id})
	return err
}
