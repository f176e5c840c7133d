// Package handover carries publishes from a node that does not hold its region's seat to
// the one that does, and the outcomes back, and fetches what readers ask for. Records of one door arrive in the order in
// which they came in; outcomes come in any order, so that a record that waits for a far
// region delays no other.
//
// All types are safe for concurrent use.
package handover
