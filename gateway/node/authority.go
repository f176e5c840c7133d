package node

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"domicile/gateway/placer"
	"domicile/regions/council"
	"domicile/regions/placement"
)

// In the data directory: a voter's folder, the cache of a node that only follows, and the
// names of the logs that the authority placed.
const (
	councilFolder = "council"
	followerCache = "placement.cache"
	placedNames   = "placement.names"
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
		Self: n.cfg.Region, Federation: n.federation, Terms: n.terms, Names: filepath.Join(n.cfg.Data, placedNames),
		Boot: n.seams.Boot, Pace: n.seams.Pace, Log: n.logger,
	}, n.coldPlacement())
	return err
}

// hasVoter reports whether a voter lives in this node's data directory.
func (n *Node) hasVoter() bool {
	_, err := os.Stat(filepath.Join(CouncilDir(n.cfg.Data), council.MarkFile))
	return err == nil
}

// coldPlacement reads the placement cache. A damaged one is put aside: until the authority
// is heard, logs that may move are then as if they had never been placed, and take nothing.
func (n *Node) coldPlacement() *placement.State {
	path := filepath.Join(n.cfg.Data, followerCache)
	if n.hasVoter() {
		path = filepath.Join(CouncilDir(n.cfg.Data), council.CacheFile)
	}
	state, _, err := council.LoadCache(path)
	switch {
	case err == nil:
		return state
	case errors.Is(err, fs.ErrNotExist):
		return nil
	}
	n.logger.Error("the placement cache is damaged and put aside: logs that may move take no record until the authority is heard",
		"err", err, "aside", os.Rename(path, path+".damaged"))
	return nil
}

// openAuthority begins to speak with the placement authority: as a voter, if one lives
// here, else as one who follows.
func (t *turn) openAuthority(context.Context) error {
	if t.placer == nil {
		return nil
	}
	lane := t.mesh.Council()
	if t.hasVoter() {
		v, err := council.Open(council.Config{Dir: CouncilDir(t.cfg.Data), Lines: lane, Boot: t.seams.Boot, Pace: t.seams.Pace, Log: t.logger})
		if err == nil {
			t.attach(v, v.Close)
			return nil
		}
		t.logger.Error("this region's voter does not open; it follows without a vote", "err", err)
		lane = t.mesh.Council()
	} else if slices.Contains(t.federation.Voters(), t.cfg.Region) {
		t.logger.Error("this region votes on who owns logs, and no voter lives on this node: it follows without a vote; see domicile control found",
			"dir", CouncilDir(t.cfg.Data))
	}
	f, err := council.Follow(council.FollowerConfig{Cache: filepath.Join(t.cfg.Data, followerCache), Lines: lane, Voters: t.nearVoters(),
		Clock: t.seams.Clock, Pace: t.seams.Pace, Log: t.logger})
	if err != nil {
		return err
	}
	t.attach(following{f, t.cfg.Region}, func(context.Context) error { f.Close(); return nil })
	return nil
}

func (t *turn) attach(a placer.Authority, end func(context.Context) error) {
	t.placer.Attach(a)
	t.onClose(func(ctx context.Context) error {
		t.placer.Detach()
		return end(ctx)
	})
}

// nearVoters lists the voters that this region has a link with.
func (t *turn) nearVoters() []string {
	return slices.DeleteFunc(slices.Clone(t.federation.Voters()), func(v string) bool {
		return !slices.Contains(t.federation.Peers(t.cfg.Region), v)
	})
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
