package fabric

import (
	"context"
	"encoding/json"
	"slices"
	"time"

	"domicile/api"
	"domicile/regions"
)

// Fence ends the epoch of an open home log. From the call on appends are refused with
// FENCED; what the writer holds is decided first, then the marker follows the last record
// and is durable when the cut is answered. Nothing of the epoch, or of an earlier one, is
// ever appended to the log again, by whoever opens it. After an error the log still takes
// nothing: call again, with the same op, also after a start or at another node of the
// region. An epoch is fenced once: whoever asks later, under whatever op, is answered
// the same cut, also by a log that was opened as a copy since.
func (f *Fabric) Fence(ctx context.Context, id api.LogID, epoch api.Epoch, op string) (Cut, error) {
	l, err := f.opened(id, "fence log")
	if err != nil {
		return Cut{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, f.cfg.Pace.Of(AppendDeadline))
	defer cancel()
	l.sweeping.Lock()
	defer l.sweeping.Unlock()
	if t := l.durableEnd().owner; t.ended(epoch) {
		return *t.Cut, l.enroll()
	}
	if l.kind != kindHome || l.cfg.Epoch != epoch {
		return Cut{}, &api.Error{Code: api.StaleEpoch, Op: "fence log", Topic: id.Topic, Region: f.cfg.Region, Field: "epoch", Value: epoch.String(),
			Hint: "the log is not open here as a home in this epoch: ask for its tenure"}
	}
	closed := l.endAdmission()
	if err := l.settled(ctx, "fence log"); err != nil {
		return Cut{}, err
	}
	f.step("admission stopped")
	at := l.durableEnd()
	if at.owner.ended(epoch) { // by a call that did not hear it
		return *at.owner.Cut, l.enroll()
	}
	t := l.nextTenure(at)
	t.State, t.Epoch, t.Fenced = stateFenced, epoch, epoch
	t.Cut = &Cut{Op: op, Epoch: epoch, Sequence: at.Sequence, Time: at.time, Closed: closed}
	at.ledger = at.accounted()
	if err := l.mark(ctx, controlFence, t, at); err != nil {
		return Cut{}, err
	}
	f.step("fenced")
	l.log.Info("the log's epoch ended here", "epoch", epoch.String(), "op", op, "cut", at.Sequence)
	return *t.Cut, l.enroll()
}

// ended: the epoch was fenced here, and the cut is its.
func (t *Tenure) ended(epoch api.Epoch) bool {
	return t != nil && t.Fenced == epoch && t.Cut != nil && t.Cut.Epoch == epoch
}

// endAdmission refuses appends from now on, and names the last closed instant there will
// be.
func (l *store) endAdmission() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.refusal == nil {
		l.refusal = l.fenced()
	}
	if l.ceiling.IsZero() {
		l.ceiling = l.stamp()
	}
	return l.ceiling
}

func (l *store) fenced() error {
	return &api.Error{Code: api.Fenced, Op: "append", Topic: l.cfg.ID.Topic, Region: l.f.cfg.Region, Field: "epoch", Value: l.cfg.Epoch.String(),
		RetryAfter: l.f.cfg.Pace.Of(200 * time.Millisecond), Hint: "the log's home moves; retry with the same id"}
}

func (l *store) frozen() error {
	return &api.Error{Code: api.Fenced, Op: "apply batch", Topic: l.cfg.ID.Topic, Region: l.f.cfg.Region,
		RetryAfter: l.f.cfg.Pace.Of(time.Second), Hint: "the copy is frozen while the log's home moves; the history that ends its epoch lets it go on"}
}

// Freeze fixes where an open copy ends: from the call on Apply is refused with FENCED, what
// is under way is decided, and a marker that is durable when the cursor is answered keeps
// it so over every start, until the copy is opened as a home or learns that its epoch
// ended. A frozen copy answers every later call with the same cursor.
func (f *Fabric) Freeze(ctx context.Context, id api.LogID, op string) (regions.Cursor, error) {
	l, err := f.opened(id, "freeze copy")
	if err != nil {
		return regions.Cursor{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, f.cfg.Pace.Of(AppendDeadline))
	defer cancel()
	l.sweeping.Lock()
	defer l.sweeping.Unlock()
	if l.kind != kindCopy {
		return regions.Cursor{}, &api.Error{Code: api.BadRequest, Op: "freeze copy", Topic: id.Topic, Region: f.cfg.Region, Field: "log", Value: id.String(),
			Hint: "the log is a home here: a home is fenced"}
	}
	if t := l.durableEnd().owner; t != nil && t.State == stateFrozen {
		return mirrored{l, nil}.Cursor(), l.enroll()
	}
	l.refuse(l.frozen())
	if err := l.settled(ctx, "freeze copy"); err != nil {
		return regions.Cursor{}, err
	}
	f.step("copy stopped")
	at := l.durableEnd()
	if at.owner != nil && at.owner.State == stateFrozen { // by a call that did not hear it
		return mirrored{l, nil}.Cursor(), l.enroll()
	}
	t := l.nextTenure(at)
	t.State, t.Cut = stateFrozen, &Cut{Op: op, Epoch: at.Epoch, Sequence: at.Sequence, Time: at.time}
	if err := l.mark(ctx, controlFreeze, t, at); err != nil {
		return regions.Cursor{}, err
	}
	f.step("frozen")
	l.log.Info("the copy was frozen", "epoch", at.Epoch.String(), "op", op, "cut", at.Sequence)
	return mirrored{l, nil}.Cursor(), l.enroll()
}

// accounted is the ledger of a log that was a home since the last of its items that
// carries one: every sequence since is here.
func (e end) accounted() regions.Ledger {
	l := e.ledger
	l.Mirrored += e.Sequence - min(e.Sequence, l.Sum())
	return l
}

// settled waits until nothing is on its way through the log's writer any more. Nothing new
// is admitted.
func (l *store) settled(ctx context.Context, op string) error {
	if l.drain(ctx) && !l.isDead() {
		return nil
	}
	if err := l.f.storageFailed(); err != nil {
		return err
	}
	return &api.Error{Code: api.NotReady, Op: op, Topic: l.cfg.ID.Topic, Region: l.f.cfg.Region, RetryAfter: l.f.cfg.Pace.Of(200 * time.Millisecond),
		Hint: "what the log's writer holds was not decided in time, or the seat moves; nothing was marked: call again with the same op"}
}

// mark has the log's writer append an ownership marker, and waits until it is durable; the
// log goes on at from. Whoever calls holds sweeping, and nothing else is being written.
func (l *store) mark(ctx context.Context, control string, t Tenure, from end) error {
	from.owner = &t
	return l.put(ctx, &marked{control: control, from: from})
}

// put is mark for one that may also go between records.
func (l *store) put(ctx context.Context, m *marked) error {
	if err := l.allowMarkers(ctx); err != nil {
		return err
	}
	body, err := json.Marshal(m.from.owner)
	if err != nil {
		return err
	}
	result := make(chan regions.Stored, 1)
	e := &entry{mark: m, size: len(body) + 512,
		deadline: time.Now().Add(l.f.cfg.Pace.Of(AppendDeadline)), done: func(s regions.Stored) { result <- s }}
	e.item.Record.Body = body
	if err := l.f.storageFailed(); err != nil {
		return err
	}
	l.mu.Lock()
	if l.dead {
		l.mu.Unlock()
		return l.f.writingMoves()
	}
	if err := l.f.suspension(); err != nil {
		l.mu.Unlock()
		return err
	}
	l.enqueue(e)
	l.mu.Unlock()
	select {
	case s := <-result:
		return s.Err
	case <-ctx.Done():
		return unknown("the marker was not decided in time: call again with the same op")
	}
}

// allowMarkers gives the stream of a log that an earlier version made the subject of the
// ownership markers.
func (l *store) allowMarkers(ctx context.Context) error {
	if slices.Contains(l.admin.CachedInfo().Config.Subjects, l.owner) {
		return nil
	}
	l.noted = "\x00" // so that the stream is seen to differ
	if err := l.fitStream(ctx); err != nil {
		return err
	}
	_, err := l.admin.Info(ctx) // which is kept
	return err
}

// still: nothing is appended to the log until it is opened anew or learns a history.
func (l *store) still() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return api.CodeOf(l.refusal) == api.Fenced
}

// enroll notes in the store's list of logs which role the log has, and how many ownership
// markers: fewer are never believed again.
func (l *store) enroll() error {
	t := l.durableEnd().owner
	if t == nil {
		return nil
	}
	l.f.mu.Lock()
	e, ok := l.f.known[l.key]
	l.f.mu.Unlock()
	if !ok || e.State != "" || e.Kind == l.kind && e.Markers == t.Number {
		return nil
	}
	e.Kind, e.Markers = l.kind, t.Number
	return l.f.enter(l.key, e)
}

// Tenure is what an open log's last ownership marker says; false: it never had one, and
// is what it was made as.
func (f *Fabric) Tenure(id api.LogID) (Tenure, bool, error) {
	l, err := f.opened(id, "read tenure")
	if err != nil {
		return Tenure{}, false, err
	}
	t := l.durableEnd().owner
	if t == nil {
		return Tenure{}, false, nil
	}
	return *t, true, nil
}
