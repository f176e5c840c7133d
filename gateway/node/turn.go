package node

import (
	"context"
	"errors"
	"path/filepath"
	"time"

	"domicile/api"
	"domicile/gateway"
	"domicile/gateway/divergence"
	"domicile/gateway/handover"
	"domicile/gateway/mover"
	"domicile/mirror"
	"domicile/regions"
	"domicile/regions/fabric"
	"domicile/regions/gossip"
	"domicile/regions/link"
	"domicile/regions/tail"
)

// tailsFolder is where the tails lie in the data directory.
const tailsFolder = "tails"

// drainTurn bounds how long a turn that has lost its seat waits for what is in flight:
// its logs take nothing any more, and the next holder is waiting for its peers.
const drainTurn = 2 * time.Second

// turn is what lives while this node holds the region's seat under one term: the open
// logs, the links, the mirror and the gateway. Nothing of it is used under another.
type turn struct {
	*Node
	seat fabric.Seat

	logs    *logBook
	removed removed
	mesh    *link.Mesh
	source  *mirror.Source
	target  *mirror.Target
	voided  *divergence.Desk // where people decide about void records
	tails   *tail.Book       // what is known of other homes' logs beyond the copies here
	in      *handover.In     // of the region's other nodes; nil in a solo region
	gateway *gateway.Gateway
	mover   *mover.Mover  // nil: no log moves
	gossip  *gossip.Pool  // nil: it could not be opened, which nothing depends on
	newer   chan struct{} // a peer may have a newer policy

	over    context.Context // ends when the turn begins to close, with what readers are told
	end     context.CancelCauseFunc
	closers closers
}

// openTurn opens the region's logs and everything that works on them, and puts the turn
// in place. What it opened is closed again if a step fails.
func (n *Node) openTurn(ctx context.Context, seat fabric.Seat) (*turn, error) {
	n.acting.Lock() // the manifest stays as it is while the logs are opened
	defer n.acting.Unlock()
	t := &turn{Node: n, seat: seat, newer: make(chan struct{}, 1)}
	t.over, t.end = context.WithCancelCause(n.life)
	if err := (steps{
		{"policy", t.agree},
		{"store", t.openLogs},
		{"links", t.openLinks},
		{"placement", t.openAuthority},
		{"gossip", t.openGossip},
		{"mirror", t.openMirror},
		{"hand-over", t.openHandover},
		{"gateway", t.openGateway},
		{"void records", t.openDivergence},
		{"mover", t.openMover},
	}).run(ctx); err != nil {
		closing, done := context.WithTimeout(context.WithoutCancel(ctx), n.seams.Pace.Of(drainTurn))
		defer done()
		return nil, errors.Join(err, t.close(closing))
	}
	n.turn.Store(t) // before it runs: who tells of a new policy finds it
	t.mesh.Start(n.life)
	t.chase()
	t.source.Start()
	t.openLate()
	return t, nil
}

// close takes the turn out of place, lets what is in flight find its outcome until ctx
// ends, and closes its parts. The logs stay open: the fabric forgets them.
func (t *turn) close(ctx context.Context) error {
	t.turn.CompareAndSwap(t, nil)
	t.end(&api.Error{Code: api.NotReady, Op: "read", Region: t.cfg.Region, RetryAfter: t.seams.Pace.Of(time.Second),
		Hint: "the region's seat moves; read on from the last position"})
	return t.closers.close(ctx, t.logger)
}

func (t *turn) onClose(part string, end func(context.Context) error) { t.closers.add(part, end) }

func (t *turn) openLogs(ctx context.Context) error {
	t.logs = newLogBook(t.Node)
	t.onClose("logs", func(context.Context) error {
		t.logs.closeSynced()
		if t.placer != nil {
			t.placer.Detach() // also if nothing was attached: these logs are open no more
		}
		return nil
	})
	var err error
	if t.tails, err = tail.Open(filepath.Join(t.cfg.Data, tailsFolder), t.seams.Clock, t.logger); err != nil {
		return err
	}
	t.onClose("tails", func(context.Context) error { return t.tails.Close() })
	return t.logs.open(ctx)
}

func (t *turn) openLinks(ctx context.Context) error {
	var err error
	if t.mesh, err = t.openMesh(ctx, link.Config{Hello: t.hello, Handler: (*peers)(t), Tails: (*peers)(t), Policies: (*spread)(t)}); err != nil {
		return err
	}
	t.onClose("links", t.mesh.Close)
	return nil
}

// openMesh listens for the region's peers at its link address and makes a mesh of what c
// says beyond what is this node's.
func (n *Node) openMesh(ctx context.Context, c link.Config) (*link.Mesh, error) {
	listener, err := n.listen(ctx, "listen.link", n.Link())
	if err != nil {
		return nil, err
	}
	bound := listener.Addr().String()
	n.link.Store(&bound) // the next turn's peers look for it at the same address
	c.Peers, c.Witnesses = n.federation.Addresses(n.cfg.Region), n.federation.Witnesses(n.cfg.Region)
	c.Self, c.Identity, c.Listener, c.Dial = n.cfg.Region, n.identity, listener, n.seams.Dial
	c.Clock, c.Boot, c.Gates, c.Pace, c.Logger = n.seams.Clock, n.seams.Boot, n.gates, n.seams.Pace, n.logger
	c.Hooks, c.Fabrics, c.Refused = n.seams.Hooks.Link, n.fabrics, n.refused
	m, err := link.New(c)
	if err != nil {
		return nil, errors.Join(err, listener.Close())
	}
	return m, nil
}

func (t *turn) openMirror(ctx context.Context) error {
	enter := func() mirror.Pass { return t.gate.Enter() }
	var err error
	t.target, err = mirror.NewTarget(mirror.TargetConfig{
		Self: t.cfg.Region, Federation: t.federation, Link: t.mesh.Status, Enter: enter,
		Copy: func(ctx context.Context, id api.LogID, _ api.Epoch) (regions.CopyLog, error) {
			return t.logs.copyOf(ctx, id)
		},
		Common: t.logs.common, Lends: (*moving)(t).lends, Movable: t.movable, Tails: t.tails,
		Clock: t.seams.Clock, Pace: t.seams.Pace, Logger: t.logger, Metrics: t.admin.Mirror(), Refused: t.refused,
	})
	if err != nil {
		return err
	}
	t.source, err = mirror.NewSource(mirror.SourceConfig{
		Self: t.cfg.Region, Federation: t.federation, HomeLogs: t.logs.allHomes, Relays: t.logs.relays, Shown: t.logs.shown, Confirmed: t.logs.confirmed, Link: t.mesh.Status, Enter: enter,
		Movable: t.movable, TailKey: t.fabric.TailKey,
		OpenMirror: t.mesh.OpenMirror, Clock: t.seams.Clock, Pace: t.seams.Pace, Logger: t.logger, Metrics: t.admin.Mirror(), Refused: t.refused, Hooks: t.seams.Hooks.Mirror,
	})
	if err != nil {
		return err
	}
	t.logs.source.Store(t.source)
	t.onClose("mirror source", t.source.Close)
	t.target.Start(ctx)
	return nil
}

// movable: the log may get another home, so regions with a copy are told of it ahead.
func (t *turn) movable(log api.LogID, _ string) bool {
	topic, ok := t.federation.Topic(log.Topic)
	return ok && topic.Movable()
}

func (t *turn) openGateway(context.Context) error {
	var err error
	t.gateway, err = gateway.New(gateway.Config{
		Self: t.cfg.Region, Federation: t.federation, Placement: t.federation, Gate: t.gate, Homes: t.logs.writable, Shut: t.fabric.Shut, Logs: t.logs.readable, EpochEnd: t.epochEnd,
		Links: t.mesh, Lags: (*lags)(t), Clock: t.seams.Clock, Pace: t.seams.Pace, Counters: t.admin, Refused: t.refused,
	})
	if err != nil {
		return err
	}
	t.onClose("gateway", t.gateway.Close)
	return nil
}

// policyChanged tells those who judge or speak of the policy that another is in force.
func (t *turn) policyChanged() {
	t.mesh.HelloChanged()
	t.source.PolicyChanged()
	if t.placer != nil {
		t.placer.Redeclare()
		t.mover.Kick() // what this region may hold may be another
	}
}
