// Package invariant judges a whole run: the history of what clients were told
// (chaos/ledger), and the logs that were read from every region's disk after it. Each
// file holds one promise that must hold whatever was broken meanwhile, and keeps the
// number that the promise has in the table of chaos/DESIGN.md. The package is pure:
// values in, verdict out.
package invariant
