package node

import (
	"context"
	"time"

	"domicile/api"
	"domicile/regions/clock"
)

// Checked is a person's word for the machine's clock: at the time At they compared it with a
// good one. It counts for a node that is started within the hour, so it may stay in the file.
type Checked struct {
	At     time.Time `yaml:"at"`
	Reason string    `yaml:"reason"`
}

func (c Checked) check() error {
	if c == (Checked{}) {
		return nil
	}
	if c.At.IsZero() {
		return &api.Error{Code: api.ConfigInvalid, Op: "check node config", Field: "clock.at",
			Hint: "write the time as a good clock shows it, such as 2026-12-01T03:00:00Z"}
	}
	if err := checkReason(true, c.Reason); err != nil {
		return &api.Error{Code: api.ConfigInvalid, Op: "check node config", Field: "clock.reason",
			Hint: "one line that says who compared the clock with what: it is kept in the audit"}
	}
	return nil
}

// takeWord takes a person's word for the clock that this run began with, once it is in the audit.
func (n *Node) takeWord(ctx context.Context) error {
	since := n.seams.Clock.Now().Sub(n.cfg.Clock.At)
	if n.cfg.Clock.At.IsZero() || since < -clock.Apart || since > clock.Gap || !n.fabric.Believe().Doubt {
		return nil
	}
	a, err := n.begin(ctx, act{Act: "clock", Reason: n.cfg.Clock.Reason})
	if err != nil {
		return err
	}
	n.checked.Store(true)
	n.fabric.Believe()
	n.finish(a, nil)
	return nil
}

// clockEvidence is what the node knows of its clock beyond what its store does.
func (n *Node) clockEvidence() clock.Evidence {
	e := clock.Evidence{Checked: n.checked.Load()}
	e.NotBefore, e.NotAfter = n.identity.Span()
	if c, ok := n.seams.Clock.(interface{ Machine() (time.Time, bool) }); ok {
		e.Machine, e.Synced = c.Machine()
	}
	now := n.seams.Clock.Now()
	for _, s := range n.linkStatuses() {
		e.Peers = append(e.Peers, clock.Peer{Region: s.Peer, Offset: s.Offset, Error: s.OffsetErr, Known: s.OffsetOK, Age: now.Sub(s.LastHeard)})
	}
	return e
}

// ends is the clock by which permissions of people and policies end.
type ends Node

// Now is the node's clock, but not before where the store's last run has it.
func (n *ends) Now() time.Time {
	if n.fabric == nil { // a witness
		return n.seams.Clock.Now()
	}
	return n.fabric.Latest()
}
