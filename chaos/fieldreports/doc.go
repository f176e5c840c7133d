// Package fieldreports holds tests only: what broke for others, played on a federation
// of real nodes in one process (chaos/lab). Each test is named after its report, is
// recorded from the clients' side, and ends in the invariants (chaos/invariant). The
// table of chaos/DESIGN.md says which reports are played elsewhere.
package fieldreports
