package node

import (
	"slices"

	"domicile/api"
	"domicile/regions/placement"
)

// terms is what the declaration of a log's topic says about moving it. What the policy
// says of a target is asked before the log goes there.
func (n *Node) terms(id api.LogID) (placement.Terms, error) {
	f := n.federation.Snapshot()
	topic, ok := f.Topic(id.Topic)
	first, known := f.FirstHome(id)
	if !ok || !known {
		return placement.Terms{}, &api.Error{Code: api.UnknownTopic, Op: "declare log", Topic: id.Topic, Hint: "federation.yaml has no such log"}
	}
	rule := topic.Failover
	targets := slices.Compact(slices.Sorted(slices.Values(append(slices.Clone(rule.Targets), first)))) // first: it may move back
	t := placement.Terms{
		Allowed: slices.Compact(slices.Sorted(slices.Values(append(slices.Clone(targets), n.cfg.Region)))), Targets: targets,
		Mode: placement.Manual, Isolation: placement.Accept, RPO: rule.RPO, Approvals: rule.Approvals, Digest: f.TopicDigest(id.Topic),
	}
	if rule.FenceAfter > 0 {
		t.Isolation, t.FenceAfter = placement.FenceAfter, rule.FenceAfter
	}
	return t, nil
}
