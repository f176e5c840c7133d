package node

import (
	"context"
	"slices"
	"sync"

	"domicile/api"
	"domicile/gateway/failover"
	"domicile/gateway/mover"
	"domicile/gateway/placer"
	"domicile/regions"
	"domicile/regions/placement"
)

// moving is a turn as its mover sees it: the region's logs, and all that works on them.
type moving turn

// openMover begins to carry out this region's part in moves of logs.
func (t *turn) openMover(context.Context) error {
	if t.placer == nil {
		return nil
	}
	m := (*moving)(t)
	t.mover = mover.New(mover.Config{
		Self: t.cfg.Region, Authority: t.placer, Logs: m,
		Policy: mover.Policy{Approved: m.approved, MayHold: m.mayHold, Up: m.up,
			Named: func(id api.LogID, region string) error { return failover.Named(m.federation, id, region) }},
		Clock: t.seams.Clock, Pace: t.seams.Pace, Logger: t.logger, Before: t.seams.Hooks.Move,
	})
	ctx, cancel := context.WithCancel(t.life)
	var work sync.WaitGroup
	work.Go(func() { t.mover.Run(ctx) })
	work.Go(func() { m.warm(ctx) })
	t.onClose("mover", func(context.Context) error {
		cancel()
		work.Wait() // every act ends with ctx
		return nil
	})
	return nil
}

// Held is how the log is held here.
func (m *moving) Held(ctx context.Context, id api.LogID) (mover.Held, error) {
	log, role := m.logs.find(id)
	if log == nil {
		kept, ok, err := m.fabric.Held(ctx, id)
		h := mover.Held{Latest: kept.Latest}
		if ok && kept.Role == regions.RoleHome {
			h.Home = kept.Epoch
		}
		return h, err
	}
	tenure, _, err := m.fabric.Tenure(id)
	if err != nil {
		return mover.Held{}, err
	}
	head := log.Head()
	h := mover.Held{Role: role, Lent: m.logs.lentTo(id), Epoch: head.Epoch, From: m.target.Epoch(id), Stopped: tenure.State != "", End: head.Sequence, Row: tenure.History}
	if h.Latest = tenure.Latest(); h.Latest.Compare(head.Epoch) < 0 {
		h.Latest = head.Epoch
	}
	for _, d := range tenure.Diverged {
		if d.Settled == nil {
			h.Void = append(h.Void, placement.Divergence{Epoch: d.Epoch, Region: m.cfg.Region, From: d.From, To: d.To,
				Count: d.Count, Bytes: uint64(d.Bytes), Root: d.Hash, Fate: placement.Kept})
		}
	}
	return h, nil
}

// Log is a log that is open here.
func (m *moving) Log(id api.LogID) (regions.Log, bool) {
	log, _ := m.logs.find(id)
	return log, log != nil
}

// Copies reports whether this region is to keep a copy of the log.
func (m *moving) Copies(id api.LogID) bool {
	return m.federation.Role(id, m.cfg.Region) == regions.RoleCopy
}

// Fence ends the epoch of a home.
func (m *moving) Fence(ctx context.Context, id api.LogID, epoch api.Epoch, op string) (mover.Fence, error) {
	cut, err := m.fabric.Fence(ctx, id, epoch, op)
	return mover.Fence{End: cut.Sequence, Closed: cut.Closed}, err
}

// Freeze fixes where a copy ends.
func (m *moving) Freeze(ctx context.Context, id api.LogID, op string) (regions.Cursor, error) {
	return m.fabric.Freeze(ctx, id, op)
}

// Learn gives a copy the row of the log's epochs, and has it mirrored from the present home.
func (m *moving) Learn(ctx context.Context, id api.LogID, row regions.History) error {
	if err := m.fabric.Learn(ctx, id, row); err != nil {
		return err
	}
	m.target.Rehomed(ctx, id)
	return nil
}

// leave takes an open log out of everything that uses it, and closes it.
func (m *moving) leave(ctx context.Context, id api.LogID) {
	log, role := m.logs.find(id)
	if log == nil {
		return
	}
	m.logs.drop(id)
	if role == regions.RoleHome {
		m.source.LogsChanged()
	} else {
		m.target.Forget(ctx, id)
	}
	if err := m.fabric.CloseLog(ctx, id); err != nil {
		m.logger.Warn("a log that moves was not closed cleanly", "log", id.String(), "err", err)
	}
}

// Become opens the log as a home.
func (m *moving) Become(ctx context.Context, id api.LogID, o mover.Opening) error {
	(*turn)(m).keepReport(id, o.Epoch)
	m.leave(ctx, id)
	f := m.federation.Snapshot()
	c := m.logs.config(id, f)
	c.Epoch, c.NotBefore, c.Incarnation, c.Sealed = o.Epoch, o.NotBefore, o.Incarnation, o.Sealed
	if err := m.logs.openHome(ctx, c, f); err != nil {
		return err
	}
	m.target.Forget(ctx, id)
	m.source.LogsChanged()
	return nil
}

// Follow opens the log as a copy.
func (m *moving) Follow(ctx context.Context, id api.LogID, row regions.History) error {
	m.leave(ctx, id)
	c := m.logs.config(id, m.federation.Snapshot())
	c.History = row
	if _, err := m.logs.openCopy(ctx, c); err != nil {
		return err
	}
	m.source.LogsChanged()
	m.target.Rehomed(ctx, id)
	return nil
}

// Lend gives a copy on to a region that takes the log over.
func (m *moving) Lend(id api.LogID, target string) {
	m.logs.lend(id, target)
	m.source.LogsChanged()
}

// Brought reports whether a region offered what its copy has, and all of that is here.
func (m *moving) Brought(id api.LogID, from string) bool { return m.target.Brought(id, from) }

// lends reports whether a peer may bring what its copy has: this region takes the log over
// from a home that is known to have stopped, and the peer may hold the log.
func (m *moving) lends(id api.LogID, peer string) bool {
	if m.placer == nil {
		return false
	}
	l, ok := m.placer.Log(id)
	return ok && l.Status == placement.Moving && l.Op.Target == m.cfg.Region && l.Op.Lends() && slices.Contains(l.Terms.Allowed, peer)
}

// Reach is what this region knows of how far its copy may be behind. How old a record is
// that the copy lost to damage, nobody knows.
func (m *moving) Reach(id api.LogID) mover.Reach {
	r := mover.Reach{Now: m.seams.Clock.Now()}
	lag, ok := m.target.Lag(id)
	if !ok {
		return r
	}
	if link, ok := m.mesh.Status(lag.Home); ok && link.OffsetOK {
		r.Now = r.Now.Add(max(0, link.Offset+link.OffsetErr))
	}
	r.All = m.target.Whole(id)
	if r.Safe = lag.SafeTime; lag.StalenessKnown && lag.SecondsTrusted && !lag.SafeTime.IsZero() && lag.Ledger.Damaged == 0 {
		lost := lag.Staleness + lag.StalenessError
		r.Lost = &lost
	}
	return r
}

func (m *moving) up(region string) bool {
	link, ok := m.mesh.Status(region)
	return ok && link.Up
}

// epochEnd is what this region knows of where an epoch of a log ended.
func (t *turn) epochEnd(id api.LogID, e api.Epoch) (uint64, bool) {
	if t.placer == nil || !t.logs.movable(id, t.federation) {
		return 0, false
	}
	l, ok := t.placer.Log(id)
	if !ok {
		return 0, false
	}
	end, err := l.EpochEnd(e)
	return end, err == nil
}

var _ mover.Logs = (*moving)(nil)

// Placer is this node's view of who owns the logs that may move, once started; nil where
// the manifest names no voters.
func (n *Node) Placer() *placer.Placer { return n.placer }
