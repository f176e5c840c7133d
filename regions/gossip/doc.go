// Package gossip finds out which gateways of linked regions are there, and what they hold
// that this one does not know of. It decides nothing: what it says is shown to people and
// counted. It can reach no placement, no link and no record.
//
// Members are found with hashicorp/memberlist over a lane of the link port; no socket is
// opened here. What a region says of itself (its word) is taken from a connection that its
// own certificate opened, never from what others relay.
package gossip
