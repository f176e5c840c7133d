package node

import (
	"domicile/api"
	"domicile/gateway/failover"
	"domicile/regions/placement"
)

// terms is what a log's declaration and the policy in force say about moving it.
func (n *Node) terms(id api.LogID) (placement.Terms, error) {
	return failover.TermsOf(n.federation.Snapshot(), n.gate.Current(), id)
}
