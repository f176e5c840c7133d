package mover

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"domicile/api"
	"domicile/regions"
	"domicile/regions/placement"
)

const (
	// Deadline is how long a planned move may take before it is given up, at pace 1.
	Deadline = 60 * time.Second
	// HomeFirst is how long a forced move of a log whose home may go on waits for that
	// home to end its epoch itself, at pace 1: then nothing is lost.
	HomeFirst = 5 * time.Second
	// FetchFor is how long the target of a forced move waits for what other regions' copies
	// have beyond its own, at pace 1.
	FetchFor = 5 * time.Second

	lookEvery  = 200 * time.Millisecond // at logs that are waited for
	actWithin  = 2 * time.Minute
	retryFirst = 100 * time.Millisecond
	retryMost  = 5 * time.Second
	atOnce     = 16 // logs that something is done for at one time
)

// Authority is the placement authority as a region sees it. It is safe for concurrent use.
type Authority interface {
	// Placements is what the authority was last heard to say of the logs that this region
	// can name, and a channel that is closed when that is another. The map is read only.
	Placements() (map[api.LogID]placement.Log, <-chan struct{})
	// Submit brings a command to the authority, see council.Voter.Submit.
	Submit(ctx context.Context, c placement.Command) (placement.Result, error)
}

// Fence is where a home's epoch ended.
type Fence struct {
	End    uint64    // the last sequence
	Closed time.Time // no closed instant of the epoch is past it
}

// Opening is how a log is opened as a home.
type Opening struct {
	Epoch       api.Epoch
	NotBefore   time.Time // no record is stamped before it
	Incarnation string
	// Sealed: the epoch has ended here; the log is opened for others to copy it up to there.
	Sealed bool
}

// Reach is what a target knows of how far its copy may be behind.
type Reach struct {
	Safe time.Time      // everything stamped before it is here, or withheld; zero: not known
	Lost *time.Duration // at most so much later the home can have stored what is not here; nil: not known
	All  bool           // certainly all that was acknowledged is here
	Now  time.Time      // the latest that the home's clock can read now
}

// Logs is this region's store, and all that works on its logs. Everything may be asked
// again after an error, and after it was done. It is safe for concurrent use.
type Logs interface {
	// Held is how the log is held here.
	Held(ctx context.Context, id api.LogID) (Held, error)
	// Log is a log that is open here.
	Log(id api.LogID) (regions.Log, bool)
	// Copies reports whether this region is to keep a copy of a log whose home is elsewhere.
	Copies(id api.LogID) bool
	// Fence ends the epoch of a home.
	Fence(ctx context.Context, id api.LogID, epoch api.Epoch, op string) (Fence, error)
	// Freeze fixes where a copy ends.
	Freeze(ctx context.Context, id api.LogID, op string) (regions.Cursor, error)
	// Learn gives a copy the row of the log's epochs.
	Learn(ctx context.Context, id api.LogID, row regions.History) error
	// Become opens the log as a home; what was open of it is closed first.
	Become(ctx context.Context, id api.LogID, o Opening) error
	// Follow opens the log as a copy, with the row of its epochs; what was open of it is
	// closed first.
	Follow(ctx context.Context, id api.LogID, row regions.History) error
	// Lend gives a copy on to a region that takes the log over; "": to none any more.
	Lend(id api.LogID, target string)
	// Brought reports whether a region offered what its copy has, and all of that is here.
	Brought(id api.LogID, from string) bool
	// Reach is asked of a copy.
	Reach(id api.LogID) Reach
	// Sum names the records of a home whose epoch has ended, in a form that is the same in
	// every region; "": it can't be told.
	Sum(ctx context.Context, log regions.Log) (string, error)
	// Same refuses a copy that does not hold what a home's sum stands for. compared: it does;
	// else that can't be told here.
	Same(ctx context.Context, log regions.Log, sum string) (compared bool, err error)
}

// Policy is this region's own judgement of moves. Nil functions agree.
type Policy struct {
	// Approved refuses a move whose approvals do not hold.
	Approved func(id api.LogID, l placement.Log) error
	// Named refuses a region that this region's manifest does not name as one that the log may
	// be moved to; nil: none is refused.
	Named func(id api.LogID, region string) error
	// MayHold refuses, with HOME_OUTSIDE_BOUNDARY, a log of which this region's policy does
	// not let everything that it holds, or may come to hold, go from one region to another
	// and rest there. It reads what of the log it has not read yet, as far as ctx lets it.
	MayHold func(ctx context.Context, log regions.Log, from, to string) error
	// Up reports whether the link to a region works.
	Up func(region string) bool
}

// Config is what a mover works with.
type Config struct {
	Self      string
	Authority Authority
	Logs      Logs
	Policy    Policy
	Clock     regions.Clock
	Pace      regions.Pace
	Logger    *slog.Logger
	// Before keeps an act from being done as long as it fails, for tests; nil: never.
	Before func(id api.LogID, act string) error
}

// Mover carries moves out while it runs.
type Mover struct {
	cfg  Config
	kick chan struct{} // cap 1
	room chan struct{} // bounds how many logs are worked on

	mu   sync.Mutex
	logs map[api.LogID]*work
}

// work is what the mover remembers of a log. Losing it costs time only.
type work struct {
	busy    bool
	again   bool      // something changed meanwhile
	seen    uint64    // version of the placement that was looked at last
	rested  bool      // and at which nothing was left to do
	next    time.Time // not before it is the log looked at again, unless something changed
	retry   time.Duration
	told    api.Code  // the last refusal that was logged
	learned uint64    // version of the placement whose row the copy was given
	studied string    // the move for which the copy was judged
	op      string    // of the move that since belongs to
	since   time.Time // when that move was first seen here, allowed
	proven  time.Time // when it was first seen that its home has stopped; zero: not yet
}

// New makes a mover. Nothing is done before Run.
func New(cfg Config) *Mover {
	return &Mover{cfg: cfg, kick: make(chan struct{}, 1), room: make(chan struct{}, atOnce), logs: map[api.LogID]*work{}}
}

// Kick tells that something else than a placement is another: the policy, a link, a log
// that was opened or closed.
func (m *Mover) Kick() {
	m.mu.Lock()
	for _, w := range m.logs {
		w.rested, w.next, w.again = false, time.Time{}, true
	}
	m.mu.Unlock()
	select {
	case m.kick <- struct{}{}:
	default:
	}
}

// Run works until ctx ends, and returns when all that it started has ended.
func (m *Mover) Run(ctx context.Context) {
	var workers sync.WaitGroup
	defer workers.Wait()
	tick := time.NewTicker(m.cfg.Pace.Of(lookEvery))
	defer tick.Stop()
	for {
		placements, changed := m.cfg.Authority.Placements()
		for id, l := range placements {
			if m.begin(id, l.Version) {
				workers.Go(func() { m.work(ctx, id) })
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-changed:
		case <-m.kick:
		case <-tick.C:
		}
	}
}

// begin reports whether a log needs a worker. One that has one is told of what is new.
func (m *Mover) begin(id api.LogID, version uint64) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	w := m.logs[id]
	if w == nil {
		w = &work{}
		m.logs[id] = w
	}
	fresh := w.seen != version
	switch {
	case w.busy:
		w.again = w.again || fresh
		return false
	case !fresh && (w.rested || m.cfg.Clock.Now().Before(w.next)):
		return false
	}
	w.busy, w.again = true, false
	return true
}

// work does for a log what there is to do, one act after the other.
func (m *Mover) work(ctx context.Context, id api.LogID) {
	select {
	case m.room <- struct{}{}:
		defer func() { <-m.room }()
	case <-ctx.Done():
	}
	for ctx.Err() == nil {
		done, err := m.step(ctx, id)
		if m.leave(id, done, err) {
			return
		}
	}
	m.leave(id, true, nil)
}

// leave reports whether the work on a log ends here, for now.
func (m *Mover) leave(id api.LogID, done bool, err error) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	w := m.logs[id]
	if err != nil {
		if code := api.CodeOf(err); code != w.told && code != api.Conflict {
			w.told = code
			m.cfg.Logger.Warn("a step of a log's move has to be tried again", "log", id.String(), "err", err)
		}
		w.retry = min(max(2*w.retry, retryFirst), retryMost)
		w.rested, w.next = false, m.cfg.Clock.Now().Add(m.cfg.Pace.Of(w.retry))
		if w.again {
			w.next = time.Time{}
		}
		w.busy = false
		return true
	}
	if w.retry = 0; !done || w.again {
		w.again = false
		return false
	}
	w.busy = false
	return true
}
