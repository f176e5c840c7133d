package fabric

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"domicile/api"
	"domicile/regions"
)

// The states of a log in the store's own list; "" is a log that is there.
const (
	stateDeleting = "deleting" // the decision is on disk; the data may still be there
	stateDeleted  = "deleted"  // the data is gone; what is left says what it was
)

// purgeWithin bounds a purge and a deletion at pace 1: large files take their time.
const purgeWithin = 2 * time.Minute

// Deleted is a log that is not in the store any more.
type Deleted struct {
	Log         string // written form
	Kind        string // "home" or "copy"
	Incarnation string
	Last        uint64    // its last sequence
	Records     uint64    // that were stored; only in the answer to Delete
	At          time.Time // of the decision
}

// Delete takes a log, open or not, out of the store, in two steps: first the decision
// and where the log ended are on disk, then the data goes. A start after a crash in
// between finishes it. A log that is made under the same name later is another
// incarnation. What is not copied is for the caller to ask. One call at a time acts on
// a log; a second one is told.
func (f *Fabric) Delete(ctx context.Context, id api.LogID) (Deleted, error) {
	stream, err := streamName(id)
	if err != nil {
		return Deleted{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, f.cfg.Pace.Of(purgeWithin))
	defer cancel()
	if err := f.claimDeletion(stream, id); err != nil {
		return Deleted{}, err
	}
	defer f.unclaim(stream)
	entry, records, err := f.endOf(ctx, stream, id)
	if err == nil {
		f.step("writer stopped")
		entry.State, entry.At = stateDeleting, f.cfg.Clock.Now().UTC()
		err = f.enter(stream, entry)
	}
	if err != nil {
		f.takeAgain(stream)
		return Deleted{}, err
	}
	f.step("deletion decided")
	if err := f.finishDeletion(ctx, stream, entry); err != nil {
		return Deleted{}, err
	}
	f.cfg.Logger.Info("a log was deleted", "log", entry.Log, "incarnation", entry.Incarnation, "last", entry.Last)
	d := entry.deleted()
	d.Records = records
	return d, nil
}

// claimDeletion keeps everyone else from opening or deleting the log. A node that does not
// hold the seat deletes nothing: another one may have the log open.
func (f *Fabric) claimDeletion(stream string, id api.LogID) error {
	if err := f.storageFailed(); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	refused := func(code api.Code, hint string) error {
		return &api.Error{Code: code, Op: "delete log", Topic: id.Topic, Region: f.cfg.Region, Field: "log", Value: id.String(), Hint: hint}
	}
	entry, known := f.known[stream]
	switch {
	case f.draining:
		return shuttingDown()
	case f.opening[stream]:
		return refused(api.NotReady, "the log is being opened or deleted just now, perhaps by somebody else: look at status, then try again")
	case !known:
		return refused(api.BadRequest, "this store never held the log")
	case entry.State != "":
		return refused(api.BadRequest, fmt.Sprintf("it was deleted at %s; its last sequence was %d", entry.At.Format(time.RFC3339), entry.Last))
	}
	if seat, _ := f.Seat(); !seat.Mine {
		return f.writingMoves()
	}
	f.opening[stream] = true
	return nil
}

func (f *Fabric) unclaim(stream string) {
	f.mu.Lock()
	delete(f.opening, stream)
	f.mu.Unlock()
	f.tellEmptied()
}

// claimDecided is claimDeletion for one that was decided; false when it is done, or
// somebody is at it.
func (f *Fabric) claimDecided(stream string) (logEntry, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	e := f.known[stream]
	if e.State != stateDeleting || f.opening[stream] {
		return e, false
	}
	f.opening[stream] = true
	return e, true
}

// endOf stops the log's writer, if it is open, and reads where the log ends and how many
// records it holds. A log that is not open is read back first.
func (f *Fabric) endOf(ctx context.Context, stream string, id api.LogID) (entry logEntry, records uint64, err error) {
	f.mu.Lock()
	l := f.logs[stream]
	entry = f.known[stream]
	f.mu.Unlock()
	opened := l != nil
	if !opened && f.Shut(id) != nil { // as far as it is known
		f.mu.Lock()
		defer f.mu.Unlock()
		entry.Last = f.ended[entry.Incarnation]
		return entry, 0, nil
	}
	if !opened {
		if l, err = f.readKept(ctx, stream, id, entry.Kind); err != nil {
			return entry, 0, err
		}
		defer f.indexes.remove(l.index)
	}
	l.refuse(&api.Error{Code: api.UnknownTopic, Op: "append", Topic: id.Topic, Region: f.cfg.Region, Field: "log", Value: id.String(), Hint: "the log was deleted here"})
	if opened && !l.drain(ctx) {
		return entry, 0, &api.Error{Code: api.NotReady, Op: "delete log", Topic: id.Topic, Region: f.cfg.Region, Hint: "what the log's writer holds was not decided in time; nothing was deleted, try again"}
	}
	head := l.Head()
	if entry.Last = head.Sequence; head.Incarnation != "" {
		entry.Incarnation = head.Incarnation // of a copy: its home's
	}
	return entry, head.Records, nil
}

// takeAgain lets a log whose deletion was not decided take appends as before.
func (f *Fabric) takeAgain(stream string) {
	f.mu.Lock()
	l := f.logs[stream]
	f.mu.Unlock()
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.dead:
	case f.yielding():
		l.refusal = f.writingMoves() // the next holder may find the deletion decided
	default:
		l.refusal = nil
	}
}

// readKept reads back a log that is not open, without a writer.
func (f *Fabric) readKept(ctx context.Context, stream string, id api.LogID, kind string) (*store, error) {
	l := newStore(f, LogConfig{ID: id, Epoch: api.StaticEpoch(f.cfg.Region), MaxBytes: 1}, kind, stream)
	f.mu.Lock()
	err := f.shut[stream].err
	f.mu.Unlock()
	if err != nil {
		return nil, err
	}
	if l.admin, err = f.broker.js.Stream(ctx, l.stream); err != nil {
		return nil, fmt.Errorf("read kept log %s: %w", id, err)
	}
	l.incarnation = l.admin.CachedInfo().Config.Metadata[metaIncarnation]
	if err := l.settleKind(ctx); err != nil {
		return nil, err
	}
	if err := l.recover(ctx); err != nil {
		f.indexes.remove(l.index)
		return nil, err
	}
	return l, nil
}

// enter puts a log's entry into the store's own list, on disk, and before that into the
// region's, if it has several nodes.
func (f *Fabric) enter(stream string, e logEntry) error {
	if err := f.enlist(stream, e); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	before, had := f.known[stream]
	f.known[stream] = e
	err := writeJSON(f.path(logsFile), f.known)
	switch {
	case err == nil:
		return nil
	case f.cfg.Cluster != nil:
		f.cfg.Logger.Warn("this node's copy of the region's list of logs was not written", "error", err)
		return nil // what the region's nodes agreed on stands
	}
	if f.known[stream] = before; !had {
		delete(f.known, stream)
	}
	// What was not synced may be in place, and the next start would go by it.
	return fmt.Errorf("write list of logs: %w", errors.Join(err, writeJSON(f.path(logsFile), f.known)))
}

// finishDeletion does what was decided: it forgets the log, deletes the data and says
// so. Doing it again does no harm.
func (f *Fabric) finishDeletion(ctx context.Context, stream string, e logEntry) error {
	f.mu.Lock()
	l := f.logs[stream]
	delete(f.logs, stream)
	delete(f.clean, stream)
	delete(f.counted, stream)
	maps.DeleteFunc(f.ended, func(key string, _ uint64) bool {
		return key == e.Incarnation || strings.HasPrefix(key, e.Incarnation+".")
	})
	f.mu.Unlock()
	if l != nil {
		l.leave()
		f.indexes.remove(l.index)
	}
	if err := f.broker.js.DeleteStream(ctx, anew(stream, e.Made)); err != nil && !errors.Is(err, jetstream.ErrStreamNotFound) {
		return fmt.Errorf("delete %s: %w; the decision stands, the next start goes on with it", e.Log, err)
	}
	if f.cfg.Cluster == nil { // a log that was shut: the broker does not know its folder
		if err := errors.Join(os.RemoveAll(f.folderPath(streamFolder+stream)), f.forgive(stream)); err != nil {
			return fmt.Errorf("delete %s: %w; the decision stands, the next start goes on with it", e.Log, err)
		}
	}
	f.step("data gone")
	if f.barrier != nil && f.failure.Load() == nil {
		if err := f.cfg.Hooks.Sync(f.dir); err != nil {
			return fmt.Errorf("sync the deletion of %s: %w; the decision stands", e.Log, err)
		}
	}
	e.State = stateDeleted
	if err := f.enter(stream, e); err != nil {
		return err
	}
	f.step("deleted")
	return nil
}

// finishDeletions goes on with what an earlier run decided.
func (f *Fabric) finishDeletions(ctx context.Context) error {
	f.mu.Lock()
	known := maps.Clone(f.known)
	f.mu.Unlock()
	for _, stream := range slices.Sorted(maps.Keys(known)) {
		if e, ok := f.claimDecided(stream); ok {
			err := f.finishDeletion(ctx, stream, e)
			f.unclaim(stream)
			if err != nil {
				return err
			}
			f.cfg.Logger.Warn("finished a deletion that an earlier run had decided", "log", e.Log, "last", e.Last)
		}
	}
	return nil
}

// goOnDeleting finishes deletions while the seat is held under a term: no log can be opened
// before its deletion is through.
func (f *Fabric) goOnDeleting(term uint64) {
	for {
		err := f.finishDeletions(f.ctx)
		if err == nil {
			return
		}
		f.cfg.Logger.Warn("deletions that were decided are not finished yet", "error", err)
		if f.rest(f.ctx, pullAgain) != nil {
			return
		}
		if seat, _ := f.Seat(); !seat.Mine || seat.Term != term {
			return
		}
	}
}

// Deleted is what this store last held under a log's name before it was deleted; false
// when the log is there, or never was.
func (f *Fabric) Deleted(id api.LogID) (Deleted, bool) {
	stream, err := streamName(id)
	if err != nil {
		return Deleted{}, false
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	e, ok := f.known[stream]
	return e.deleted(), ok && e.State != ""
}

// Kept lists the logs that this store holds and has not open, by name, with what is
// stored of them.
func (f *Fabric) Kept(ctx context.Context) ([]Kept, error) {
	f.mu.Lock()
	known, logs := maps.Clone(f.known), maps.Clone(f.logs)
	f.mu.Unlock()
	var out []Kept
	for _, stream := range slices.Sorted(maps.Keys(known)) {
		e := known[stream]
		if e.State != "" || logs[stream] != nil {
			continue
		}
		id, err := api.ParseLogID(e.Log)
		if err != nil {
			return out, err
		}
		out = append(out, Kept{Log: id, Role: regions.Role(e.Kind)})
	}
	return out, ctx.Err()
}

// Kept is a log on this region's disk that nobody opened: the manifest does not name it
// any more.
type Kept struct {
	Log  api.LogID
	Role regions.Role
}

// CloseLog ends the writer of one open log and forgets it; its data stays. What it holds is
// decided first, at the latest when the append deadline has passed.
func (f *Fabric) CloseLog(ctx context.Context, id api.LogID) error {
	l, err := f.opened(id, "close log")
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, f.cfg.Pace.Of(AppendDeadline))
	defer cancel()
	l.refuse(&api.Error{Code: api.UnknownTopic, Op: "append", Topic: id.Topic, Region: f.cfg.Region, Hint: "the manifest does not name the log any more"})
	drained := l.drain(ctx)
	l.leave()
	f.mu.Lock()
	d := l.durableEnd()
	if f.ended[l.endKey(d)] = d.Sequence; drained {
		f.clean[l.key] = d.broker
	}
	f.indexes.remove(l.index)
	delete(f.logs, l.key)
	f.mu.Unlock()
	if !drained {
		return unknown("some appends of the log were undecided; the next opening reads them back")
	}
	return nil
}

func (e logEntry) deleted() Deleted {
	return Deleted{Log: e.Log, Kind: e.Kind, Incarnation: e.Incarnation, Last: e.Last, At: e.At}
}
