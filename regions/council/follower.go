package council

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"domicile/api"
	"domicile/regions"
	"domicile/regions/placement"
)

// FollowerConfig is what a gateway without a vote runs with.
type FollowerConfig struct {
	Cache  string   // path of the placement cache
	Lines  Lines    // only dialed
	Voters []string // regions to ask, nearest first
	// Identity signs what this region sends, and verifies what others send.
	Identity Identity
	// MayFound refuses a later founding that people did not agree to; nil: none is believed.
	MayFound func(Consent) error
	// Refused counts what no correct voter says; nil: nobody counts.
	Refused *regions.PeerRefusals
	Clock   regions.Clock
	Pace    regions.Pace
	Log     *slog.Logger
}

// Follower keeps a copy of the placement on a gateway that has no vote. It starts cold
// from its cache and goes on from a voter. Safe for concurrent use.
type Follower struct {
	cfg FollowerConfig

	answered atomic.Int32 // which of the voters answered last

	mu      sync.RWMutex
	state   *placement.State
	heard   time.Time // a voter's last word; zero: none since the start
	changed chan struct{}

	cancel context.CancelFunc
	wg     sync.WaitGroup
}

// Follow starts a follower. A damaged cache is refused, with the way out; a missing one is
// an empty copy.
func Follow(cfg FollowerConfig) (*Follower, error) {
	state, _, err := LoadCache(cfg.Cache)
	if errors.Is(err, fs.ErrNotExist) {
		state, err = &placement.State{}, nil
	}
	if err != nil {
		return nil, err
	}
	f := &Follower{cfg: cfg, state: state, changed: make(chan struct{})}
	ctx, cancel := context.WithCancel(context.Background())
	f.cancel = cancel
	f.wg.Go(func() { f.run(ctx) })
	f.wg.Go(func() { keepCache(ctx, cfg.Pace, cfg.Log, cfg.Cache, f.image) })
	return f, nil
}

// Close ends the follower and waits for it; what it has is in the cache then.
func (f *Follower) Close() {
	f.cancel()
	f.wg.Wait()
}

// Log is the placement of a log, as this copy has it.
func (f *Follower) Log(incarnation string) (placement.Log, bool) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return f.state.Log(incarnation)
}

// Since is what changed after a version under the named authority, a channel that is
// closed at the next change, and when a voter was heard last: zero if none was since the
// start.
func (f *Follower) Since(version uint64, authority string) (placement.Delta, <-chan struct{}, time.Time) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	if authority != f.state.Authority() {
		version = 0
	}
	return f.state.Since(version), f.changed, f.heard
}

// Submit brings a command to the authority, as Voter.Submit does.
func (f *Follower) Submit(ctx context.Context, c placement.Command) (r placement.Result, err error) {
	if err := submittable(c); err != nil {
		return r, err
	}
	data, err := c.Encode()
	if err != nil {
		return r, err
	}
	proven := func() (p *proof, err error) {
		f.mu.RLock()
		defer f.mu.RUnlock()
		return prove(f.cfg.Identity, f.state, &c, data)
	}
	err = f.ask(ctx, func() (request, error) {
		p, err := proven()
		return request{Command: data, Proof: p}, err
	}, func(a reply) { r = a.Result })
	return r, err
}

// Renew prolongs the leases of the region whose certificate the lines show. Count them
// from before the call.
func (f *Follower) Renew(ctx context.Context, region string) (g placement.Grant, err error) {
	err = f.ask(ctx, same(request{Renew: region}), func(a reply) { g = a.Grant })
	return g, err
}

// ask asks one voter after the other until one has an answer, the one that had the last one
// first. One that hangs uses up its own share of the time and nobody else's.
func (f *Follower) ask(ctx context.Context, next func() (request, error), take func(reply)) error {
	if len(f.cfg.Voters) == 0 {
		return &api.Error{Code: api.AuthorityUnreachable, Op: "place log", Field: "voters", Hint: "no voter is configured"}
	}
	first, tries, all := int(f.answered.Load()), 0, len(f.cfg.Voters)
	return again(ctx, f.cfg.Pace.Of(retryEvery), func() (bool, error) {
		q, err := next()
		if err != nil {
			return false, err
		}
		at, left := (first+tries)%all, all-tries%all
		tries++
		share := f.cfg.Pace.Of(lineTimeout)
		if end, ok := ctx.Deadline(); ok {
			share = min(share, time.Until(end)/time.Duration(left))
		}
		ctx, cancel := context.WithTimeout(ctx, share)
		defer cancel()
		a, sent, err := ask(ctx, f.cfg.Lines, f.cfg.Voters[at], f.greeting(), ignore, q)
		if err == nil {
			f.answered.Store(int32(at))
			take(a)
		}
		if api.CodeOf(err) == api.VersionMismatch && tries < all {
			err = &api.Error{Code: api.NotReady, Op: "place log", Err: err, Hint: "another voter may be of a later version"}
		}
		return sent, err
	})
}

func same(q request) func() (request, error) { return func() (request, error) { return q, nil } }

func ignore(string, hello) {}

func (f *Follower) greeting() hello {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return hello{Authority: f.state.Authority(), Generation: f.state.Generation(), After: f.state.Version()}
}

func (f *Follower) image() ([]byte, <-chan struct{}, error) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	if f.state.Generation() == 0 {
		return nil, f.changed, nil
	}
	data, err := f.state.Snapshot()
	return data, f.changed, err
}

// run follows one voter after the other.
func (f *Follower) run(ctx context.Context) {
	ticker := time.NewTicker(f.cfg.Pace.Of(time.Second))
	defer ticker.Stop()
	for i := 0; ; i++ {
		if n := len(f.cfg.Voters); n > 0 {
			voter := f.cfg.Voters[i%n]
			if err := f.followOne(ctx, voter); err != nil && ctx.Err() == nil {
				f.cfg.Log.Debug("a voter is not followed any more", "region", voter, "err", err)
			}
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
	}
}

func (f *Follower) followOne(ctx context.Context, voter string) error {
	h := f.greeting()
	h.For = follow
	var theirs hello
	conn, err := open(ctx, f.cfg.Lines, voter, h, func(_ string, h hello) { theirs = h })
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()                         // its error says nothing that the read's did not
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() }) // ends the read
	defer stop()
	for ctx.Err() == nil {
		if err := f.take(conn, voter, theirs.Founding); err != nil {
			return err
		}
	}
	return ctx.Err()
}

func (f *Follower) take(conn net.Conn, voter string, shown *founding) error {
	// Three pulses without one are a voter that is gone.
	if err := conn.SetReadDeadline(time.Now().Add(3 * f.cfg.Pace.Of(pulse))); err != nil {
		return err
	}
	var d placement.Delta
	if err := readFrame(conn, &d, maxAnswer); err != nil {
		return err
	}
	if err := f.doubt(d, shown); err != nil {
		if shown != nil { // without one it may be an older program
			f.cfg.Refused.Add(voter, regions.LaneAuthority, regions.NotTheirs)
		}
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	before, authority := f.state.Version(), f.state.Authority()
	if err := f.state.Follow(d); err != nil {
		return err
	}
	f.heard = f.cfg.Clock.Now()
	if f.state.Version() != before || f.state.Authority() != authority {
		close(f.changed)
		f.changed = make(chan struct{})
	}
	return nil
}

// doubt refuses the state of an authority that was founded anew, unless that is shown.
func (f *Follower) doubt(d placement.Delta, shown *founding) error {
	if mine := f.greeting(); d.Generation <= max(mine.Generation, 1) {
		return nil // no later founding: the state judges it
	}
	return shown.proves(d.Authority, d.Generation, f.cfg.Identity, f.cfg.MayFound)
}
