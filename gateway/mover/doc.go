// Package mover carries out this region's part in the moves of logs: the home that gives a
// log up, the target that takes it over, and everyone else who holds a copy.
//
// It looks at what the placement authority says of a log and at what this region's store
// holds of it, does the one thing that follows, and looks again. What was done before a
// crash is found in those two places, never in the mover.
package mover
