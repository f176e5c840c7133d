// Package oracle is the witness of a drill that believes no region: producers and readers
// of its own at every region's door, all on one clock, and what they were told and saw,
// noted in the drill's history beside what regions say of themselves. From the two a
// report tells how true the regions' figures are.
//
// It speaks to running regions through their doors and admin ports alone.
package oracle
