package mirror

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"domicile/api"
	"domicile/regions"
	"domicile/regions/syncset"
)

// TargetConfig is what the receiving side needs. The functions are called from
// several goroutines and must not call back into the Target.
type TargetConfig struct {
	Self       string
	Federation *regions.Federation
	// Copy opens this region's copy of a log, and creates it if there is none. It must
	// return the same copy for the same log.
	Copy func(ctx context.Context, log api.LogID, epoch api.Epoch) (regions.CopyLog, error)
	// Common is how far a log is common to its sync set, which this region is in, as its
	// home's watermarks say; nil, for a log: this region is in none. nil: in none at all.
	Common func(api.LogID) *syncset.Mark
	// Movable says whether a log may be moved to a region; nil: no log may. Tails keeps
	// what homes say of those that may be moved here; nil: nothing does.
	Movable func(log api.LogID, target string) bool
	Tails   Tails
	// Lends reports whether a peer that is not a log's home may bring what its copy has of
	// it, see Relay; nil: none may.
	Lends func(log api.LogID, peer string) bool
	// Link is what is known of the link to a peer; false: there is none.
	Link func(peer string) (regions.LinkStatus, bool)
	// Enter pins the active policy generation.
	Enter   func() Pass
	Clock   regions.Clock
	Pace    regions.Pace
	Logger  *slog.Logger
	Metrics Metrics // nil: none
	// Refused counts what a peer sends that no correct node does; nil: nobody counts.
	Refused *regions.PeerRefusals
}

// Target keeps this region's copies of other regions' logs. It has no goroutines of
// its own. It is safe for concurrent use.
type Target struct {
	cfg TargetConfig

	mu     sync.Mutex
	copies map[api.LogID]*copied // by the manifest
	heard  map[string]time.Time  // peer → last watermark message

	revision string    // of the policy that judged last
	judging  time.Time // see since
}

// copied is one copy, opened or not.
type copied struct {
	target *Target
	id     api.LogID
	home   string
	epoch  api.Epoch
	apply  chan struct{} // cap 1: one batch or open at a time
	common *syncset.Mark // nil: all of the copy counts

	mu        sync.Mutex
	vouched   bool            // the home said of this very copy how far the log is common
	log       regions.CopyLog // nil: not opened yet
	sink      *Sink           // the one that may apply; a later open takes over
	lent      map[string]lent // by regions that give their copy on
	knowledge knowledge
	stored    regions.Cursor // where the copy ends; knowledge has what counts of it
	trouble   trouble
	moved     time.Time
	offset    *time.Duration // of the home's clock, at most, as measured last; nil: not known
	withheld  uint64         // by our ingress, in this run
}

// NewTarget checks the configuration and notes which copies this region is to have.
func NewTarget(cfg TargetConfig) (*Target, error) {
	if cfg.Federation == nil || cfg.Copy == nil || cfg.Link == nil || cfg.Enter == nil || cfg.Clock == nil || cfg.Logger == nil {
		return nil, &api.Error{Code: api.ConfigInvalid, Op: "make mirror target",
			Hint: "give Federation, Copy, Link, Enter, Clock and Logger"}
	}
	if cfg.Metrics == nil {
		cfg.Metrics = NoMetrics{}
	}
	if cfg.Common == nil {
		cfg.Common = func(api.LogID) *syncset.Mark { return nil }
	}
	if cfg.Movable == nil {
		cfg.Movable = neverMoves
	}
	if cfg.Tails == nil {
		cfg.Tails = noTails{}
	}
	t := &Target{cfg: cfg, heard: map[string]time.Time{}, judging: cfg.Clock.Now()}
	t.copies = t.wanted()
	return t, nil
}

// wanted makes, unopened, the copies that the manifest asks for.
func (t *Target) wanted() map[api.LogID]*copied {
	copies := map[api.LogID]*copied{}
	federation := t.cfg.Federation.Snapshot()
	for _, name := range federation.Topics() {
		topic, _ := federation.Topic(name)
		for _, id := range federation.Logs(topic) {
			if c := t.want(id, federation); c != nil {
				copies[id] = c
			}
		}
	}
	return copies
}

// want makes, unopened, the copy that this region is to have of a log; nil: none.
func (t *Target) want(id api.LogID, f *regions.Federation) *copied {
	if f.Role(id, t.cfg.Self) != regions.RoleCopy {
		return nil
	}
	home, epoch, _ := f.Home(id)
	return &copied{target: t, id: id, home: home, epoch: epoch, apply: make(chan struct{}, 1), moved: t.cfg.Clock.Now(), common: t.cfg.Common(id)}
}

// Start opens every copy, so that lag is known from what is stored even if the
// origin never comes back. A copy that cannot be opened is logged and tried again
// when its origin opens a stream; ctx bounds the whole.
func (t *Target) Start(ctx context.Context) {
	for _, c := range t.all() {
		if !c.start(ctx) {
			return
		}
	}
}

// start opens a copy; false: ctx has ended.
func (c *copied) start(ctx context.Context) bool {
	if err := c.enter(ctx); err != nil {
		return false
	}
	if err := c.open(ctx); err != nil {
		c.target.cfg.Logger.Warn("a copy could not be opened", "log", c.id.String(), "err", err)
	}
	<-c.apply
	return true
}

// enter makes the caller the only one that opens or applies.
func (c *copied) enter(ctx context.Context) error {
	select {
	case c.apply <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// open opens the copy if it is not, and takes in where it ends. The caller has
// entered.
func (c *copied) open(ctx context.Context) error {
	c.mu.Lock()
	opened := c.log != nil
	c.mu.Unlock()
	if opened {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, c.target.cfg.Pace.Of(openDeadline))
	defer cancel()
	log, err := c.target.cfg.Copy(ctx, c.id, c.epoch)
	if err != nil {
		return err
	}
	cursor := log.Cursor()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.log = log
	c.knowledge.safe = time.Time{} // concluded, if at all, for a copy that nobody had seen
	c.take(cursor)
	return nil
}

// take notes where the copy ends now. c.mu is held.
func (c *copied) take(cursor regions.Cursor) {
	c.stored = cursor
	c.moved = c.target.cfg.Clock.Now()
	c.readClock(c.moved)
	c.count()
	if sum := cursor.Ledger.Sum(); sum != cursor.Sequence {
		c.knowledge.alarm = trouble{regions.LagStalled, "the copy's ledger does not sum to its cursor"}
		c.target.cfg.Logger.Error("copy ledger does not sum to the cursor", "log", c.id.String(), "cursor", cursor.Sequence, "sum", sum)
	}
}

// readClock notes what the home's clock can read at our now. c.mu is held.
func (c *copied) readClock(now time.Time) {
	if c.knowledge.clock = (time.Time{}); c.offset != nil {
		c.knowledge.clock = now.Add(*c.offset)
	}
}

// count takes in what of the copy counts: of one in a sync set what is common, since
// nobody reads further. c.mu is held.
func (c *copied) count() {
	seq, at := c.stored.Sequence, c.stored.Time
	if c.common != nil {
		seq, at = c.common.Within(seq, at)
	}
	c.knowledge.applied(c.stored.Incarnation, seq, at)
}

// Watermarks takes in a peer's message. Messages of one peer come one at a time, in
// the order in which they were sent.
func (t *Target) Watermarks(peer string, w regions.Watermarks) {
	now := t.cfg.Clock.Now()
	var offset *time.Duration
	if link, _ := t.cfg.Link(peer); link.OffsetOK {
		most := link.Offset + link.OffsetErr
		offset = &most
	}
	t.mu.Lock()
	t.heard[peer] = now
	t.mu.Unlock()
	listed := make(map[api.LogID]regions.LogMark, len(w.Logs))
	for _, m := range w.Logs {
		listed[m.Log] = m
	}
	for _, c := range t.all() {
		if c.home == peer {
			m, ok := listed[c.id]
			if e := checkLog(m.Incarnation, m.Epoch, m.Head); ok && e != nil {
				c.distrust(peer, regions.LaneWatermark, e)
				continue
			}
			c.heardOf(m, ok, &w, now, offset)
			c.noteEnd()
		}
	}
	for _, m := range w.Logs {
		if t.claims(peer, regions.LaneWatermark, m.Log, m.Epoch) { // once a round
			return
		}
	}
}

func (c *copied) heardOf(m regions.LogMark, listed bool, w *regions.Watermarks, now time.Time, offset *time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.offset = offset
	c.readClock(now)
	k := &c.knowledge
	if k.mark.Head <= k.cursor {
		c.moved = now // not behind so far: the time to stall starts here
	}
	if w.All {
		c.moved = now
		k.disconnected()
	}
	before := k.alarm
	if listed {
		c.raise(m)
		k.marked(m)
	} else {
		k.instant(w.Instant)
	}
	if k.alarm != before {
		c.alarm(k.alarm)
	}
}

// raise takes in how far the log is common, by its home's word for this very log. c.mu is
// held.
func (c *copied) raise(m regions.LogMark) {
	if c.common == nil || c.log == nil || !c.fits(m.Incarnation) || c.knowledge.alarm.alarm() {
		return
	}
	c.common.Raise(m.Head, m.HeadTime)
	c.vouched = true
	c.count()
}

// Whole reports whether this region's copy of a log certainly has all that was ever
// acknowledged of it, whatever its home has stored since: this region is in the log's sync
// set, its home said since the copy was opened here how far the set has it, the copy is
// there, and nothing below was kept from it or has gone bad.
func (t *Target) Whole(log api.LogID) bool {
	c := t.copyOf(log)
	if c == nil || c.common == nil {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	common, _, _ := c.common.Get()
	return c.vouched && c.log != nil && !c.knowledge.alarm.alarm() && c.stored.Sequence >= common && c.stored.Ledger.Withheld+c.stored.Ledger.Damaged == 0
}

func (t *Target) heardFrom(peer string) time.Time {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.heard[peer]
}

// IngressWithheld is the number of records per log that this region's ingress has
// refused in this run: 0 while egress does its work.
func (t *Target) IngressWithheld() map[api.LogID]uint64 {
	out := map[api.LogID]uint64{}
	for _, c := range t.all() {
		c.mu.Lock()
		out[c.id] = c.withheld
		c.mu.Unlock()
	}
	return out
}
