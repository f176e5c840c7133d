package placer

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"domicile/api"
	"domicile/regions"
	"domicile/regions/placement"
)

// Authority is the way to the placement authority: a voter of this region, or one that
// asks others'. Implementations are safe for concurrent use.
type Authority interface {
	// Submit brings a command to the authority and waits for what it came to, until ctx
	// ends. AUTHORITY_UNREACHABLE: nothing was changed; OUTCOME_UNKNOWN: send it again.
	Submit(ctx context.Context, c placement.Command) (placement.Result, error)
	// Renew prolongs this region's leases. They count from before the call.
	Renew(ctx context.Context) (placement.Grant, error)
	// Since is what changed after a version under the named authority, and a channel that
	// is closed at the next change.
	Since(version uint64, authority string) (placement.Delta, <-chan struct{})
}

// The intervals at pace 1.
const (
	renewWithin  = 2 * placement.RenewEvery
	submitWithin = 10 * time.Second
	retryEvery   = 2 * time.Second
	moveStep     = 200 * time.Millisecond // what comes next in a move is soon there: producers wait no longer than that
	maxOverdue   = 64                     // declarations brought to the authority in one round
)

// Config is what a Placer works with. All of it is required but Wall and Second.
type Config struct {
	Self       string // this region
	Federation *regions.Federation
	// Terms says what a log's declaration and the policy make of moving it.
	Terms func(api.LogID) (placement.Terms, error)
	// Second is told of a log that was opened here as its home although the authority has
	// another incarnation of it placed; nil: nobody is. It must not wait for the placer.
	Second func(id api.LogID, incarnation, placed string)
	Names  string // path of the file that keeps which incarnation belongs to which log
	Boot   regions.BootClock
	Wall   func() time.Time // the machine's wall clock, steps and all; nil: the system's
	Pace   regions.Pace
	Log    *slog.Logger
}

// Placer is the region's view of who owns the logs that may move. Safe for concurrent use.
type Placer struct {
	cfg   Config
	start time.Time // of counting wall time

	mu        sync.RWMutex
	state     *placement.State
	placed    map[string]placement.Log // by incarnation
	names     names
	named     map[api.LogID]placement.Log // those of placed that have a name; never changed
	holder    *placement.Holder
	homes     map[api.LogID]home // open in this region
	answered  placement.Instant  // when the last renewal was sent that somebody answered
	heard     bool               // answered is one
	fits      bool               // that answer covered all that this region believes it has
	authority Authority          // nil: none is attached
	trouble   string             // what keeps a declaration from the authority
	changed   chan struct{}
	due       chan struct{} // something is to be declared
	renew     chan struct{} // leases are to be renewed out of turn

	end  context.CancelFunc // of what works for the attached authority
	work sync.WaitGroup
}

// home is a log that is open as this region's own.
type home struct {
	incarnation string
	epoch       api.Epoch
}

// New reads the names it kept. cold is what was known of the placement when the region ran
// last, nil for nothing; the manifest is laid over with it at once.
func New(cfg Config, cold *placement.State) (*Placer, error) {
	if cfg.Wall == nil {
		cfg.Wall = time.Now
	}
	p := &Placer{cfg: cfg, start: cfg.Wall(), state: &placement.State{}, placed: map[string]placement.Log{},
		holder: placement.NewHolder(cfg.Self), homes: map[api.LogID]home{},
		changed: make(chan struct{}), due: make(chan struct{}, 1), renew: make(chan struct{}, 1)}
	var err error
	if p.names, err = readNames(cfg.Names); err != nil {
		return nil, err
	}
	if cold != nil && cold.Generation() > 0 {
		return p, p.take(cold.Since(0))
	}
	return p, nil
}

// Attach has the placer work with an authority until Detach, for the node that holds its
// region's seat. One at a time.
func (p *Placer) Attach(a Authority) {
	ctx := p.watch(a)
	p.work.Go(func() { p.hold(ctx, a) })
	p.work.Go(func() { p.declare(ctx, a) })
	signal(p.due)
}

// Watch has the placer follow an authority until Detach, and neither renew leases nor
// declare logs: those are for the node that holds its region's seat.
func (p *Placer) Watch(a Authority) { p.watch(a) }

func (p *Placer) watch(a Authority) context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	p.mu.Lock()
	p.authority, p.end = a, cancel
	p.mu.Unlock()
	p.work.Go(func() { p.follow(ctx, a) })
	return ctx
}

// Detach ends what Attach or Watch began and waits for it; the region's logs are closed.
// Leases run out from here on.
func (p *Placer) Detach() {
	p.mu.Lock()
	clear(p.homes)
	p.mu.Unlock()
	p.Release()
	p.keepNames()
}

// Release is Detach for a node whose logs stay open, until the next Attach or Watch.
func (p *Placer) Release() {
	p.mu.Lock()
	end := p.end
	p.authority, p.end = nil, nil
	p.mu.Unlock()
	if end != nil {
		end()
	}
	p.work.Wait()
}

// Attached reports whether the placer works with an authority.
func (p *Placer) Attached() bool {
	p.mu.RLock()
	defer p.mu.RUnlock()
	return p.authority != nil
}

// Submit brings a command to the authority, as Authority.Submit does. Without one it is
// AUTHORITY_UNREACHABLE.
func (p *Placer) Submit(ctx context.Context, c placement.Command) (placement.Result, error) {
	p.mu.RLock()
	a := p.authority
	p.mu.RUnlock()
	if a == nil {
		return placement.Result{}, &api.Error{Code: api.AuthorityUnreachable, Op: "place log", Region: p.cfg.Self, RetryAfter: p.cfg.Pace.Of(time.Second),
			Hint: "this node does not hold the region's seat, or is opening; nothing was changed"}
	}
	return a.Submit(ctx, c)
}

// follow takes in what the authority decides.
func (p *Placer) follow(ctx context.Context, a Authority) {
	retry := time.NewTicker(p.cfg.Pace.Of(retryEvery))
	defer retry.Stop()
	for ctx.Err() == nil {
		p.mu.RLock()
		version, authority := p.state.Version(), p.state.Authority()
		p.mu.RUnlock()
		d, changed := a.Since(version, authority)
		var again <-chan time.Time
		if err := p.take(d); err != nil {
			p.cfg.Log.Warn("what the placement authority says does not fit what is known of it", "err", err)
			again = retry.C
		}
		select {
		case <-changed:
		case <-again:
		case <-ctx.Done():
		}
	}
}

// take puts a delta in force.
func (p *Placer) take(d placement.Delta) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if d.Generation == 0 || d.Version == p.state.Version() && d.Authority == p.state.Authority() {
		return nil // nobody has founded it, or nothing is new
	}
	if err := p.state.Follow(d); err != nil {
		return err
	}
	if d.After == 0 {
		for incarnation := range p.placed {
			if _, ok := p.state.Log(incarnation); !ok {
				p.forget(incarnation)
			}
		}
	}
	for incarnation := range d.Retired {
		p.forget(incarnation)
	}
	for _, l := range d.Logs {
		p.placed[l.Incarnation] = l
		p.holder.Follow(l)
	}
	p.settleGone()
	p.takeHeard()
	p.rename()
	signal(p.renew)
	signal(p.due)
	return nil
}

// forget takes a log out that the authority no longer has. p.mu is held.
func (p *Placer) forget(incarnation string) {
	delete(p.placed, incarnation)
	p.holder.Follow(placement.Log{Incarnation: incarnation})
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
