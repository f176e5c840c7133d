package main

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"

	"domicile/deploy"
)

// Which of a node's ports is what.
const (
	portDoor = iota
	portLink
	portAdmin
	portMetrics
	portCluster
)

// gateways are the names of a quorum region's nodes.
var gateways = [...]string{"a", "b", "c"}

// place is one node that init writes files for.
type place struct {
	region  string
	gateway string // "" in a region of one node
	port    int    // its first
	members map[string]string
}

// places lists the nodes in the order of their regions. The first node of a region has
// the same ports in both modes; the others' come after those of all regions.
func (s starter) places() []place {
	var all []place
	for i, region := range starterRegions {
		first := place{region: region, port: s.port + 10*i}
		if !slices.Contains(s.quorum, region) {
			all = append(all, first)
			continue
		}
		ports := [...]int{first.port, s.port + 30 + 20*i, s.port + 40 + 20*i}
		members := map[string]string{}
		for n, name := range gateways {
			p := place{region: region, gateway: name, port: ports[n], members: members}
			members[name] = p.address(portCluster)
			all = append(all, p)
		}
	}
	return all
}

func (p place) address(n int) string { return "127.0.0.1:" + strconv.Itoa(p.port+n) }

// dir is the node's folder in the tree.
func (p place) dir() string {
	if p.gateway == "" {
		return p.region
	}
	return p.region + "/" + p.gateway
}

// above is the folder that holds the node's, within the tree.
func (p place) above() string {
	if p.gateway == "" {
		return ""
	}
	return p.region + "/"
}

// context is the name under which users speak to the node.
func (p place) context() string {
	if p.gateway == "" || p.gateway == gateways[0] {
		return p.region
	}
	return p.region + "-" + p.gateway
}

// node is the example file of deploy with this node's names and ports.
func (p place) node() []byte {
	region := "\nregion: " + p.region + "\n"
	if p.gateway != "" {
		region += fmt.Sprintf("\n# Which of the region's three nodes this is, by its name in federation.yaml. Fixed when\n# the region is created, as is the number of nodes. Default: none, a region of one node.\nnode: %s\n\n"+
			"# How the three reach each other: with the region's certificate at both ends, and the\n# same members in all three files. Acks mean two of three disks.\ncluster:\n  listen: %s   # for the region's other nodes\n  members:\n", p.gateway, p.address(portCluster))
		for _, name := range gateways {
			region += fmt.Sprintf("    %s: %s\n", name, p.members[name])
		}
	}
	text := replaceOnce(deploy.NodeYAML, "\nregion: eu-west\n", region)
	if p.gateway != "" {
		text = bytes.ReplaceAll(text, []byte(": ../"), []byte(": ../../"))
	}
	for n, key := range []string{"door", "link", "admin", "metrics"} {
		text = replaceOnce(text, fmt.Sprintf("  %s: 127.0.0.1:%d", key, 7400+n), fmt.Sprintf("  %s: %s", key, p.address(n)))
	}
	return text
}
