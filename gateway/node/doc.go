// Package node is the one place that wires a region together: store, policy, links,
// mirror, gateway and its servers, started in order and closed in reverse. The
// command, the lab and the tests all start a Node; nothing else knows the order.
package node
