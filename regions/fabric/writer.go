package fabric

import (
	"slices"
	"time"

	"domicile/api"
	"domicile/regions"
	"domicile/regions/clock"
)

// enqueue hands entries to the writer; mu is held and the bounds were checked. The
// writer's goroutine lives only while there is something to write.
func (l *store) enqueue(entries ...*entry) {
	for _, e := range entries {
		l.queue = append(l.queue, e)
		l.hold(e)
	}
	if !l.running && !l.dead {
		l.running = l.f.spawn(l.run)
	}
}

// hold counts an entry and puts it under its deadline; mu is held.
func (l *store) hold(e *entry) {
	l.count++
	l.held += e.size
	l.f.held.Add(int64(e.size))
	l.watch(e)
}

// room reports whether the bounds let in size more bytes; mu is held. A log holds at most
// twice what it leaves free to the others.
func (l *store) room(size int) bool {
	free := MaxHeldBytes - l.f.held.Load()
	return l.count < MaxQueued && l.held+size <= MaxQueuedBytes && int64(size) <= free && int64(l.held+size) <= 2*(free-int64(size))
}

// run is the log's one writer.
func (l *store) run() {
	for {
		l.await()
		burst, late, ok := l.take()
		l.resolve(late, l.notWritten)
		if !ok {
			return
		}
		l.write(burst)
	}
}

// notWritten is for entries the broker was never asked for.
func (l *store) notWritten(*entry) regions.Stored {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.dead {
		return regions.Stored{Err: l.refusal}
	}
	return regions.Stored{Err: &api.Error{Code: api.Overloaded, Op: "append", RetryAfter: time.Second,
		Hint: "the first caller with this id was not written in time; nothing was stored, retry"}}
}

// take is the next burst, stamped; late are those whose callers were told meanwhile
// that nothing was stored, and all that is left of a writer that stopped.
func (l *store) take() (burst, late []*entry, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.stamp()
	bytes := 0
	granted, _ := l.f.share.grant(l.afloat)
	if l.dead {
		late, l.queue = l.queue, nil
	}
	for len(l.queue) > 0 && len(burst) < burstRecords {
		e := l.queue[0]
		if len(burst) > 0 && bytes+e.size > min(burstBytes, int(granted)) {
			break
		}
		l.queue[0] = nil
		l.queue = l.queue[1:]
		if !e.state.CompareAndSwap(entryQueued, entrySent) {
			late = append(late, e)
			continue
		}
		if l.kind == kindHome {
			e.item.Time = now
		}
		l.inflight = append(l.inflight, e)
		e.afloat = true
		bytes += e.size
		burst = append(burst, e)
	}
	l.afloat += int64(bytes)
	l.f.share.take(int64(bytes))
	if len(burst) == 0 && len(late) == 0 {
		l.running = false
		return nil, nil, false
	}
	return burst, late, true
}

// stamp is an ingest time that no later one of this log will be before; mu is held. Only
// what a wrong clock stamped far ahead is not waited for once the clock is believed.
func (l *store) stamp() time.Time {
	now := l.f.now().Round(0).UTC()
	if now.After(l.lastStamp) || l.lastStamp.Sub(now) > clock.Gap && l.f.mayGoBack() {
		l.lastStamp = now
	}
	return l.lastStamp
}

// write brings a burst to the broker and leaves it to the barrier. It returns when
// each entry's place in the log is decided.
func (l *store) write(burst []*entry) {
	for len(burst) > 0 {
		b := l.encode(burst)
		l.refuseUnfit(b)
		if len(b.entries) == 0 {
			return
		}
		result := l.publish(b)
		if result == batchStored {
			l.written(b.entries, b.tail, b.bytes)
			return
		}
		stored, err := l.readBack(b.entries)
		if err != nil {
			if !l.f.stopping() {
				l.settleLost(b.entries[stored:], err)
			}
			return
		}
		burst = l.remaining(b.entries[stored:], result)
	}
}

// written leaves stored entries to the barrier. Until it is through, readers, mirrors
// and callers know nothing of them.
func (l *store) written(entries []*entry, to end, bytes int64) {
	l.tail = to
	l.bytes.Add(bytes)
	l.f.spend(bytes)
	if h := l.f.cfg.Hooks.Written; h != nil {
		h(l.cfg.ID, to.Sequence)
	}
	release := func() { l.release(entries, to) }
	if !l.relaxed(entries) {
		l.f.barrier.after(release)
		return
	}
	l.relax(entries)
	l.f.barrier.later(release)
	l.mu.Lock()
	crowded := l.count > MaxQueued/2 || l.held > MaxQueuedBytes/2
	l.mu.Unlock()
	if crowded {
		l.f.barrier.kick()
	}
}

// relaxed: these are acknowledged once they are written. A sweep's range is not, and a
// quorum region syncs before it answers, whatever the class.
func (l *store) relaxed(entries []*entry) bool {
	return l.cfg.Relaxed && l.f.cfg.Cluster == nil && l.kind == kindHome && !slices.ContainsFunc(entries, func(e *entry) bool { return e.control() })
}

// relax tells the callers that their records are written. The entries stay in flight:
// nobody reads them, and no closed instant passes them, before they are synced.
func (l *store) relax(entries []*entry) {
	l.remember(entries)
	for _, e := range entries {
		e.known = true
		s := l.stored(e)
		s.Done = api.OS1
		e.settle(s)
	}
}

// remember enters records in the index of ids.
func (l *store) remember(entries []*entry) {
	for _, e := range entries {
		if l.index != nil && !e.known && !e.control() && e.item.Gap == nil {
			l.index.put(indexed{id: e.id, body: e.hash, sequence: e.position.Sequence, broker: e.broker, at: e.item.Time.UnixNano()})
		}
	}
}

// refuseUnfit refuses what the log has no room for, what is out of order, and what is too
// large for the store's format whatever the door let in.
func (l *store) refuseUnfit(b *batch) {
	l.mu.Lock()
	switch {
	case len(b.full) == 0 && len(b.entries) > 0:
		l.fullSince = time.Time{}
	case len(b.full) > 0 && l.fullSince.IsZero():
		l.fullSince = l.f.cfg.Clock.Now()
	}
	l.mu.Unlock()
	if len(b.full) > 0 {
		l.f.kickSweep()
		l.resolve(b.full, l.storageFull)
	}
	l.settleLost(b.disorder, regions.ErrOutOfOrder)
	l.resolve(b.unfit, func(e *entry) regions.Stored { return regions.Stored{Err: e.unfit} })
	l.settleLost(b.large, &api.Error{Code: api.HeadersTooLarge, Op: "append", Topic: l.cfg.ID.Topic,
		Hint: "body, headers, id, key and tags together exceed what the store can hold: see the limits in the contract"})
}

func (l *store) storageFull(*entry) regions.Stored {
	if d := l.unsettledEpoch(); d != "" {
		return regions.Stored{Err: &api.Error{Code: api.StorageFull, Op: "append", Topic: l.cfg.ID.Topic, Region: l.f.cfg.Region,
			Field: "retention.max_bytes", RetryAfter: l.f.cfg.Pace.Of(time.Second),
			Hint: "the log is full, and retention waits for the void records of epoch " + d + " to be settled: republish or discard them, or raise max_bytes; retry with the same id"}}
	}
	hint := "the log is full; retention makes room: retry with the same id, or raise max_bytes"
	if bounds := l.bounds(); bounds.asksMirrors() && bounds.Waits != nil && bounds.Waits() != "" {
		hint = "the log is full and the topic holds records until they are copied: " + bounds.Waits() + "; retry with the same id, raise max_bytes, or take hold or the region out of the topic's declaration"
	}
	return regions.Stored{Err: &api.Error{Code: api.StorageFull, Op: "append", Topic: l.cfg.ID.Topic, Region: l.f.cfg.Region,
		Field: "retention.max_bytes", RetryAfter: l.f.cfg.Pace.Of(time.Second), Hint: hint}}
}

// remaining is what has to be appended again after a lost batch, in its first order.
// Callers who were told UNKNOWN meanwhile are not served late.
func (l *store) remaining(rest []*entry, result batchResult) []*entry {
	if result == batchFull {
		l.resolve(rest, l.storageFull)
		return nil
	}
	var again, drop []*entry
	for _, e := range rest {
		if e.state.Load() == entrySettled || l.kind == kindCopy && len(drop) > 0 {
			drop = append(drop, e)
		} else {
			again = append(again, e)
		}
	}
	l.resolve(drop, func(*entry) regions.Stored {
		return regions.Stored{Err: unknown("the first caller's append was given up at its deadline")}
	})
	return again
}

// settleLost ends entries that are known not to be in the log.
func (l *store) settleLost(entries []*entry, err error) {
	l.resolve(entries, func(*entry) regions.Stored { return regions.Stored{Err: err} })
}

// release makes entries durable: the disk has them.
func (l *store) release(entries []*entry, to end) {
	if h := l.f.cfg.Hooks.Released; h != nil {
		h(l.cfg.ID, to.Sequence)
	}
	l.mu.Lock()
	for _, e := range entries {
		if e.mark != nil {
			l.turn(e.mark)
		}
		if e.control() || e.item.Gap != nil {
			continue
		}
		l.records++
	}
	l.remember(entries)
	if l.first == 0 && to.Sequence > 0 {
		l.first = 1
	}
	l.advance(to)
	l.mu.Unlock()
	l.resolve(entries, l.stored)
	l.checkRoom()
}

func (l *store) stored(e *entry) regions.Stored {
	p := e.position
	return regions.Stored{Position: api.Cursor{Log: l.cfg.ID, Incarnation: p.Incarnation, Epoch: p.Epoch, Sequence: p.Sequence},
		Term: p.Term, Time: e.item.Time, Done: l.f.cfg.durability(), Revision: e.item.Revision}
}

// resolve decides entries' fate, lets go of what they held, and tells their callers
// and everyone who came with the same id.
func (l *store) resolve(entries []*entry, outcome func(*entry) regions.Stored) {
	if len(entries) == 0 {
		return
	}
	l.mu.Lock()
	landed := int64(0)
	for _, e := range entries {
		if e.afloat {
			e.afloat = false
			landed += int64(e.size)
		}
		e.resolved = true
		l.letGo(e)
		for _, w := range e.waiters {
			l.letGo(w)
		}
		if l.flying[e.id] == e {
			delete(l.flying, e.id)
		}
	}
	for len(l.inflight) > 0 && l.inflight[0].resolved {
		l.inflight[0] = nil
		l.inflight = l.inflight[1:]
	}
	l.afloat -= landed
	l.mu.Unlock()
	l.f.share.back(landed)
	for _, e := range entries {
		s := outcome(e)
		e.settle(s)
		for _, w := range e.waiters {
			w.settle(l.forWaiter(e, w, s))
		}
	}
}

// letGo undoes hold; mu is held.
func (l *store) letGo(e *entry) {
	l.count--
	l.held -= e.size
	l.f.held.Add(int64(-e.size))
	if l.count == 0 {
		for _, c := range l.idle {
			close(c)
		}
		l.idle = nil
	}
}

// forWaiter is what a later caller with the same id is told.
func (l *store) forWaiter(first, w *entry, s regions.Stored) regions.Stored {
	if s.Err != nil {
		return regions.Stored{Err: s.Err}
	}
	if w.hash != first.hash {
		return regions.Stored{Err: l.idReused()}
	}
	s.Duplicate = true
	return s
}

func (l *store) idReused() error {
	return &api.Error{Code: api.IDReused, Op: "append", Topic: l.cfg.ID.Topic, Field: "id",
		Hint: "this id is stored with another body: a new event needs a new id"}
}

func (l *store) isDead() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.dead
}
