// Package council is the placement authority: one voter per region, a small replicated
// log of placement commands, and the copies that other gateways keep of what was decided.
// It is the one room of raft and bbolt.
//
// The authority decides who may write a log that moves. No record passes through it, and
// logs that never move need none of it.
package council
