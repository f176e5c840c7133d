package node

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"domicile/api"
	"domicile/gateway/placer"
	"domicile/regions"
	"domicile/regions/council"
	"domicile/regions/link"
	"domicile/regions/placement"
)

// In the data directory: a voter's folder, the cache of a node that only follows, the names of
// the logs that the authority placed, and what is remembered of the peers.
const (
	councilFolder = "council"
	followerCache = "placement.cache"
	formerVoters  = "council.former" // folders of voters that were replaced
	placedNames   = "placement.names"
	peerFabrics   = "peers.json" // which fabric is which region's
)

// CouncilDir is where the voter of a node with this data directory lives.
func CouncilDir(data string) string { return filepath.Join(data, councilFolder) }

// openPlacer makes the node's view of who owns the logs that may move, as far as it was
// known when the node ran last. Without voters in the manifest there is none.
func (n *Node) openPlacer(context.Context) error {
	if len(n.federation.Voters()) == 0 {
		return nil
	}
	var err error
	n.placer, err = placer.New(placer.Config{
		Self: n.cfg.Region, Federation: n.federation, Terms: n.terms, Second: n.giveWay, Names: filepath.Join(n.cfg.Data, placedNames),
		Boot: n.seams.Boot, Pace: n.seams.Pace, Log: n.logger,
	}, n.coldPlacement())
	return err
}

// hasVoter reports whether a voter lives in this node's data directory.
func (n *Node) hasVoter() bool {
	_, err := os.Stat(filepath.Join(CouncilDir(n.cfg.Data), council.MarkFile))
	return err == nil
}

// coldPlacement reads the placement caches: of the voter that lives here, and of what this
// node followed without one. The later word counts. A damaged one is put aside: until the
// authority is heard, logs that may move are then as if they had never been placed, and take
// nothing.
func (n *Node) coldPlacement() *placement.State {
	var latest *placement.State
	for _, path := range n.caches() {
		state, _, err := council.LoadCache(path)
		switch {
		case errors.Is(err, fs.ErrNotExist):
		case err != nil:
			n.logger.Error("the placement cache is damaged and put aside: logs that may move take no record until the authority is heard",
				"err", err, "aside", os.Rename(path, path+".damaged"))
		case latest == nil || state.Generation() > latest.Generation() || state.Generation() == latest.Generation() && state.Version() > latest.Version():
			latest = state
		}
	}
	return latest
}

// caches are where this node keeps what it knows of the placement.
func (n *Node) caches() []string {
	return []string{filepath.Join(CouncilDir(n.cfg.Data), council.CacheFile), filepath.Join(n.cfg.Data, followerCache)}
}

// openAuthority begins to speak with the placement authority for the region.
func (t *turn) openAuthority(context.Context) error {
	if t.placer == nil {
		return nil
	}
	for id := range t.placer.Known() {
		t.retire(id) // a crash may have come between the deletion and the telling of it
	}
	p, err := t.openDelegate(t.mesh, t.placer.Attach)
	if err != nil {
		return err
	}
	t.onClose("placement", func(ctx context.Context) error {
		err := p.close(ctx)
		t.placer.Detach()
		return err
	})
	return nil
}

// retire has the authority let go of a log that was deleted here, at its home.
func (t *turn) retire(id api.LogID) {
	if t.placer == nil {
		return
	}
	if d, ok := t.fabric.Deleted(id); ok && d.Kind == string(regions.RoleHome) {
		t.placer.Deleted(id, d.Incarnation)
	}
}

// giveWay takes back a log that this region began anew, as the manifest has it, although the
// log lives on elsewhere: its disk was lost, and with it all that it knew of that. Nothing
// was stored in it, since nobody had allowed that. The region becomes a copy of the other.
func (n *Node) giveWay(id api.LogID, incarnation, placed string) {
	t := n.turn.Load()
	if t == nil {
		return // it is told again
	}
	log, ok := t.logs.home(id)
	if !ok || log.Head().Incarnation != incarnation {
		return
	}
	if log.Head().Sequence != 0 {
		t.logger.Error("a log lives on elsewhere and was begun anew here, with records in it: it takes no more, and people have to look", "log", id.String())
		return
	}
	t.logs.drop(id)
	t.source.LogsChanged()
	if _, err := t.fabric.Delete(t.over, id); err != nil {
		t.logger.Error("a log that was begun anew while it lives on elsewhere cannot be taken back", "log", id.String(), "err", err)
	}
	t.placer.Deleted(id, incarnation)
	t.placer.Named(id, placed)
	t.logger.Warn("a log that lives on elsewhere was begun anew here, and is taken back", "log", id.String())
}

// attend keeps this node's part in the placement authority while another one holds the
// region's seat: the region's voter stays on the node where it lives. leave ends it.
func (n *Node) attend(ctx context.Context) (leave func()) {
	var parts closers
	leave = func() {
		closing, done := context.WithTimeout(context.WithoutCancel(ctx), n.seams.Pace.Of(drainTurn))
		defer done()
		if err := parts.close(closing, n.logger); err != nil {
			n.logger.Warn("the part in the placement authority did not end in time", "err", err)
		}
	}
	if n.placer == nil || n.out == nil {
		return leave
	}
	if err := n.openCouncil(ctx, parts.add); err != nil {
		n.logger.Error("this node takes no part in the placement authority while another one holds the seat", "err", err)
	}
	return leave
}

// openCouncil has this node take part in the placement authority by a lane of its own, where
// it has no links. add notes how to close what was opened, also if the rest fails.
func (n *Node) openCouncil(ctx context.Context, add func(part string, end func(context.Context) error)) error {
	mesh, err := n.openMesh(ctx, link.Config{CouncilOnly: true})
	if err != nil {
		return err
	}
	add("links", mesh.Close)
	p, err := n.openDelegate(mesh, n.placer.Watch)
	if err != nil {
		return err
	}
	add("placer", func(context.Context) error { n.placer.Detach(); return nil })
	add("placement", p.close)
	mesh.Start(n.life)
	return nil
}

// following is a follower as its region's way to the authority.
type following struct {
	*council.Follower
	region string
}

func (f following) Renew(ctx context.Context) (placement.Grant, error) {
	return f.Follower.Renew(ctx, f.region)
}

func (f following) Since(version uint64, authority string) (placement.Delta, <-chan struct{}) {
	d, changed, _ := f.Follower.Since(version, authority)
	return d, changed
}

var (
	_ placer.Authority = following{}
	_ placer.Authority = (*council.Voter)(nil)
)
