package nft

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"domicile/api"
	"domicile/regions/link"
)

// pair is two ends of a link: where this region's gateways listen, and a peer's.
type pair struct{ own, peer netip.AddrPort }

// book is where each region, and the witness, listens for the others.
type book map[string][]netip.AddrPort

// apart lists the pairs of addresses between self and a peer. It refuses a peer that a
// packet filter can't tell from another: connections that a peer opens come from any port
// of its address. cut are the peers that are cut as well: those need not be told apart.
func (b book) apart(self, peer string, cut []string) ([]pair, error) {
	for _, other := range slices.Sorted(maps.Keys(b)) {
		if other == peer || other != self && slices.Contains(cut, other) {
			continue
		}
		for _, x := range b[other] {
			if slices.ContainsFunc(b[peer], func(y netip.AddrPort) bool { return x.Addr() == y.Addr() }) {
				return nil, refuse(peer, x.Addr().String(), "it has the same address as "+other+": a packet filter can't tell the two apart")
			}
		}
	}
	var out []pair
	for _, own := range b[self] {
		for _, theirs := range b[peer] {
			if own.Addr().Is4() == theirs.Addr().Is4() {
				out = append(out, pair{own, theirs})
			}
		}
	}
	if len(out) == 0 {
		return nil, refuse(peer, "", "the manifest has no two addresses of one family for the link with it")
	}
	return out, nil
}

// seen refuses if an open connection with the peer runs between other addresses than those
// that would be cut, as behind a balancer or a translation of addresses.
func seen(pairs []pair, open []link.End) error {
	for _, e := range open {
		if !slices.ContainsFunc(pairs, func(p pair) bool { return p.own.Addr() == e.Local.Addr() && p.peer.Addr() == e.Remote.Addr() }) {
			return refuse(e.Peer, fmt.Sprintf("%s-%s", e.Local, e.Remote), "a connection of the link runs between addresses that are not the manifest's: a packet filter would miss it")
		}
	}
	return nil
}

func refuse(peer, value, why string) error {
	return &api.Error{Code: api.BadRequest, Op: "cut with nftables", Region: peer, Field: "gate", Value: value, Hint: why + "; gate: process can"}
}
