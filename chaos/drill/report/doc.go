// Package report makes a drill's report from its history and from nothing else: anybody
// who has the history comes to the same verdict, and Verify does.
//
// What producers and readers of the drill saw is the oracle; what regions say of
// themselves is held against it. What the history does not show is said to be unknown or
// not proven, never good.
package report
