package node

import (
	"context"
	"slices"
	"time"

	"domicile/api"
	"domicile/gateway/failover"
	"domicile/regions"
)

// warmEvery is how often a little of what is new in logs that may move is read ahead, at
// pace 1; see failover.Stock.
const warmEvery = 250 * time.Millisecond

// mayHold asks the policy in force about all that a log holds here, and may come to hold: a
// log moves and opens by what it says at that moment. What was read of the log earlier
// counts, since no policy changes it.
func (m *moving) mayHold(ctx context.Context, log regions.Log, from, to string) error {
	stored, err := m.stock.Tags(ctx, log)
	if err != nil {
		return err
	}
	for {
		if stale, err := m.ask(log.ID(), from, to, stored); !stale {
			return err
		}
	}
}

// ask asks the policy once. stale: another one, or another manifest, came into force meanwhile.
func (m *moving) ask(id api.LogID, from, to string, stored []string) (stale bool, err error) {
	pass := m.gate.Enter()
	defer pass.Leave()
	g := pass.Generation()
	if g == nil {
		return false, &api.Error{Code: api.PolicyUnavailable, Op: "judge log", Topic: id.Topic, Region: m.cfg.Region, Hint: "without a policy nobody can say where the log may rest: domicile policy check DIR"}
	}
	err = g.MayHold(m.federation.Snapshot(), id, from, to, stored)
	return pass.Stale(), err
}

// Sum names what a home holds.
func (m *moving) Sum(ctx context.Context, log regions.Log) (string, error) {
	return m.stock.Sum(ctx, log)
}

// Same holds a copy against what its home said that it holds.
func (m *moving) Same(ctx context.Context, log regions.Log, sum string) (compared bool, err error) {
	found, err := m.stock.Matches(ctx, log, sum)
	switch {
	case err != nil:
		return false, err
	case found == failover.Different:
		return false, &api.Error{Code: api.StorageFailed, Op: "compare log", Topic: log.ID().Topic, Region: m.cfg.Region, Field: "log", Value: log.ID().String(),
			Hint: "the copy here does not hold the records that its home has: look at both with domicile topic verify, and have the copy made anew"}
	case found == failover.NotCompared:
		m.logger.Info("a copy was not compared with its home: what both have is too little", "log", log.ID().String())
	}
	return found == failover.Same, nil
}

// warm keeps what is known of the logs that this region may give away or take over near
// their ends, until ctx ends.
func (m *moving) warm(ctx context.Context) {
	tick := time.NewTicker(m.seams.Pace.Of(warmEvery))
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		placed, _ := m.placer.Placements()
		m.stock.Retain(func(id api.LogID) bool { _, known := placed[id]; return known })
		for id, l := range placed {
			if log, ok := m.Log(id); ok && (l.Home == m.cfg.Region || slices.Contains(l.Terms.Targets, m.cfg.Region)) {
				// What could not be read is read when it is asked for, and then it is told.
				if read, _ := m.stock.Warm(ctx, log); read {
					break // a little for all logs together; the order is another each time
				}
			}
		}
	}
}
