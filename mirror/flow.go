package mirror

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"domicile/api"
	"domicile/regions"
)

// flow is one log's way to one target. It has a goroutine only while there is
// something to do; running, again, watching, ended and timer belong to Source.mu.
type flow struct {
	source *Source
	log    regions.HomeLog
	id     api.LogID
	target string
	member bool // of the log's sync set: acks wait for it
	topic  atomic.Pointer[regions.Topic]
	ctx    context.Context // ends with the flow, or the Source
	cancel context.CancelFunc
	work   sync.WaitGroup // the flow's goroutine

	running, again, watching bool
	ended                    bool // it is not asked for any more
	timer                    *time.Timer
	kick                     chan struct{}
	attempt                  atomic.Int32 // failures in a row
	rebuilt                  atomic.Bool  // by the watchdog, without progress since

	mu       sync.Mutex
	met      bool // cursor was heard from the target in this run
	verified bool // our record at the cursor is the one the target has
	heard    time.Time
	cursor   regions.Cursor
	inflight []sent
	inItems  int // in inflight
	inBytes  int // in inflight
	tally    tally
	trouble  trouble
	samples  []sample      // of the last minute
	lost     []regions.Gap // in this run
	told     telling
}

// stop ends a session for a reason that people should see.
type stop struct {
	trouble trouble
	retry   time.Duration // 0: the usual backoff
	parked  bool          // no retry: only a nudge helps
}

func (s *stop) Error() string { return string(s.trouble.state) + ": " + s.trouble.cause }

// stalled is the watchdog's reason.
type stalled struct{ hop string }

func (s *stalled) Error() string { return "no progress: " + s.hop }

var (
	errIdle     = errors.New("nothing to do")
	errAgain    = errors.New("look at the world again")
	errOddReply = errors.New("a reply confirms what was not sent")
)

func (f *flow) run(ctx context.Context) {
	defer f.source.work.Done()
	defer f.work.Done()
	for {
		p := f.step(ctx)
		if ctx.Err() != nil {
			p = pause{}
		}
		if f.source.park(f, p) {
			return
		}
	}
}

// step does what can be done now and says what to wait for.
func (f *flow) step(ctx context.Context) pause {
	select {
	case <-f.kick:
	default:
	}
	if f.log.Head().Unsure {
		return pause{watch: true}
	}
	if !f.source.linkUp(f.target) {
		return f.scout(ctx)
	}
	err := f.session(ctx)
	switch {
	case ctx.Err() != nil:
		return pause{}
	case errors.Is(err, errIdle):
		f.mu.Lock()
		defer f.mu.Unlock()
		return pause{watch: true, seen: f.cursor.Sequence}
	case errors.Is(err, errAgain):
		return pause{again: true}
	}
	if f.settle(err) {
		return pause{again: true}
	}
	return f.scout(ctx)
}

// settle notes why a session ended and arms the retry. It reports whether to go on
// at once.
func (f *flow) settle(err error) (again bool) {
	var halt *stop
	var stuck *stalled
	retry := f.backoff()
	switch {
	case errors.As(err, &halt):
		f.setTrouble(halt.trouble)
		if halt.retry > 0 {
			retry = halt.retry
		}
		if halt.parked {
			return false
		}
	case errors.As(err, &stuck):
		f.source.cfg.Metrics.Rebuilt(f.id, f.target, stuck.hop)
		f.source.cfg.Logger.Warn("mirror flow made no progress: rebuilding its reader and stream", f.attrs("hop", stuck.hop)...)
		if !f.rebuilt.Swap(true) {
			return true
		}
		f.setTrouble(trouble{regions.LagStalled, "no progress at: " + stuck.hop})
	default:
		f.source.cfg.Logger.Debug("mirror session ended", f.attrs("err", err)...)
		if f.attempt.Load() > 3 {
			f.setTrouble(trouble{regions.LagStalled, "stream: " + err.Error()})
		}
	}
	f.source.arm(f, retry)
	return false
}

// backoff is the next wait, 0.2 to 5 s, spread so that flows do not move in step.
func (f *flow) backoff() time.Duration {
	n := f.attempt.Add(1)
	d := min(backoffMin<<min(n-1, 10), backoffMax)
	return f.source.cfg.Pace.Of(d/2 + rand.N(d/2))
}

// settled reports whether there is nothing to send and nothing wrong.
func (f *flow) settled() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.met && f.trouble.state == "" && f.log.Head().Sequence == f.cursor.Sequence
}

func (f *flow) setTrouble(t trouble) {
	f.mu.Lock()
	changed := f.trouble != t
	f.trouble = t
	f.mu.Unlock()
	if !changed || t.state == "" {
		return
	}
	level := slog.LevelWarn
	if t.alarm() {
		level = slog.LevelError
	}
	f.source.cfg.Logger.Log(context.Background(), level, "mirror flow stopped", f.attrs("state", t.state, "cause", t.cause)...)
}

func (f *flow) attrs(more ...any) []any {
	return append([]any{"log", f.id.String(), "target", f.target}, more...)
}

// session mirrors over one stream until there is nothing to do or something fails.
func (f *flow) session(parent context.Context) error {
	if err := f.checkHello(); err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(parent)
	defer cancel(nil)
	w := newWatchdog(f.source.cfg.Pace.Of(watchdogAfter), cancel)
	defer w.stop()
	w.at("open")
	stream, err := f.open(ctx)
	if err != nil {
		return cause(ctx, err)
	}
	defer stream.Close()
	w.watch(stream.Moving)
	w.progress()
	f.mu.Lock()
	cursor := f.cursor.Sequence
	f.mu.Unlock()
	if f.log.Head().Sequence == cursor {
		f.setTrouble(trouble{})
		return errIdle
	}
	return newPump(f, stream, w, cancel).run(ctx)
}

// open opens the stream and learns where the copy ends. Few flows do so at a time: a
// link that comes up wakes them all.
func (f *flow) open(ctx context.Context) (stream regions.MirrorStream, err error) {
	openings := f.source.openings(f.target)
	select {
	case openings <- struct{}{}:
		defer func() { <-openings }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	head := f.log.Head()
	stream, err = f.source.cfg.OpenMirror(ctx, f.target, regions.MirrorOpen{
		Log: f.id, Incarnation: head.Incarnation, Epoch: head.Epoch, Head: head.Sequence,
		Digest: f.source.cfg.Federation.TopicDigest(f.id.Topic),
	})
	if err != nil {
		return nil, err
	}
	reply, err := stream.Recv(ctx)
	if err == nil {
		err = f.begin(ctx, reply)
	}
	if err != nil {
		stream.Close()
		return nil, err
	}
	return stream, nil
}

// cause prefers why the session was ended over what then failed because of it.
func cause(ctx context.Context, err error) error {
	if c := context.Cause(ctx); c != nil && !errors.Is(c, context.Canceled) {
		return c
	}
	return err
}

// checkHello compares the topic's declarations before anything is opened.
func (f *flow) checkHello() error {
	status, _ := f.source.cfg.Link(f.target)
	if status.Hello == nil {
		return nil
	}
	ours := f.source.cfg.Federation.TopicDigest(f.id.Topic)
	if theirs := status.Hello.TopicDigests[f.id.Topic]; theirs != ours {
		return &stop{trouble: trouble{regions.LagManifestDiffers, f.differing(status.Hello)}, parked: true}
	}
	return nil
}

func (f *flow) differing(h *regions.Hello) string {
	theirs, ok := h.TopicFields[f.id.Topic]
	if !ok {
		return "the topic is not in " + f.target + "'s manifest"
	}
	diffs := regions.Differences(f.topic.Load().Fields(), theirs)
	if len(diffs) == 0 {
		return "declared differently in " + f.target
	}
	return diffs[0]
}

// begin takes the target's word for where its copy ends, if it can be true.
func (f *flow) begin(ctx context.Context, r regions.MirrorReply) error {
	c := r.Cursor
	if c.Sequence > 0 {
		if err := f.checkCursor(ctx, c); err != nil {
			return err
		}
	}
	if r.Refused != "" {
		return f.refused(r)
	}
	if err := f.checkLedger(c); err != nil {
		return err
	}
	pass := f.source.cfg.Enter()
	revision := pass.Revision()
	pass.Leave()
	defer f.source.cfg.Confirmed(f.id, f.target, c) // the lock is free by then
	f.mu.Lock()
	defer f.mu.Unlock()
	f.confirmLocked(c)
	f.inflight, f.inItems, f.inBytes = f.inflight[:0], 0, 0
	f.met = true
	if !f.tally.known || f.tally.revision != revision || f.tally.from != c.Sequence {
		f.tally.reset(c.Sequence, revision)
	}
	return nil
}

func (f *flow) checkCursor(ctx context.Context, c regions.Cursor) error {
	head := f.log.Head()
	alarm := func(state regions.LagState, format string, args ...any) error {
		return &stop{trouble: trouble{state, fmt.Sprintf(format, args...)}, parked: true}
	}
	switch {
	case c.Incarnation != head.Incarnation:
		return alarm(regions.LagIncarnation, "the copy is of incarnation %s, the log is %s", c.Incarnation, head.Incarnation)
	case c.Epoch.Compare(head.Epoch) > 0:
		return alarm(regions.LagCursorAhead, "the copy is in epoch %s, the log in %s", c.Epoch, head.Epoch)
	case c.Sequence > head.Sequence:
		return alarm(regions.LagCursorAhead, "the copy has %d, the log ends at %d", c.Sequence, head.Sequence)
	}
	f.mu.Lock()
	verified := f.verified
	f.mu.Unlock()
	if verified {
		return nil
	}
	same, err := f.sameRecord(ctx, c)
	if err != nil {
		return err
	}
	if !same {
		return alarm(regions.LagCursorAhead, "sequence %d was stamped at another time than the copy's: the log was set back", c.Sequence)
	}
	f.mu.Lock()
	f.verified = true
	f.mu.Unlock()
	return nil
}

// sameRecord compares the stamps of the copy's last item and of our own at that
// sequence: a log that was set back and has grown again has another one there.
func (f *flow) sameRecord(ctx context.Context, c regions.Cursor) (bool, error) {
	reader, err := f.log.Reader(ctx, c.Sequence-1)
	if err != nil {
		return false, err
	}
	defer reader.Close()
	items, err := reader.Next(ctx, regions.ReadLimit{Records: 1, Bytes: 1})
	if err != nil || len(items) == 0 || items[0].Gap != nil || items[0].Sequence != c.Sequence {
		return err == nil, err
	}
	return sameStamp(items[0].Time, c.Time), nil
}

// sameStamp reports whether two stamps may be of one record. An unknown stamp may be
// of any.
func sameStamp(a, b time.Time) bool {
	if a.UnixNano() <= 0 || b.UnixNano() <= 0 || a.IsZero() || b.IsZero() {
		return true
	}
	return a.Sub(b).Abs() < time.Millisecond
}

func (f *flow) checkLedger(c regions.Cursor) error {
	l := &c.Ledger
	most := max(l.Mirrored, l.Withheld, l.Expired, l.Purged, l.Erased, l.Void, l.Damaged) // a sum may overflow
	if l.Sum() == c.Sequence && most <= c.Sequence {
		return nil
	}
	f.source.cfg.Logger.Error("mirror ledger does not sum to the cursor", f.attrs("cursor", c.Sequence, "sum", c.Ledger.Sum())...)
	return &stop{trouble: trouble{regions.LagStalled, fmt.Sprintf("the copy's ledger sums to %d, its cursor is %d", c.Ledger.Sum(), c.Sequence)}, parked: true}
}

// refused turns a refusal into what the flow does about it.
func (f *flow) refused(r regions.MirrorReply) error {
	pace := f.source.cfg.Pace
	switch r.Refused {
	case api.PolicySkew:
		if r.RetryAfter <= 0 {
			r.RetryAfter = pace.Of(retrySkew)
		}
		return &stop{trouble: trouble{regions.LagPolicySkew, r.Hint}, retry: r.RetryAfter}
	case api.StorageFull:
		return &stop{trouble: trouble{regions.LagTargetFull, r.Hint}, retry: r.RetryAfter}
	case api.ManifestMismatch:
		return &stop{trouble: trouble{regions.LagManifestDiffers, r.Hint}, retry: pace.Of(backoffMax)}
	case api.CursorAhead:
		return &stop{trouble: trouble{regions.LagCursorAhead, "says the target: " + r.Hint}, parked: true}
	case api.NotReady:
		return fmt.Errorf("target is not ready: %s", r.Hint)
	}
	text := string(r.Refused)
	if r.Field != "" {
		text += " " + r.Field
	}
	if r.Hint != "" {
		text += ": " + r.Hint
	}
	return &stop{trouble: trouble{regions.LagStalled, "target refuses: " + text}}
}
