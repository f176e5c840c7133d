// Package history is what one drill saw: a list of typed events on one clock, written
// while it happens, one JSON object a line, each chained to the one before by a hash.
// The report of a drill is a function of its history and of nothing else.
//
// The chain shows that no line was changed, left out or put in, given the hash of the
// last one; it is no signature. What ends in the middle of a line, or without an event
// that closes it, is a history that was cut off, and says so.
package history
