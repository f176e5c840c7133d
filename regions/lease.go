package regions

import "time"

// What a home's right to write a movable log rests on while it is cut off. Two clocks of
// the federation that count boot time run at rates that differ from true time by less than
// LeaseDrift, and a machine's paused time is counted.
const (
	LeaseDrift  = 0.01
	LeaseMargin = time.Second // beyond what the drift can do

	MinFenceAfter = 15 * time.Second // an election and a renewal fit in
	MaxFenceAfter = 24 * time.Hour
)

// DecideWithin is how long a move can take beyond the old home's lease, whoever was lost:
// a leader of the authority is elected in up to 11 s, the move itself takes 2.
const DecideWithin = 13 * time.Second

// LeaseWait is how long after a renewal of fenceAfter its holder is known to have stopped,
// by anybody's clock: the holder's may be slow, the one that waits fast.
func LeaseWait(fenceAfter time.Duration) time.Duration {
	return time.Duration(float64(fenceAfter)*(1+LeaseDrift)/(1-LeaseDrift)) + LeaseMargin
}

// ConfirmedFor is how long acks of a home that goes on while it is cut off count as confirmed
// after the last renewal was sent that the authority answered: two more were due by then.
const ConfirmedFor = 10 * time.Second
