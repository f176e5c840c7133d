// Package nft cuts links with the packet filter of this machine's kernel: packets are
// really lost, and every rule ends in the kernel by itself, also when no process lives to
// end it. It needs root, or the capability to administer the network, and the program nft.
//
// All lanes of a link share one port, so that a packet filter cuts all of them or none, and
// a peer is told apart from others by its address alone. What can't be told apart is
// refused, and not cut with more than was asked for.
package nft
