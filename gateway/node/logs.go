package node

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"domicile/api"
	"domicile/gateway/placer"
	"domicile/mirror"
	"domicile/regions"
	"domicile/regions/fabric"
)

// logBook holds the logs this region has open: those it owns and its copies of
// others'. Safe for concurrent use.
type logBook struct {
	self       string
	clock      regions.Clock
	pace       regions.Pace
	federation *regions.Federation
	fabric     *fabric.Fabric
	placer     *placer.Placer // nil: no log moves
	hello      func()         // called when another log that may move has its home here

	late   []api.LogID                   // open alone writes it
	source atomic.Pointer[mirror.Source] // of topics that hold; nil: nothing is known of mirrors yet

	mu     sync.RWMutex
	homes  map[api.LogID]regions.HomeLog
	copies map[api.LogID]regions.CopyLog
	synced map[api.LogID]*synced         // of those whose acks wait for other regions
	lent   map[api.LogID]string          // copies that are given on, and where to
	leased map[api.LogID]regions.HomeLog // homes that may move, as publishes see them

	underway map[api.LogID]*copyOpening // copies that somebody is opening, without mu
}

// copyOpening is one opening of a copy, which others that want it wait for.
type copyOpening struct {
	done    chan struct{}
	dropped bool // the log is to be closed again
}

func newLogBook(n *Node) *logBook {
	return &logBook{self: n.cfg.Region, clock: n.seams.Clock, pace: n.seams.Pace, federation: n.federation, fabric: n.fabric, placer: n.placer,
		hello: func() {
			if t := n.turn.Load(); t != nil {
				t.mesh.HelloChanged()
			}
		},
		homes: map[api.LogID]regions.HomeLog{}, copies: map[api.LogID]regions.CopyLog{}, synced: map[api.LogID]*synced{}, leased: map[api.LogID]regions.HomeLog{}, lent: map[api.LogID]string{},
		underway: map[api.LogID]*copyOpening{}}
}

// open opens every log that the manifest gives to this region, as home or as copy. New ones
// for which the store has no place yet are late. One that is damaged stays shut, which status
// says, and takes no other with it.
func (b *logBook) open(ctx context.Context) error {
	federation := b.federation.Snapshot()
	for _, name := range federation.Topics() {
		topic, _ := federation.Topic(name)
		for _, id := range federation.Logs(topic) {
			switch err := b.openAs(ctx, id, federation.Role(id, b.self), federation); {
			case waits(err):
				b.late = append(b.late, id)
			case errors.Is(err, fabric.ErrDamaged): // the store has said it
			case err != nil:
				return err
			}
		}
	}
	return nil
}

// config is what a manifest makes of a log that it gives to this region.
func (b *logBook) config(id api.LogID, f *regions.Federation) fabric.LogConfig {
	c := fabric.LogConfig{ID: id}
	topic, ok := f.Topic(id.Topic)
	if !ok {
		return c // the store refuses a log without a bound
	}
	_, c.Epoch, _ = f.Home(id)
	c.MaxBytes, c.MaxAge = int64(topic.Retention.MaxBytes), topic.Retention.MaxAge
	c.Relaxed = topic.Durability == regions.Relaxed
	if f.Role(id, b.self) == regions.RoleHome {
		c.Hold = topic.Hold
		c.Safe, c.Waits = func() uint64 { return b.safe(id) }, func() string { return b.waits(id) }
	}
	return c
}

// safe is how far retention may go in a log that is held for its mirrors.
func (b *logBook) safe(id api.LogID) uint64 {
	if s := b.source.Load(); s != nil {
		return s.Safe(id)
	}
	return 0
}

func (b *logBook) waits(id api.LogID) string {
	if s := b.source.Load(); s != nil {
		return s.Waits(id)
	}
	return "no mirror was heard since this node opened the log"
}

// openAs opens a log in the role that a manifest gives to this region; one that may move
// in the role that it has.
func (b *logBook) openAs(ctx context.Context, id api.LogID, role regions.Role, f *regions.Federation) error {
	var err error
	switch {
	case b.movable(id, f):
		err = b.openMovable(ctx, id, f)
	case role == regions.RoleHome:
		err = b.openHome(ctx, b.config(id, f), f)
	case role == regions.RoleCopy:
		_, err = b.openCopy(ctx, b.config(id, f))
	}
	return err
}

// drop forgets a log that is about to be closed or deleted.
func (b *logBook) drop(id api.LogID) {
	b.mu.Lock()
	delete(b.homes, id)
	delete(b.copies, id)
	delete(b.leased, id)
	delete(b.lent, id)
	s := b.synced[id]
	delete(b.synced, id)
	if o := b.underway[id]; o != nil {
		o.dropped = true
	}
	b.mu.Unlock()
	s.close()
	if b.placer != nil {
		b.placer.Closed(id)
	}
}

// openHome opens a log as this region's own. One that may move takes no record before the
// authority has it.
func (b *logBook) openHome(ctx context.Context, c fabric.LogConfig, f *regions.Federation) error {
	c.Keep = true // what an earlier run was told: only a reload keeps less
	log, err := b.fabric.Home(ctx, c)
	if err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.homes[c.ID] = log
	b.wait(c.ID, log, f)
	if b.movable(c.ID, f) {
		incarnation := log.Head().Incarnation
		b.leased[c.ID] = b.placer.Leased(b.whole(c.ID), incarnation, c.Epoch)
		b.placer.Opened(c.ID, incarnation, c.Epoch)
		b.hello()
	}
	return nil
}

// openCopy is this region's copy of a log, opened or made if need be, by one caller at a
// time. Publishes to other logs do not wait: it may have to read back and to judge a lot.
func (b *logBook) openCopy(ctx context.Context, c fabric.LogConfig) (regions.CopyLog, error) {
	for {
		b.mu.Lock()
		log, o := b.copies[c.ID], b.underway[c.ID]
		if log == nil && o == nil {
			o = &copyOpening{done: make(chan struct{})}
			b.underway[c.ID] = o
			b.mu.Unlock()
			return b.carryOut(ctx, o, c)
		}
		b.mu.Unlock()
		if log != nil {
			return log, nil
		}
		select {
		case <-o.done:
		case <-ctx.Done():
			return nil, beingOpened(c.ID, b.self, ctx.Err())
		}
	}
}

// carryOut opens a copy, and closes it again if it was dropped meanwhile.
func (b *logBook) carryOut(ctx context.Context, o *copyOpening, c fabric.LogConfig) (regions.CopyLog, error) {
	defer close(o.done)
	log, err := b.fabric.Copy(ctx, c)
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.underway, c.ID)
	switch {
	case err != nil:
		return nil, err
	case o.dropped:
		return nil, errors.Join(beingOpened(c.ID, b.self, nil), b.fabric.CloseLog(context.WithoutCancel(ctx), c.ID))
	}
	b.copies[c.ID] = log
	if b.placer != nil {
		b.placer.Named(c.ID, log.Cursor().Incarnation)
	}
	return log, nil
}

func beingOpened(id api.LogID, region string, why error) error {
	return &api.Error{Code: api.NotReady, Op: "open copy", Topic: id.Topic, Region: region, Err: why, Hint: "the copy is being opened, or was closed while it was: try again"}
}

// copyOf is this region's copy of a log, opened or made if need be. A log that the
// manifest does not mirror to here is refused.
func (b *logBook) copyOf(ctx context.Context, id api.LogID) (regions.CopyLog, error) {
	b.mu.RLock()
	log, open := b.copies[id]
	b.mu.RUnlock()
	if open {
		return log, nil
	}
	if !slices.Contains(b.federation.Targets(id), b.self) {
		return nil, &api.Error{Code: api.ManifestMismatch, Op: "open copy", Topic: id.Topic, Region: b.self, Field: "mirror",
			Hint: "this region's manifest names no copy of " + id.String() + " here"}
	}
	return b.openCopy(ctx, b.config(id, b.federation))
}

// home finds a log that this region owns, with what is not common yet.
func (b *logBook) home(id api.LogID) (regions.HomeLog, bool) {
	b.mu.RLock()
	defer b.mu.RUnlock()
	log, ok := b.homes[id]
	return log, ok
}

// find is an open log with the role that it has here; nil: it is not open.
func (b *logBook) find(id api.LogID) (regions.Log, regions.Role) {
	b.mu.RLock()
	defer b.mu.RUnlock()
	if log, ok := b.homes[id]; ok {
		return log, regions.RoleHome
	}
	if log, ok := b.copies[id]; ok {
		return log, regions.RoleCopy
	}
	return nil, regions.RoleNone
}

// ids lists the open logs, in order.
func (b *logBook) ids() []api.LogID {
	b.mu.RLock()
	defer b.mu.RUnlock()
	out := slices.Collect(maps.Keys(b.homes))
	for id := range b.copies {
		out = append(out, id)
	}
	slices.SortFunc(out, func(x, y api.LogID) int { return strings.Compare(x.String(), y.String()) })
	return out
}

func (b *logBook) allHomes() []regions.HomeLog {
	b.mu.RLock()
	defer b.mu.RUnlock()
	return slices.Collect(maps.Values(b.homes))
}

// ofTopic lists the logs of a topic that are here, homes and copies, by name, with what is
// not common yet.
func (b *logBook) ofTopic(topic string) []regions.Log {
	b.mu.RLock()
	defer b.mu.RUnlock()
	var logs []regions.Log
	for id, log := range b.homes {
		if id.Topic == topic {
			logs = append(logs, log)
		}
	}
	for id, log := range b.copies {
		if id.Topic == topic {
			logs = append(logs, log)
		}
	}
	slices.SortFunc(logs, func(x, y regions.Log) int { return strings.Compare(x.ID().String(), y.ID().String()) })
	return logs
}

// lend notes where a copy is given on to; "": nowhere any more.
func (b *logBook) lend(id api.LogID, target string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if target == "" {
		delete(b.lent, id)
		return
	}
	b.lent[id] = target
}

func (b *logBook) lentTo(id api.LogID) string {
	b.mu.RLock()
	defer b.mu.RUnlock()
	return b.lent[id]
}

// relays lists the copies that are given on.
func (b *logBook) relays() []mirror.Relay {
	b.mu.RLock()
	defer b.mu.RUnlock()
	var out []mirror.Relay
	for id, target := range b.lent {
		if log, ok := b.copies[id]; ok {
			out = append(out, mirror.Relay{Log: log, Target: target})
		}
	}
	return out
}
