package node

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"domicile/gateway/placer"
	"domicile/regions/council"
	"domicile/regions/link"
)

// At pace 1.
const (
	standEvery    = time.Second // how often a voter's standing is looked at
	membersWithin = 20 * time.Second
)

const leaderless = 4 // looks in a row: longer than most elections, well within the shortest lease

// delegate is this node's part in the placement authority for as long as a mesh is open: its
// voter, if one lives here, and a follower, if there is none or it has no say. The placer
// goes by one of the two.
type delegate struct {
	*Node
	mesh  *link.Mesh
	begin func(placer.Authority) // has the placer work with one

	mu       sync.Mutex // one change of what is open at a time
	stop     context.CancelFunc
	work     sync.WaitGroup
	voter    *council.Voter    // nil: none lives here, or it does not open
	follower *council.Follower // nil: the voter has its say
	alone    int               // how often in a row the voter was seen without a leader
	closed   bool              // for good
	follows  []string          // whom the follower asks
}

// openDelegate opens this node's part. What opens is made known to operators.
func (n *Node) openDelegate(mesh *link.Mesh, begin func(placer.Authority)) (*delegate, error) {
	p := &delegate{Node: n, mesh: mesh, begin: begin}
	if err := p.open(); err != nil {
		return nil, err
	}
	n.delegate.Store(p)
	return p, nil
}

// close ends it, the placer's work with it.
func (p *delegate) close(ctx context.Context) error {
	p.delegate.CompareAndSwap(p, nil)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	return p.shut(ctx)
}

// open opens the voter or a follower. p.mu is held, or nobody else knows p.
func (p *delegate) open() error {
	p.voterless.Store(new(string))
	if p.hasVoter() {
		v, err := council.Open(council.Config{Dir: CouncilDir(p.cfg.Data), Lines: p.mesh.Council(), Boot: p.seams.Boot, Pace: p.seams.Pace, Log: p.logger,
			MayChange: p.mayChangeVoters, MayPlace: p.mayPlace, MayFound: p.mayFound, Identity: p.identity, Refused: p.refused})
		if err != nil {
			p.trouble("this region's voter does not open, so the region follows without a vote: " + err.Error())
		} else {
			p.voter = v
			p.Node.voter.Store(v)
		}
	} else if p.out == nil && slices.Contains(p.federation.Voters(), p.cfg.Region) {
		p.trouble("this region votes on who owns logs, and no voter lives on this node, so the region follows without a vote: domicile control found makes one, domicile control voters add one that joins the others")
	}
	if err := p.stand(); err != nil {
		closing, done := context.WithTimeout(context.Background(), p.seams.Pace.Of(drainTurn))
		defer done()
		return errors.Join(err, p.shut(closing))
	}
	if p.voter == nil {
		return nil
	}
	ctx, cancel := context.WithCancel(p.life)
	p.stop = cancel
	p.work.Go(func() { p.watch(ctx) })
	return nil
}

func (p *delegate) trouble(text string) {
	p.voterless.Store(&text)
	p.logger.Error(text, "dir", CouncilDir(p.cfg.Data))
}

// shut closes what is open. p.mu is held.
func (p *delegate) shut(ctx context.Context) error {
	if p.stop != nil {
		p.stop()
		p.work.Wait()
		p.stop = nil
	}
	p.placer.Release()
	if p.follower != nil {
		p.follower.Close()
		p.follower, p.follows = nil, nil
	}
	var err error
	if p.voter != nil {
		p.Node.voter.Store(nil)
		err = p.voter.Close(ctx)
		p.voter = nil
	}
	return err
}

// watch has the placer go by the voter while it has its say, and else by those who know
// more, until ctx ends.
func (p *delegate) watch(ctx context.Context) {
	ticker := time.NewTicker(p.seams.Pace.Of(standEvery))
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
		if !p.mu.TryLock() {
			continue // it is being changed, and perhaps waits for this
		}
		if err := p.stand(); err != nil {
			p.logger.Error("this node does not follow the placement authority", "err", err)
		}
		p.mu.Unlock()
	}
}

// stand has the placer go by whoever has a say now. p.mu is held.
func (p *delegate) stand() error {
	follows, aside := p.nearVoters(), true
	if p.voter != nil {
		if follows, aside = p.voter.Aside(); aside {
			follows, p.alone = p.near(follows), 0
		} else if others := p.led(); len(others) > 0 {
			follows, aside = others, true
		}
	}
	switch {
	case !aside && p.follower == nil && p.placer.Attached():
		return nil
	case aside && p.follower != nil && slices.Equal(follows, p.follows):
		return nil
	}
	p.placer.Release()
	if p.follower != nil {
		p.follower.Close()
		p.follower, p.follows = nil, nil
	}
	if !aside {
		p.voterless.Store(new(string))
		p.begin(p.voter)
		return nil
	}
	f, err := council.Follow(council.FollowerConfig{Cache: filepath.Join(p.cfg.Data, followerCache), Lines: p.mesh.Council(), Voters: follows,
		Identity: p.identity, MayFound: p.mayFound, Refused: p.refused, Clock: p.seams.Clock, Pace: p.seams.Pace, Log: p.logger})
	if err != nil {
		return err
	}
	if p.alone >= leaderless {
		p.logger.Warn("this region's voter hears no leader: the region goes by other voters, if they answer", "voters", follows)
	} else if p.voter != nil {
		p.trouble("this region's voter has no say: its authority was overtaken, its vote was taken away or not given yet; the region follows " + strings.Join(follows, ", ") +
			", and domicile control voters add has it join them")
	}
	p.follower, p.follows = f, follows
	p.begin(following{f, p.cfg.Region})
	return nil
}

// led is nobody while the voter hears a leader, or has just lost one; else the other voters,
// of which one may well hear it: a link that is cut must not stop logs that need a lease.
func (p *delegate) led() []string {
	s := p.voter.Status()
	if s.Leader != "" {
		p.alone = 0
		return nil
	}
	if p.alone++; p.alone < leaderless {
		return nil
	}
	return p.near(slices.DeleteFunc(slices.Sorted(slices.Values(s.Voters)), func(r string) bool { return r == p.cfg.Region }))
}

// change closes the part, does something to its files and opens it again, whatever came of
// it.
func (p *delegate) change(ctx context.Context, do func() error) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return p.notHere("change authority")
	}
	err := p.shut(ctx)
	if err == nil {
		err = do()
	}
	return errors.Join(err, p.open())
}

// members are the regions that vote, as the authority's leader has it.
func (p *delegate) members(ctx context.Context) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, p.seams.Pace.Of(membersWithin))
	defer cancel()
	p.mu.Lock()
	f, v := p.follower, p.voter
	p.mu.Unlock()
	switch {
	case f != nil:
		return f.Members(ctx)
	case v != nil:
		return v.Members(ctx)
	}
	return nil, p.notHere("ask who votes")
}

// nearVoters lists the voters of the manifest that this region has a way to.
func (n *Node) nearVoters() []string { return n.near(n.federation.Voters()) }

func (n *Node) near(voters []string) []string {
	witnesses := n.federation.Witnesses(n.cfg.Region)
	return slices.DeleteFunc(slices.Clone(voters), func(v string) bool {
		return !slices.Contains(n.federation.Peers(n.cfg.Region), v) && witnesses[v] == nil
	})
}
