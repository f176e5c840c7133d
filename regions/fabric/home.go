package fabric

import (
	"context"
	"fmt"
	"time"

	"domicile/api"
	"domicile/regions"
)

// home is a log this region owns.
type home struct{ *store }

var _ regions.HomeLog = home{}

// Append hands a draft to the log's writer.
func (l home) Append(d regions.Draft, done func(regions.Stored)) {
	r := d.Record
	r.Topic = l.cfg.ID.Topic
	e := &entry{item: regions.Item{Record: r, Revision: d.Revision}, size: r.Size() + 256, done: done,
		id: l.f.hash.sum(domainID, []byte(r.ID)), hash: l.f.hash.sum(domainBody, r.Body),
		deadline: time.Now().Add(l.f.cfg.Pace.Of(AppendDeadline))}
	if now := l.admit(e); now != nil {
		// Not on the caller's goroutine: it may hold what done needs.
		if !l.f.spawn(func() { e.settle(now()) }) {
			go e.settle(regions.Stored{Err: shuttingDown()})
		}
	}
}

// admit queues the entry, or returns how to answer it at once.
func (l home) admit(e *entry) (answer func() regions.Stored) {
	refused := func(err error) func() regions.Stored {
		return func() regions.Stored { return regions.Stored{Err: err} }
	}
	if err := l.f.storageFailed(); err != nil {
		return refused(err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.refusal != nil {
		return refused(l.refusal)
	}
	if err := l.f.suspension(); err != nil {
		return refused(err)
	}
	if !l.room(e.size) {
		return refused(&api.Error{Code: api.Overloaded, Op: "append", Topic: l.cfg.ID.Topic, Region: l.f.cfg.Region,
			RetryAfter: l.f.cfg.Pace.Of(200 * time.Millisecond), Hint: "the log's writer holds all it may; nothing was stored, retry with the same id"})
	}
	if at, ok := l.index.get(e.id); ok && !l.f.cfg.Hooks.NoDedupe {
		if at.body != e.hash {
			return refused(l.idReused())
		}
		l.hold(e)
		e.state.Store(entrySent)
		return func() regions.Stored { return l.duplicate(e, at) }
	}
	if first := l.flying[e.id]; first != nil {
		e.state.Store(entrySent)
		first.waiters = append(first.waiters, e)
		l.hold(e)
		return nil
	}
	if err := l.f.full(l.cfg.ID.Topic, e.size); err != nil {
		return refused(err)
	}
	l.flying[e.id] = e
	l.enqueue(e)
	return nil
}

// duplicate answers for an id that is durable already, in the words of its record. Of one
// that retention took since, and that an earlier writer stored, epoch and term are not known.
func (l home) duplicate(e *entry, at indexed) regions.Stored {
	defer func() {
		l.mu.Lock()
		l.letGo(e)
		l.mu.Unlock()
	}()
	s := regions.Stored{Position: api.Cursor{Log: l.cfg.ID, Incarnation: l.named, Sequence: at.sequence},
		Time: time.Unix(0, at.at).UTC(), Done: l.f.cfg.durability(), Duplicate: true}
	if at.sequence > l.began { // by this writer
		s.Position.Epoch, s.Term = l.cfg.Epoch, l.term
	}
	if l.cfg.Relaxed && at.sequence > l.durableEnd().Sequence {
		s.Done = api.OS1
	}
	ctx, cancel := context.WithDeadline(l.f.ctx, e.deadline)
	defer cancel()
	got, err := l.readUpTo(ctx, at.broker, at.broker, 1, readBytes)
	switch {
	case err != nil && s.Term == 0:
		return regions.Stored{Err: unknown("the record of this id is stored already, and under which term could not be read in time; retry with the same id")}
	case err != nil || len(got) == 0:
	case got[0].position.Sequence == at.sequence:
		m := got[0]
		s.Position.Epoch, s.Term, s.Time, s.Revision = m.position.Epoch, m.position.Term, m.item.Time, m.item.Revision
	case got[0].control == controlDamaged:
		l.lose(Range{at.sequence, at.sequence})
		return regions.Stored{Err: &api.Error{Code: api.StorageFailed, Op: "append", Topic: l.cfg.ID.Topic, Region: l.f.cfg.Region,
			Hint: fmt.Sprintf("the record of this id was stored at sequence %d and is damaged on this disk: take it from a copy, or publish it under a new id", at.sequence)}}
	}
	return s
}

// ClosedInstant is the instant up to which the log is complete. Later ingest times are
// held to it; in a quorum region those of later holders of the seat too, so there it does
// not pass what a majority of the nodes has promised.
func (l home) ClosedInstant() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	var at time.Time
	if len(l.inflight) > 0 {
		at = l.inflight[0].item.Time
	} else {
		at = l.stamp()
	}
	at = l.f.unclosed(at)
	if !l.ceiling.IsZero() && at.After(l.ceiling) {
		at = l.ceiling
	}
	if m := l.f.members; m != nil {
		if floor := m.closed(); floor.Before(at) {
			at = floor
		}
		if at.Before(l.closed) {
			at = l.closed
		}
		l.closed = at
	}
	return at
}
