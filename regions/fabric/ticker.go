package fabric

import "github.com/nats-io/nats-server/v2/server/ats"

// HoldTicker starts the one loop that all brokers of a process share, for as long as the
// process lives. A program that opens stores in a bubble of virtual time calls it before:
// the loop's channels are the process's own, and a loop that began inside would keep time
// there from passing.
func HoldTicker() { ats.Register() }
