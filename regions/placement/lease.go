package placement

import (
	"time"

	"domicile/regions"
)

// The leases rest on one assumption: two clocks of the federation that count boot time
// run at rates that differ from true time by less than Drift, and a machine's paused time
// is counted.
const (
	Drift      = regions.LeaseDrift
	Margin     = regions.LeaseMargin    // beyond what the drift can do
	MaxStep    = 500 * time.Millisecond // between wall and boot clock of one machine, while a lease runs
	RenewEvery = 4 * time.Second
)

// Wait is how long after a renewal of fenceAfter its holder is known to have stopped, by
// anybody's clock.
func Wait(fenceAfter time.Duration) time.Duration { return regions.LeaseWait(fenceAfter) }

// Instant is one reading of a machine's two clocks.
type Instant struct {
	Boot time.Duration // since boot, suspended time included
	Wall int64         // nanoseconds since 1970
}

// Lease is the holder's side: may this region still write a log? The zero value may not.
// It is a value; whoever shares one guards it.
type Lease struct {
	sent       Instant // when the renewal that holds now was sent
	generation uint32
	held       bool
}

// Grant takes the answer to a renewal that was sent at the given instant. It counts from
// there, never from when the answer came. The first answer of a newer authority takes the
// place of all that older ones granted; an older authority's grants nothing.
func (l *Lease) Grant(generation uint32, sent Instant) {
	switch {
	case generation < l.generation:
		return
	case generation > l.generation || !l.held || sent.Boot > l.sent.Boot:
		*l = Lease{sent: sent, generation: generation, held: true}
	}
}

// Left is how much of a lease of fenceAfter is left; 0 or less: none. It is none as well
// when the machine's clocks have moved apart, as they do when its time stood still unseen.
func (l *Lease) Left(fenceAfter time.Duration, now Instant) time.Duration {
	if !l.held {
		return 0
	}
	boot := now.Boot - l.sent.Boot
	wall := time.Duration(now.Wall - l.sent.Wall)
	if apart := (wall - boot).Abs(); boot < 0 || apart > MaxStep {
		return 0
	}
	return fenceAfter - boot
}

// Holds reports whether the holder may write now. Ask before a record is stored, and
// again before it is acknowledged.
func (l *Lease) Holds(fenceAfter time.Duration, now Instant) bool { return l.Left(fenceAfter, now) > 0 }

// Grantor is the leader's side: has a home's lease run out? It counts on the leader's own
// boot clock and starts anew with each leader. It is not safe for concurrent use.
type Grantor struct {
	elected time.Duration
	heard   map[string]time.Duration // region → when a renewal of it was applied last
	frozen  map[string]time.Duration // log with a move under way → what its lapse counts from
}

// Elected begins a leader's term. Nothing that an earlier leader granted is known, so all
// waits begin here.
func (g *Grantor) Elected(now time.Duration) {
	g.elected = now
	g.heard, g.frozen = map[string]time.Duration{}, map[string]time.Duration{}
}

// Renewed notes that a committed renewal of the region was applied here.
func (g *Grantor) Renewed(region string, now time.Duration) { g.heard[region] = now }

// Begun notes that a move of a log was applied: renewals of its home after it no longer
// cover the log.
func (g *Grantor) Begun(log, home string) { g.frozen[log] = g.since(home) }

// Ended forgets a log's move.
func (g *Grantor) Ended(log string) { delete(g.frozen, log) }

func (g *Grantor) since(home string) time.Duration { return max(g.elected, g.heard[home]) }

// Remaining is how long the leader has to wait until a lease of fenceAfter on a moving log
// has lapsed, and how long it has waited. A move that began under an earlier leader counts
// from this one's election.
func (g *Grantor) Remaining(log string, fenceAfter, now time.Duration) (left, waited time.Duration) {
	since, ok := g.frozen[log]
	if !ok {
		since = g.elected
	}
	waited = max(0, now-since)
	return max(0, Wait(fenceAfter)-waited), waited
}
