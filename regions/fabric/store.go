package fabric

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"domicile/api"
	"domicile/regions"
)

const (
	kindHome = "home"
	kindCopy = "copy"
)

// end is where a log ends: its last item, and what was counted up to it.
type end struct {
	broker uint64 // the broker's last sequence
	position
	time   time.Time
	ledger regions.Ledger
	owner  *Tenure // of the last ownership marker; nil: there is none
}

// store is one log, home or copy: its stream, its one writer, and its durable head.
type store struct {
	f       *Fabric
	cfg     LogConfig
	kind    string
	key     string // in the store's own list
	nth     uint64 // how often it was made anew
	stream  string // the broker's
	data    string // subject of items
	control string // subject of control messages
	owner   string // subject of ownership markers
	admin   jetstream.Stream
	log     *slog.Logger
	index   *index // of a home; nil for a copy

	incarnation string // of the stream
	made        string // the kind the stream was made as
	named       string // incarnation of a home's log, which its records carry; of a copy see end
	term        uint64 // of a home's writer in this run
	began       uint64 // the last sequence that an earlier writer gave

	voids atomic.Pointer[[]Divergence] // as of the durable end; nil: none

	limits atomic.Pointer[LogConfig] // see bounds
	kept   *keeps                    // what a home was told to keep; nil: nothing is noted; mu guards it

	tail  end           // the writer's alone
	bytes atomic.Int64  // in the stream, as the broker counts them
	front atomic.Uint64 // the broker's first sequence; below it all is deleted

	damage   damage
	unread   atomic.Pointer[unread] // nil: the last read of each place went well
	trailing uint64                 // damaged messages at the end, while the log is read back
	cut      bool                   // what the log ended with is lost: the next writer has a term of its own

	sweeping sync.Mutex // one sweep or change of bounds at a time
	reserved int64      // MaxBytes of the broker's stream; sweeping's
	noted    string     // purged, as its metadata has it; sweeping's
	// lookAgain is when retention may find something behind stamps that are ahead of the
	// clock; sweeping's.
	lookAgain time.Time
	overdue   atomic.Int64 // see LogHealth.Overdue

	mu        sync.Mutex
	refusal   error // what new appends are told; nil: they are taken
	dead      bool  // the writer stops at its next step
	gone      bool  // the log was closed here: nobody reads by this store any more
	stopped   string
	queue     []*entry
	running   bool
	count     int                       // entries held, waiters included
	held      int                       // their bytes
	afloat    int64                     // bytes of those handed over whose outcome is not known, see share
	pend      []*entry                  // by deadline; settled ones leave from the front
	timer     *time.Timer               // runs while pend is not empty
	inflight  []*entry                  // stamped, not resolved, in log order
	flying    map[[hashSize]byte]*entry // by id, not resolved
	lastStamp time.Time                 // no later ingest time may be before it
	closed    time.Time                 // the last closed instant given out, in a quorum region
	ceiling   time.Time                 // of a log that is being fenced: no closed instant is past it
	rewound   uint64                    // how often the durable end went back
	lowest    uint64                    // the lowest sequence it went back to
	idle      []chan struct{}           // closed when count comes to 0
	durable   end                       // released
	purged    []span                    // by operators; ascending
	first     uint64                    // first sequence still stored; 0: nothing ever was
	records   uint64                    // data records still stored, durable
	fullSince time.Time                 // zero: not full
	watchers  map[uint64]chan struct{}  // by the sequence to pass
}

// newStore is a log that is not open yet; key is its name in the store's own list.
func newStore(f *Fabric, cfg LogConfig, kind, key string) *store {
	f.mu.Lock()
	nth := f.generation(f.known[key])
	f.mu.Unlock()
	return storeOf(f, cfg, kind, key, nth)
}

// storeOf is newStore for a log that is known to have been made anew nth times.
func storeOf(f *Fabric, cfg LogConfig, kind, key string, nth uint64) *store {
	stream := anew(key, nth)
	l := &store{f: f, cfg: cfg, kind: kind, made: kind, key: key, nth: nth, stream: stream, data: "r." + stream, control: "c." + stream, owner: "o." + stream,
		log:    f.cfg.Logger.With("log", cfg.ID.String()),
		flying: map[[hashSize]byte]*entry{}, watchers: map[uint64]chan struct{}{}}
	l.limits.Store(&cfg)
	l.timer = time.AfterFunc(time.Hour, l.expire)
	l.timer.Stop()
	return l
}

// ID is the log's address.
func (l *store) ID() api.LogID { return l.cfg.ID }

// Head is the durable end.
func (l *store) Head() regions.Head {
	l.mu.Lock()
	defer l.mu.Unlock()
	d := &l.durable
	h := regions.Head{Incarnation: d.Incarnation, Epoch: d.Epoch, Term: d.Term, Sequence: d.Sequence, Time: d.time,
		First: l.first, Records: l.records, Bytes: uint64(max(0, l.bytes.Load()))}
	if l.first == 0 || l.first > d.Sequence {
		h.First = d.Sequence + 1
	}
	if l.kind == kindHome {
		h.Incarnation, h.Term = l.named, l.term
		if d.Sequence == 0 {
			h.Epoch = l.cfg.Epoch
		}
	}
	return h
}

var closedChannel = func() chan struct{} { c := make(chan struct{}); close(c); return c }()

// Changed is closed when the durable head has passed after.
func (l *store) Changed(after uint64) <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.durable.Sequence > after {
		return closedChannel
	}
	c := l.watchers[after]
	if c == nil {
		c = make(chan struct{})
		l.watchers[after] = c
	}
	return c
}

func (l *store) durableBroker() uint64 {
	d := l.durableEnd()
	return d.broker
}

func (l *store) durableEnd() end {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.durable
}

// advance moves the durable end; mu is held.
func (l *store) advance(to end) {
	l.durable = to
	for after, c := range l.watchers {
		if to.Sequence > after {
			close(c)
			delete(l.watchers, after)
		}
	}
}

// refuse makes new appends fail with err.
func (l *store) refuse(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.refusal == nil {
		l.refusal = err
	}
}

// stop ends the writer. What the broker was not asked for is told err.
func (l *store) stop(err error, why string) {
	l.mu.Lock()
	l.dead = true
	if l.refusal == nil || why != "" {
		l.refusal = err
	}
	if why != "" {
		l.stopped = why
	}
	pend := append([]*entry(nil), l.pend...)
	l.mu.Unlock()
	l.f.share.rouse()
	for _, e := range pend {
		if e.state.CompareAndSwap(entryQueued, entrySettled) {
			e.done(regions.Stored{Err: err})
		}
	}
}

// suspend tells everyone who waits that the region fell below its quorum: what the broker
// was not asked for is refused with err, the outcome of the rest is unknown. The writer
// keeps what it has in flight and finds out what became of it.
func (l *store) suspend(err error) {
	l.mu.Lock()
	pend := l.pend
	l.pend = nil
	l.timer.Stop()
	l.mu.Unlock()
	for _, e := range pend {
		if e.state.CompareAndSwap(entryQueued, entrySettled) {
			e.done(regions.Stored{Err: err})
			continue
		}
		e.settle(regions.Stored{Err: unknown("the region fell below its quorum while the record was on its way")})
	}
}

// abandon ends the writer and tells everyone who still waits; nothing is resolved
// after it.
func (l *store) abandon() {
	err := l.f.storageFailed()
	if err == nil {
		err = shuttingDown()
	}
	l.stop(err, "")
	l.mu.Lock()
	pend := l.pend
	l.pend = nil
	l.timer.Stop()
	for _, c := range l.idle {
		close(c)
	}
	l.idle = nil
	l.mu.Unlock()
	for _, e := range pend {
		e.settle(regions.Stored{Err: unknown("the store stopped before the record was known to be on disk")})
	}
}

// leave is abandon for a log that may be opened again: whoever still reads by this store
// is told.
func (l *store) leave() {
	l.mu.Lock()
	l.gone = true
	l.mu.Unlock()
	l.abandon()
}

// drain waits until nothing is held; false when the writer or ctx ended first.
func (l *store) drain(ctx context.Context) bool {
	l.mu.Lock()
	if l.count == 0 || l.dead {
		defer l.mu.Unlock()
		return l.count == 0
	}
	c := make(chan struct{})
	l.idle = append(l.idle, c)
	l.mu.Unlock()
	l.f.barrier.kick()
	select {
	case <-c:
	case <-ctx.Done():
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.count == 0
}

func (l *store) describe(h *LogHealth) {
	l.mu.Lock()
	defer l.mu.Unlock()
	h.Open, h.Bytes, h.MaxBytes = true, uint64(max(0, l.bytes.Load())), l.bounds().MaxBytes
	h.FullSince, h.Stopped = l.fullSince, l.stopped
	h.Overdue = time.Duration(l.overdue.Load())
	h.Damage, h.Damaged = l.damage.get()
	h.Damage = h.Damage[:min(len(h.Damage), 10)]
	if u := l.unread.Load(); u != nil {
		h.Unread = u.reason
	}
}

// watch puts an entry under its deadline; mu is held.
func (l *store) watch(e *entry) {
	for len(l.pend) > 0 && l.pend[0].state.Load() == entrySettled {
		l.pend[0] = nil
		l.pend = l.pend[1:]
	}
	if len(l.pend) == 0 {
		l.timer.Reset(time.Until(e.deadline))
	}
	l.pend = append(l.pend, e)
}

// expire tells the callers whose deadline has passed. It is the timer's function, so
// that a writer or a disk that hangs cannot hold a caller.
func (l *store) expire() {
	now := time.Now()
	var late []*entry
	l.mu.Lock()
	for len(l.pend) > 0 {
		e := l.pend[0]
		if e.state.Load() != entrySettled {
			if left := e.deadline.Sub(now); left > 0 {
				l.timer.Reset(left)
				break
			}
			late = append(late, e)
		}
		l.pend[0] = nil
		l.pend = l.pend[1:]
	}
	l.mu.Unlock()
	for _, e := range late {
		e.expire()
	}
}
