package node

import (
	"slices"

	"domicile/api"
	"domicile/regions/placement"
)

// terms is what the declaration of a log's topic says about moving it: it may rest where
// the manifest puts it and its copies. What the policy says of a target is asked before the
// log goes there.
func (n *Node) terms(id api.LogID) (placement.Terms, error) {
	f := n.federation.Snapshot()
	first, known := f.FirstHome(id)
	targets := slices.DeleteFunc(f.Targets(id), func(r string) bool { return r == n.cfg.Region })
	if !known || len(targets) == 0 {
		return placement.Terms{}, &api.Error{Code: api.ConfigInvalid, Op: "declare log", Topic: id.Topic, Field: "topics." + id.Topic + ".mirror",
			Hint: "a log that may move needs a copy in another region: name one under mirror"}
	}
	return placement.Terms{
		Allowed: slices.Compact(slices.Sorted(slices.Values(append(slices.Clone(targets), first, n.cfg.Region)))), Targets: targets,
		Mode: placement.Manual, Isolation: placement.Accept, Digest: f.TopicDigest(id.Topic),
	}, nil
}
