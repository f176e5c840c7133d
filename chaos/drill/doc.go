// Package drill runs isolation drills: it cuts the links of one region on a running
// federation, asks meanwhile what may fail over, moves what it was told to move, heals,
// waits until everything has caught up, and writes a history from which a report is made.
//
// It speaks to the regions through their doors and operators' ports alone, as whoever runs
// it. It holds nothing that anybody has to clean up after it: what is cut is a lease in
// the nodes' memory, and without this process it ends.
package drill
