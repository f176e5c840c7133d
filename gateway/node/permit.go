package node

import (
	"context"
	"errors"

	"domicile/api"
	"domicile/gateway/failover"
	"domicile/regions/placement"
)

// permissions says of each log of a topic, or of all, whose home is elsewhere whether it
// may fail over to this region now.
func (n *Node) permissions(ctx context.Context, topic string) (revision string, out []failover.Permission, err error) {
	g := n.gate.Current()
	if g == nil {
		return "", nil, &api.Error{Code: api.PolicyUnavailable, Op: "ask permissions", Region: n.cfg.Region, Hint: "without a policy nobody can say what may rest here"}
	}
	f := n.federation.Snapshot()
	for _, name := range f.Topics() {
		if topic != "" && name != topic {
			continue
		}
		t, _ := f.Topic(name)
		for _, id := range f.Logs(t) {
			home, epoch, ok := f.Home(id)
			if !ok || home == n.cfg.Region {
				continue
			}
			denied := g.MayHold(f, id, home, n.cfg.Region, nil)
			p := failover.Pinned(id, home, epoch, n.cfg.Region, denied)
			if denied == nil && t.Movable() && n.moves.Service != nil {
				if p, err = n.moves.Service.Permit(ctx, id, n.cfg.Region); err != nil {
					p = unanswered(id, home, epoch, n.cfg.Region, err)
				}
			}
			out = append(out, p)
		}
	}
	return n.policyState().Revision, out, nil
}

// unanswered is the permission of a log of which the question failed: there is none.
func unanswered(id api.LogID, home string, epoch api.Epoch, target string, err error) failover.Permission {
	p := failover.Permission{Log: id, Home: home, Epoch: epoch, Target: target, Movable: true, Verdict: failover.Unknown, Rule: placement.RuleUnknown, Code: api.CodeOf(err), Text: "nobody could say"}
	var e *api.Error
	if errors.As(err, &e) && e.Hint != "" {
		p.Text = e.Hint
	}
	return p
}
