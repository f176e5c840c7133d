package fabric

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
)

// A node of a quorum region votes on what is stored, and its votes count as long as it
// forgets none. So, before its broker has a store, it introduces itself to its siblings: a
// new store takes part once both know it, which is how a region is founded; a store that
// stands in the place of another, or lacks what it had, is refused, or filled under
// conditions when an operator says so.

const rejoinHint = "; if the disk or what was on it is lost, start the node with serve --rejoin: its siblings, both up and whole, fill it; do not put an older copy of the directory in its place"

var errOutside = errors.New("this node does not take part in the region yet")

// openMember starts a node of a quorum region. Whether its siblings are there is for Seat to
// say. One that may not vote yet comes in as soon as it may.
func (f *Fabric) openMember(ctx context.Context, last run) (err error) {
	if f.members, err = newMembers(f); err != nil {
		return err
	}
	f.calls = newCalls(f)
	f.Serve(callVerify, f.verifyHere)
	f.suspended.Store(f.belowQuorum(1))
	f.seat.set(Seat{Since: f.cfg.Clock.Now(), Reason: "no other node of the region was heard yet"})
	if err := f.nameStore(); err != nil {
		return err
	}
	lacks, err := f.lacking()
	if err != nil {
		return err
	}
	spoilt, err := f.spoilt()
	if err != nil {
		return err
	}
	for _, name := range spoilt {
		folder := spoiltFolder(name)
		switch {
		case f.cfg.Cluster.Rejoin, folder == name && f.hasFolder(folder): // a group that forgot has no vote
			lacks = append(lacks, folder) // as good as gone
		case f.hasFolder(folder):
			f.unfit.Store(true)
		}
	}
	if slices.Contains(lacks, streamFolder+controlStream) && !f.cfg.Cluster.Rejoin {
		return f.lost(lacks) // it is never deleted
	}
	if err := f.writeRun(run{State: runOpen, Boot: f.boot}); err != nil { // the broker writes as soon as it is started
		return fmt.Errorf("write run mark: %w", err)
	}
	member := f.identity().Joined && len(lacks) == 0
	first, cancel := context.WithTimeout(ctx, f.cfg.Pace.Of(askWithin))
	err = f.comeIn(first, lacks)
	cancel()
	switch {
	case err == nil, member && errors.Is(err, errOutside):
		err = f.startMember(ctx, last)
	case errors.Is(err, errOutside):
		err = nil
		f.spawn(func() { f.comeInLater(last, lacks) })
	}
	if err != nil {
		return err
	}
	if err := f.openLoops(); err != nil {
		return err
	}
	for node := range f.members.peers {
		f.spawn(func() { f.members.pingLoop(node) })
	}
	f.spawn(f.weighLoop)
	f.spawn(f.credentialsLoop)
	f.spawn(f.seatLoop)
	return nil
}

// nameStore names a store that was made before stores had names.
func (f *Fabric) nameStore() error {
	if f.identity().Store != "" {
		return nil
	}
	name, err := newID()
	if err != nil {
		return err
	}
	have, err := f.folders()
	if err != nil {
		return err
	}
	return f.changeIdentity(func(id *identity) { id.Store, id.Joined = name, id.Fabric != "" || len(have) > 0 })
}

// startMember starts the broker with its store: from here on this node votes.
func (f *Fabric) startMember(ctx context.Context, last run) error {
	if f.cfg.Cluster.Rejoin {
		if err := f.setAside(); err != nil {
			return err
		}
	}
	if err := f.start(ctx, 0, last); err != nil {
		return err
	}
	return f.attend()
}

// attend has the broker that was started hear the siblings.
func (f *Fabric) attend() error {
	b, err := f.running()
	if err != nil {
		return err
	}
	if err := errors.Join(f.members.serve(b.talk), f.calls.serve(b.talk), f.receive(b.talk)); err != nil {
		return fmt.Errorf("listen to the region's nodes: %w", err)
	}
	f.outside.Store(nil)
	return nil
}

func (f *Fabric) comeInLater(last run, lacks []string) {
	err := f.comeIn(f.ctx, lacks)
	if err == nil {
		err = f.startMember(f.ctx, last)
	}
	if err != nil && f.ctx.Err() == nil {
		f.fail("this node can't take part in its region: "+plain(err), false)
	}
}

// comeIn returns once this node may vote. It fails when it never may as it is, and with
// errOutside when ctx ends before that is known.
func (f *Fabric) comeIn(ctx context.Context, lacks []string) error {
	b, err := startBroker(f.ctx, &f.cfg, 0)
	if err != nil {
		return err
	}
	defer b.stop()
	if err := f.receive(b.talk); err != nil {
		return err
	}
	tick := time.NewTicker(max(f.cfg.Pace.Of(lookEvery), time.Millisecond))
	defer tick.Stop()
	for {
		why, err := f.tryComeIn(ctx, b.talk, lacks)
		if err != nil || why == "" {
			return err
		}
		why = "this node does not take part in the region yet: " + why
		f.outside.Store(&why)
		select {
		case <-tick.C:
		case <-ctx.Done():
			return errOutside
		}
	}
}

// tryComeIn asks both siblings once. why is what is still missing; "": this node may vote.
func (f *Fabric) tryComeIn(ctx context.Context, c *nats.Conn, lacks []string) (why string, err error) {
	rejoin := f.cfg.Cluster.Rejoin
	said := f.askSiblings(ctx, c, introduction{Lacks: lacks, Rejoin: rejoin})
	id := f.identity()
	var has []string
	stands := false // in the place of another store
	for node, a := range said {
		if known := id.Siblings[node]; id.Joined && known != "" && a.Store != known {
			delete(said, node) // it is the one that has to explain itself
			continue
		}
		stands = stands || a.Other || a.Known != "" && a.Known != id.Store
		has = append(has, a.Has...)
	}
	slices.Sort(has)
	has = slices.Compact(has)
	switch {
	case stands && !rejoin:
		return "", f.replaced("dir", f.cfg.Dir, "the region's other nodes know this node by another data directory, which it has to be given back"+rejoinHint)
	case len(has) > 0 && !rejoin:
		return "", f.lost(has)
	case len(said) < len(f.members.peers):
		return f.unheard(said), nil
	case stands || len(has) > 0:
		return f.refill(ctx, c, said)
	}
	return "", f.joined(said)
}

// askSiblings introduces this node to all at once and returns the answers that came.
func (f *Fabric) askSiblings(ctx context.Context, c *nats.Conn, in introduction) map[string]acquaintance {
	said := map[string]acquaintance{}
	var mu sync.Mutex
	var wg sync.WaitGroup
	for node := range f.members.peers {
		wg.Go(func() {
			a, err := f.introduce(ctx, c, node, in)
			if err != nil {
				return
			}
			mu.Lock()
			defer mu.Unlock()
			said[node] = a
		})
	}
	wg.Wait()
	return said
}

// refill lets this node take part with less than it had, once its siblings have proved that
// they need nothing of it. Its promises are then theirs: what it promised counted with one
// of them.
func (f *Fabric) refill(ctx context.Context, c *nats.Conn, said map[string]acquaintance) (why string, err error) {
	nodes := slices.Sorted(maps.Keys(said))
	a, b := said[nodes[0]], said[nodes[1]]
	if !a.Joined || !b.Joined {
		return "its siblings do not take part in it either", nil
	}
	if a.Spoilt || b.Spoilt {
		return "what it lacks is damaged at a sibling too", nil
	}
	names := slices.Collect(maps.Keys(a.Groups))
	names = append(names, slices.Collect(maps.Keys(b.Groups))...)
	if len(names) == 0 {
		return "its siblings have nothing to fill it with yet", nil
	}
	for _, name := range names {
		if !proved(a.Groups[name], b.Groups[name], serverName(f.cfg.Region, nodes[0]), serverName(f.cfg.Region, nodes[1])) {
			return "its siblings do not both have all of the region's data yet", nil
		}
	}
	if err := f.members.promises.adopt(a.Word, b.Word); err != nil {
		return "", err
	}
	settled := f.askSiblings(ctx, c, introduction{Rejoin: true, Settle: true})
	if len(settled) < len(said) {
		return f.unheard(settled), nil
	}
	f.cfg.Logger.Warn("this node is filled by its siblings")
	return "", f.joined(settled)
}

// joined remembers both siblings, and that this node votes.
func (f *Fabric) joined(said map[string]acquaintance) error {
	for node, a := range said {
		if a.Known != f.identity().Store {
			return f.replaced("dir", f.cfg.Dir, "node "+node+" knows this node by another data directory"+rejoinHint)
		}
	}
	if id := f.identity(); id.Joined && len(id.Siblings) == len(said) {
		return nil // they are those it knows
	}
	return f.changeIdentity(func(id *identity) {
		for node, a := range said {
			id.Siblings[node] = a.Store
		}
		id.Joined = true
	})
}

func (f *Fabric) unheard(said map[string]acquaintance) string {
	var silent []string
	for _, node := range slices.Sorted(maps.Keys(f.members.peers)) {
		if _, ok := said[node]; !ok {
			silent = append(silent, node)
		}
	}
	return "it has to meet node " + strings.Join(silent, " and node ") + " first"
}

// logOf is the log that a stream is of, in its written form, as far as this node knows.
func (f *Fabric) logOf(stream string) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	for key, e := range f.known {
		if anew(key, e.Made) == stream {
			return e.Log
		}
	}
	return stream
}

// lost refuses a start without folders that the siblings have.
func (f *Fabric) lost(folders []string) error {
	var logs []string
	for _, name := range folders {
		if stream, ok := strings.CutPrefix(name, streamFolder); ok {
			logs = append(logs, f.logOf(stream))
		}
	}
	if len(logs) == 0 {
		logs = folders
	}
	return f.replaced("dir", strings.Join(logs, ", "), "this node had the data shown and it is gone from "+f.cfg.Dir+rejoinHint)
}
