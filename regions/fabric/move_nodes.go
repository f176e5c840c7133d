package fabric

import (
	"context"
	"errors"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"domicile/api"
	"domicile/regions"
)

// agreeWithin bounds each wait for the nodes of a new quorum store, at pace 1.
const agreeWithin = 2 * time.Minute

// gather opens every node of the new store in this process and waits until one of them
// writes for all. None of them serves anybody: the region's logs stay closed.
func (m *Move) gather(ctx context.Context) error {
	for i := range m.to {
		f, err := Open(ctx, m.to[i])
		if err != nil {
			return err
		}
		m.nodes = append(m.nodes, f)
	}
	return m.await(ctx, "they did not agree on one that writes", func(ctx context.Context) error {
		for _, f := range m.nodes {
			if seat, _ := f.Seat(); seat.Mine {
				m.fresh = f
				return m.share(ctx)
			}
		}
		return errNotYet
	})
}

// share gives every node the region's id and hash key: a node that was away when they
// were made learns them here and not at its first start elsewhere.
func (m *Move) share(ctx context.Context) error {
	for _, f := range m.nodes {
		if f.cfg.Cluster == nil {
			continue
		}
		s, err := f.openControl(ctx)
		if err == nil {
			err = f.settleIdentity(ctx, s)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

var errNotYet = errors.New("not yet")

// caughtUp waits until every node of the new store has all of every log on its disk, not
// only the two that an acknowledgement needs.
func (m *Move) caughtUp(ctx context.Context) error {
	if len(m.nodes) == 1 {
		return nil
	}
	streams := []string{controlStream}
	for _, p := range m.logs {
		streams = append(streams, p.to.stream)
	}
	for _, stream := range streams {
		err := m.await(ctx, "one of them does not come up with the others", func(ctx context.Context) error {
			s, err := m.fresh.broker.js.Stream(ctx, stream)
			if err != nil {
				return err
			}
			return currentEverywhere(s.CachedInfo())
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func currentEverywhere(info *jetstream.StreamInfo) error {
	if info.Cluster == nil || info.Cluster.Leader == "" || len(info.Cluster.Replicas) != regions.QuorumNodes-1 {
		return errNotYet
	}
	for _, r := range info.Cluster.Replicas {
		if !r.Current || r.Offline || r.Lag > 0 {
			return errNotYet
		}
	}
	return nil
}

// await says what the nodes of the new store did not come to in time.
func (m *Move) await(ctx context.Context, what string, try func(context.Context) error) error {
	err := await(ctx, m.nodes[0].cfg.Pace, try)
	if err == nil || api.CodeOf(err) == api.ConfigInvalid {
		return err
	}
	return &api.Error{Code: api.NotReady, Op: "move store", Region: m.from.Region, Err: err,
		Hint: "the nodes of the new store: " + what + "; run the same command again"}
}

// patiently tries again in a store of three nodes, where a request may meet no leader and
// is not answered then.
func patiently(ctx context.Context, f *Fabric, try func(context.Context) error) error {
	if f.cfg.Cluster == nil {
		return try(ctx)
	}
	return await(ctx, f.cfg.Pace, try)
}

// await tries until it succeeds or the time is over.
func await(ctx context.Context, pace regions.Pace, try func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, pace.Of(agreeWithin))
	defer cancel()
	tick := time.NewTicker(max(pace.Of(lookEvery), time.Millisecond))
	defer tick.Stop()
	for {
		once, done := context.WithTimeout(ctx, pace.Of(AppendDeadline))
		err := try(once)
		done()
		if err == nil || api.CodeOf(err) == api.ConfigInvalid || ctx.Err() != nil {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return err
		}
	}
}

// closeNodes ends the new store's nodes, the one that writes first: it hands over in
// order.
func (m *Move) closeNodes(ctx context.Context) error {
	if m.fresh != nil {
		if err := m.fresh.Close(ctx); err != nil {
			return err
		}
	}
	for _, f := range m.nodes {
		if err := f.Close(ctx); err != nil { // the one that writes is closed: that is no error
			return err
		}
	}
	return nil
}
