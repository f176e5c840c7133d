package node

import (
	"maps"
	"net"
	"slices"
	"strings"

	"domicile/api"
	"domicile/regions"
	"domicile/regions/fabric"
	"domicile/regions/strict"
)

// checkCluster compares this node's part in its region with the manifest, which names
// the gateways of a quorum region.
func (c *Config) checkCluster(r regions.Region) error {
	bad := func(field, value, hint string) error {
		return &api.Error{Code: api.ConfigInvalid, Op: "check node config", Field: field, Value: value, Hint: hint}
	}
	if !r.Quorum() {
		if c.Node != "" || c.Cluster.Listen != "" || len(c.Cluster.Members) > 0 {
			return bad("node", c.Node, "the manifest has one node for "+r.Name+": leave out node and cluster, or give the region its gateways there")
		}
		return nil
	}
	names := slices.Sorted(maps.Keys(r.Gateways))
	if _, ok := r.Gateways[c.Node]; !ok {
		hint := "the manifest's gateways of " + r.Name + " are " + strings.Join(names, ", ")
		if near := strict.Nearest(c.Node, names); near != "" {
			hint += "; did you mean " + near + "?"
		}
		return bad("node", c.Node, hint)
	}
	if members := slices.Sorted(maps.Keys(c.Cluster.Members)); !slices.Equal(members, names) {
		return bad("cluster.members", strings.Join(members, ", "), "name the manifest's gateways of "+r.Name+", and no others: "+strings.Join(names, ", "))
	}
	addresses := map[string]string{}
	for _, name := range names {
		address := c.Cluster.Members[name]
		if _, _, err := net.SplitHostPort(address); err != nil {
			return bad("cluster.members."+name, address, "write host:port")
		}
		if other, taken := addresses[address]; taken {
			return bad("cluster.members."+name, address, "it is the address of "+other)
		}
		addresses[address] = name
	}
	if _, _, err := net.SplitHostPort(c.Cluster.Listen); err != nil {
		return bad("cluster.listen", c.Cluster.Listen, "write the host:port at which this node listens for the region's others")
	}
	return nil
}

// cluster is what the fabric of a quorum region is opened with; nil for a solo region.
func (n *Node) cluster() *fabric.Cluster {
	if n.cfg.Node == "" {
		return nil
	}
	return &fabric.Cluster{Node: n.cfg.Node, Members: n.cfg.Cluster.Members, Listen: n.cfg.Cluster.Listen, TLS: n.identity.SiblingTLS(), Rejoin: n.seams.Rejoin}
}
