// Package placement decides who owns each log: the state machine of the placement
// authority, and the leases by which a home knows that it still is one. It is pure: no
// clock, no file, no connection, no goroutine. Times are handed in; the same commands in
// the same order give the same bytes everywhere.
//
// A log is known by its incarnation alone. No name, payload, key or event id of any
// record or topic enters the state.
package placement
