// Package failover tells the story of one log that changes its home with real regions, one
// of them a process that is killed: a planned switchover and back, a cut with records that
// no other region has, the death of the home, a forced failover, the return, what was left
// behind published anew, and the way back. Every claim is held against what producers were
// told.
package failover
