package fabric

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"domicile/api"
	"domicile/regions"
)

// The metadata of every stream of ours.
const (
	metaFormat      = "domicile-format"
	metaLog         = "domicile-log"
	metaKind        = "domicile-kind"
	metaIncarnation = "domicile-incarnation"
)

// duplicateWindow of the broker is as short as it lets us: we deduplicate by our own ids.
const duplicateWindow = 100 * time.Millisecond

// Home opens a log that this region owns, and makes it if the store never held it. A
// log that the store's list knows and whose data is gone is refused. A log is open once
// at a time; CloseLog lets it be opened again, also as a copy. A home that is opened under
// a later epoch than its last begins it with a marker, which is durable when Home returns;
// an epoch that has ended here is refused with STALE_EPOCH.
func (f *Fabric) Home(ctx context.Context, cfg LogConfig) (regions.HomeLog, error) {
	l, err := f.openLog(ctx, cfg, kindHome)
	if err != nil {
		return nil, err
	}
	return home{l}, nil
}

// Copy opens this region's copy of a log whose home is elsewhere, under the rules of
// Home.
func (f *Fabric) Copy(ctx context.Context, cfg LogConfig) (regions.CopyLog, error) {
	l, err := f.openLog(ctx, cfg, kindCopy)
	if err != nil {
		return nil, err
	}
	return mirrored{l, &sync.Mutex{}}, nil
}

func (f *Fabric) openLog(ctx context.Context, cfg LogConfig, kind string) (*store, error) {
	if cfg.MaxBytes <= 0 {
		return nil, refuse("retention.max_bytes", fmt.Sprint(cfg.MaxBytes), "every log needs a bound in bytes", nil)
	}
	if code, hint := (held{role: kind}).refusal(asked{role: kind, epoch: cfg.Epoch, ended: true}); code != "" {
		return nil, refuse("epoch", cfg.Epoch.String(), hint, nil)
	}
	stream, err := streamName(cfg.ID)
	if err != nil {
		return nil, err
	}
	term, err := f.claim(stream, cfg.ID)
	if err != nil {
		return nil, err
	}
	ctx, cancel := f.whileItWorks(ctx, 2*time.Minute)
	defer cancel()
	l := newStore(f, cfg, kind, stream)
	if err = l.open(ctx); err == nil {
		err = l.assume(ctx)
	}
	if err == nil {
		l.began = l.durableEnd().Sequence
		err = l.enroll()
	}
	defer f.tellEmptied()
	f.noteOpening(stream, err)
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.opening, stream)
	seat, _ := f.Seat()
	switch {
	case f.failure.Load() != nil:
		err = f.storageFailed()
	case err != nil:
	case f.draining:
		err = shuttingDown()
	case !seat.Mine || seat.Term != term:
		err = f.writingMoves()
	}
	if err != nil {
		l.abandon()
		f.indexes.remove(l.index)
		return nil, err
	}
	delete(f.clean, stream)
	f.logs[stream] = l
	if l.purgedTo() >= l.first {
		f.kickSweep() // a purge that was decided and not carried out
	}
	return l, nil
}

// claim lets one caller at a time open a log, and names the term of the seat it does so
// under.
func (f *Fabric) claim(stream string, id api.LogID) (term uint64, err error) {
	if err := f.storageFailed(); err != nil {
		return 0, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.draining {
		return 0, shuttingDown()
	}
	if f.logs[stream] != nil || f.opening[stream] {
		return 0, refuse("log", id.String(), "the log is open already", nil)
	}
	seat, _ := f.Seat()
	if !seat.Mine {
		return 0, f.writingMoves()
	}
	if f.known[stream].State == stateDeleting {
		return 0, &api.Error{Code: api.NotReady, Op: "open log", Topic: id.Topic, Region: f.cfg.Region, Field: "log", Value: id.String(),
			RetryAfter: f.cfg.Pace.Of(time.Second), Hint: "the log's deletion is decided and not finished: try again; if it stays, start the region's node again"}
	}
	if s := f.shut[stream]; s.last {
		return 0, s.err
	}
	f.opening[stream] = true
	return seat.Term, nil
}

func (l *store) open(ctx context.Context) error {
	err := l.lookUp(ctx)
	switch {
	case errors.Is(err, jetstream.ErrStreamNotFound):
		err = l.create(ctx)
	case err == nil:
		err = l.adopt(ctx)
	}
	if err != nil {
		return err
	}
	if err := l.f.lead(ctx, l.stream); err != nil {
		return l.readFailed(err)
	}
	if err := l.f.recount(ctx, l.stream, l.cfg.ID.String(), l.admin); err != nil {
		return err
	}
	if err := l.recover(ctx); err != nil {
		return err
	}
	if err := l.allowed(); err != nil {
		return err
	}
	if floor := time.Unix(0, l.f.floor.Load()).UTC(); floor.After(l.lastStamp) {
		l.lastStamp = floor
	}
	if l.f.cfg.Cluster != nil || l.kind == kindHome && l.wasUnclean() {
		return l.takeOver(ctx)
	}
	return nil
}

// lookUp asks for the log's stream. In a quorum region it waits until the stream has a
// leader that answers.
func (l *store) lookUp(ctx context.Context) error {
	return l.f.insist(ctx, func(ctx context.Context) (err error) {
		l.admin, err = l.f.broker.js.Stream(ctx, l.stream)
		return err
	}, jetstream.ErrStreamNotFound)
}

func (l *store) streamConfig(incarnation string) jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Name: l.stream, Subjects: []string{l.data, l.control, l.owner},
		Storage: jetstream.FileStorage, Retention: jetstream.LimitsPolicy,
		Discard: jetstream.DiscardNew, MaxBytes: Need(l.bounds().MaxBytes),
		MaxMsgs: -1, MaxMsgsPerSubject: -1, MaxMsgSize: -1, MaxConsumers: -1, Replicas: l.f.replicas(),
		AllowDirect: true, AllowBatchPublish: true, Duplicates: duplicateWindow,
		Metadata: l.notes(incarnation),
	}
}

func (l *store) notes(incarnation string) map[string]string {
	meta := map[string]string{metaFormat: fmt.Sprint(formatVersion), metaLog: l.cfg.ID.String(),
		metaKind: l.made, metaIncarnation: incarnation}
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.purged) > 0 {
		meta[metaPurged] = formatSpans(l.purged)
	}
	if l.kept != nil {
		meta[metaKeeps] = l.kept.String()
	}
	return meta
}

func (f *Fabric) replicas() int {
	if f.cfg.Cluster != nil {
		return regions.QuorumNodes
	}
	return 1
}

func (l *store) create(ctx context.Context) error {
	l.f.mu.Lock()
	entry, known := l.f.known[l.key]
	l.f.mu.Unlock()
	if known && entry.State != stateDeleted {
		return goneLog(l.cfg.ID.String())
	}
	if want := l.cfg.Incarnation; l.kind == kindHome && want != "" {
		return refuse("incarnation", want, "nothing of the log is held here, although this region is its home: restore the data directory from a backup, or move the log by force to a region that has a copy of it", nil)
	}
	incarnation, err := newID()
	if err != nil {
		return err
	}
	l.limits.Store(l.told(l.cfg))
	err = l.change(ctx, func(ctx context.Context) (err error) {
		l.admin, err = l.f.broker.js.CreateStream(ctx, l.streamConfig(incarnation))
		return err
	})
	if err != nil {
		return l.f.refused(ctx, l.cfg.ID, Need(l.cfg.MaxBytes), err)
	}
	l.incarnation, l.reserved, l.noted = incarnation, Need(l.cfg.MaxBytes), noted(l.notes(incarnation))
	l.spread(ctx)
	return l.list(ctx)
}

// info asks the broker for the state of the log's stream. In a quorum region a question that
// meets no leader is never answered, so it is asked again.
func (l *store) info(ctx context.Context, opts ...jetstream.StreamInfoOpt) (info *jetstream.StreamInfo, err error) {
	err = l.f.insist(ctx, func(ctx context.Context) error {
		info, err = l.admin.Info(ctx, opts...)
		return err
	})
	return info, err
}

// list enters the log in the store's own list, once the stream itself is on disk.
func (l *store) list(ctx context.Context) error {
	if err := l.f.flush(ctx); err != nil {
		return err
	}
	l.f.mu.Lock()
	e, ok := l.f.known[l.key]
	l.f.mu.Unlock()
	if ok && e.State == "" {
		return nil
	}
	return l.f.enter(l.key, logEntry{Log: l.cfg.ID.String(), Kind: l.kind, Incarnation: l.incarnation, Made: l.nth})
}

// adopt takes up a stream that is there: ours in kind, format and incarnation, or not
// at all.
func (l *store) adopt(ctx context.Context) error {
	have := l.admin.CachedInfo().Config
	meta := have.Metadata
	l.f.mu.Lock()
	known, listed := l.f.known[l.key]
	l.f.mu.Unlock()
	switch {
	case !readable(meta[metaFormat]):
		return refuse("format", meta[metaFormat], "run the version that wrote this log", ErrDamaged)
	case meta[metaLog] != l.cfg.ID.String():
		return refuse("log", meta[metaLog], "the stream belongs to the log shown", ErrDamaged)
	case listed && known.State == "" && known.Incarnation != meta[metaIncarnation]:
		return refuse("incarnation", meta[metaIncarnation], "the stream is another incarnation than the store's list holds: restore the data directory from a backup", ErrDamaged)
	}
	l.incarnation, l.made = meta[metaIncarnation], meta[metaKind]
	var err error
	if l.kept, err = parseKeeps(meta[metaKeeps]); err == nil {
		l.purged, err = parseSpans(meta[metaPurged])
	}
	if err != nil {
		return refuse("log", l.cfg.ID.String(), "the stream's own notes are unreadable: restore the data directory from a backup", errors.Join(ErrDamaged, err))
	}
	l.reserved, l.noted = have.MaxBytes, noted(meta)
	if l.cfg.Keep { // else what is noted stays as it is
		l.limits.Store(l.told(l.cfg))
	}
	l.bytes.Store(int64(l.admin.CachedInfo().State.Bytes))
	if err := l.fitStream(ctx); err != nil {
		return err
	}
	return l.list(ctx)
}

// readable: of a format this binary knows. A stream keeps the format it was made with;
// what it holds tells its own.
func readable(format string) bool {
	n, err := strconv.Atoi(format)
	return err == nil && n >= 1 && n <= formatVersion
}

// flush returns when all that is written now is on disk.
func (f *Fabric) flush(ctx context.Context) error {
	done := make(chan struct{})
	f.barrier.after(func() { close(done) })
	select {
	case <-done:
		return nil
	case <-f.fence():
		return f.storageFailed()
	case <-f.ctx.Done():
		return shuttingDown()
	case <-ctx.Done():
		return unknown("the disk did not answer in time")
	}
}

// state asks the broker for the log's stream, with the messages of each subject counted.
func (l *store) state(ctx context.Context) (*jetstream.StreamInfo, error) {
	return l.info(ctx, jetstream.WithSubjectFilter("*."+l.stream))
}

// recover reads the log's end, bounds and recent ids back from the stream.
func (l *store) recover(ctx context.Context) error {
	info, err := l.state(ctx)
	if err != nil {
		return fmt.Errorf("read state of %s: %w", l.cfg.ID, err)
	}
	if err := l.readTenure(ctx, info); err != nil {
		return err
	}
	if l.kind == kindHome && l.heldAs() == kindCopy { // records of a copy can't be read back as a home's
		if err := l.allowed(); err != nil {
			return err
		}
	}
	state := info.State
	l.bytes.Store(int64(state.Bytes))
	l.tail.broker = state.LastSeq
	l.front.Store(state.FirstSeq)
	l.term, l.named = 1, l.lineage()
	l.tail.position = l.startingEnd()
	if l.kind == kindHome {
		l.index = l.f.indexes.add()
	}
	if state.LastSeq >= max(state.FirstSeq, 1) {
		low := max(state.FirstSeq, 1)
		first, lost, err := l.itemPast(ctx, low, state.LastSeq, false)
		if err != nil {
			return err
		}
		start, err := l.scanStart(ctx, low, state.LastSeq)
		if err != nil {
			return err
		}
		if err := l.walk(ctx, low, start, state.LastSeq); err != nil {
			return err
		}
		l.passTrailing()
		l.first = l.tail.Sequence + 1
		if first != nil {
			// The damaged ones before it were not taken by retention.
			l.first = first.firstSequence() - min(lost, first.firstSequence()-1)
		}
	}
	l.passLost()
	l.records = l.counting(state.Subjects[l.data])
	l.durable = l.tail
	l.lastStamp = l.tail.time
	if floor := time.Unix(0, l.f.floor.Load()).UTC(); l.kind == kindHome && floor.After(l.lastStamp) {
		l.lastStamp = floor
	}
	return nil
}

// passTrailing keeps the sequences of the damaged messages that a home ends with from
// being given away a second time: each held one at most. A copy is sent its own again.
func (l *store) passTrailing() {
	if l.trailing == 0 || l.kind == kindCopy {
		return
	}
	from := l.tail.Sequence + 1
	l.tail.Sequence += l.trailing
	l.cut = true
	l.lose(Range{from, l.tail.Sequence})
}

// scanStart is where reading back begins: a copy needs only its end, a home the ids
// that the index promises, of which the newest minIndexAge may be more than a million.
// Broker sequences are at least as many as records.
func (l *store) scanStart(ctx context.Context, first, last uint64) (uint64, error) {
	back := func(n uint64) uint64 {
		if last < n {
			return first
		}
		return max(first, last-n+1)
	}
	if l.kind == kindCopy {
		return back(64), nil
	}
	start := back(uint64(l.f.indexes.least))
	if start == first {
		return start, nil
	}
	old := l.f.now().Add(-minIndexAge)
	young, _, err := l.find(ctx, end{broker: last}, func(m *message) bool { return !m.item.Time.Before(old) })
	return max(min(start, young), back(uint64(l.f.indexes.max))), err
}

// walk takes what lies from start to last into the log's state. While that is nothing
// but markers it goes further back.
func (l *store) walk(ctx context.Context, first, start, last uint64) error {
	for {
		if err := l.scan(ctx, start, last, l.recall); err != nil {
			return err
		}
		if l.tail.Sequence > 0 || start <= first {
			return nil
		}
		start = max(first, start-min(start-1, minIndexed))
	}
}

// recall takes one stored message into the log's state.
func (l *store) recall(m *message) error {
	if m.control == controlDamaged {
		l.trailing += m.lost
	}
	if !m.hasPos || l.isVoid(m) {
		return nil
	}
	l.trailing = 0
	if l.kind == kindHome {
		l.term = max(l.term, m.position.Term)
		if m.position.Incarnation != l.named {
			return refuse("incarnation", m.position.Incarnation, "the log holds records of another incarnation: restore the data directory from a backup", ErrDamaged)
		}
	}
	data := m.control == ""
	if data || m.control == controlGap {
		if m.position.Sequence <= l.tail.Sequence {
			return l.f.damagedLog(l.cfg.ID.String(), "the log's sequences go backwards: restore the data directory from a backup", nil)
		}
	}
	if from := m.item.Sequence; data && l.tail.Sequence > 0 && from > l.tail.Sequence+1 && l.kind == kindHome {
		l.lose(Range{l.tail.Sequence + 1, from - 1})
	}
	if m.position.Sequence > 0 && m.position.Sequence >= l.tail.Sequence {
		to := end{broker: l.tail.broker, position: m.position, time: m.item.Time, ledger: l.tail.ledger, owner: l.tail.owner}
		if m.hasLedger {
			to.ledger = m.ledger
		}
		l.tail = to
	}
	if data && l.index != nil {
		l.index.put(indexed{id: l.f.hash.sum(domainID, []byte(m.item.Record.ID)), body: m.hash,
			sequence: m.position.Sequence, broker: m.broker, at: m.item.Time.UnixNano()})
	}
	return nil
}

// wasUnclean: the log did not end where its last clean close left it.
func (l *store) wasUnclean() bool {
	l.f.mu.Lock()
	defer l.f.mu.Unlock()
	at, ok := l.f.clean[l.key]
	return l.cut || l.tail.broker > 0 && (!ok || at != l.tail.broker || l.f.restarted)
}

// takeOver starts a new writer term with a marker, so that whatever an older writer
// might still have under way expects another end and fails. The marker expects the end
// that was read: what came in since is read first.
func (l *store) takeOver(ctx context.Context) error {
	watching, done := context.WithCancel(ctx)
	defer done()
	l.f.spawn(func() { l.watchStore(watching) })
	err := l.f.insist(ctx, l.tryTakeOver)
	if err != nil {
		return l.readFailed(fmt.Errorf("take over the writing of %s: %w", l.cfg.ID, err))
	}
	return l.f.flush(ctx)
}

func (l *store) tryTakeOver(ctx context.Context) error {
	for {
		a, err := l.f.appendOne(ctx, l.control, l.tail.broker, l.openMarker(), nil)
		if err == nil && a.err != "" && !a.wrong {
			err = errors.New(a.err)
		}
		info, infoErr := l.state(ctx)
		if infoErr != nil {
			return errors.Join(err, infoErr)
		}
		l.bytes.Store(int64(info.State.Bytes))
		l.records = l.counting(info.State.Subjects[l.data])
		if err == nil && !a.wrong {
			if l.kind == kindHome {
				l.term++
			}
			l.tail.broker = a.last
			l.durable = l.tail
			return nil
		}
		// An unanswered marker of ours may be among what came in.
		if caught := l.catchUp(ctx, info); err != nil || caught != nil {
			return errors.Join(err, caught)
		}
	}
}

// openMarker of a home carries the log's end under the new term; a copy's terms are the
// origin's.
func (l *store) openMarker() []byte {
	b := appendHeader(nil, headerControl, controlOpen)
	if l.kind == kindCopy {
		return b
	}
	at := l.tail.position
	at.Term = l.term + 1
	b = appendPosition(b, at)
	return appendTime(b, headerIngest, l.tail.time)
}

// catchUp reads what an older writer got in after the log's end was read.
func (l *store) catchUp(ctx context.Context, info *jetstream.StreamInfo) error {
	last := info.State.LastSeq
	if err := l.readTenure(ctx, info); err != nil {
		return err
	}
	if err := l.scan(ctx, l.tail.broker+1, last, l.recall); err != nil {
		return err
	}
	l.tail.broker = last
	if err := l.allowed(); err != nil {
		return err
	}
	if l.first == 0 && l.tail.Sequence > 0 {
		l.first = 1
	}
	if l.tail.time.After(l.lastStamp) {
		l.lastStamp = l.tail.time
	}
	return nil
}
