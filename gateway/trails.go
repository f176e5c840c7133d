package gateway

import (
	"hash/maphash"
	"sync"
	"time"

	"domicile/api"
	"domicile/regions"
)

// The bounds of what a gateway remembers of records with route: within_boundary.
const (
	trailsKept  = 65_536
	trailsFor   = 10 * time.Minute // as long as a log remembers its ids at least
	retryDetour = time.Second      // at pace 1
)

// trails remembers to which log a record was sent: while its outcome is open, and for ten
// minutes after one that nobody knows, or when the log was not the record's first choice.
// A retry finds its log by it, so that one record is not stored in two. Ids are kept as
// hashes only. What does not fit is not remembered, and then no record takes another way
// until nothing that was forgotten matters any more.
type trails struct {
	clock regions.Clock
	seed  maphash.Seed

	mu        sync.Mutex
	logs      map[uint64]*trail
	ending    []ending // one for each trail that ends; in order, but for those that were put off
	forgotten int      // sent without a trail, outcome open
	blind     time.Time
}

type trail struct {
	log  api.LogID
	open int // tries without an outcome
	ends time.Time
	due  bool // it has an ending, and one only
}

type ending struct {
	id uint64
	at time.Time
}

func newTrails(c regions.Clock) *trails {
	return &trails{clock: c, seed: maphash.MakeSeed(), logs: map[uint64]*trail{}}
}

func (t *trails) key(topic, id string) uint64 {
	return maphash.Comparable(t.seed, [2]string{topic, id})
}

// find is the log that may hold a record of this id.
func (t *trails) find(topic, id string) (api.LogID, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.expire(t.clock.Now())
	if x := t.logs[t.key(topic, id)]; x != nil {
		return x.log, true
	}
	return api.LogID{}, false
}

// complete reports whether every id that matters is remembered, and one more fits.
func (t *trails) complete() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.forgotten == 0 && !t.clock.Now().Before(t.blind) && len(t.logs) < trailsKept
}

// begin notes where a record is sent. It refuses a detour that cannot be remembered, and
// a second log for an id.
func (t *trails) begin(topic, id string, log api.LogID, detour bool) (over func(error), ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.expire(t.clock.Now())
	key := t.key(topic, id)
	x := t.logs[key]
	switch {
	case x != nil && x.log != log: // another try of it went the other way just now
		return nil, false
	case x != nil:
	case len(t.logs) < trailsKept:
		x = &trail{log: log}
		t.logs[key] = x
	case detour:
		return nil, false
	default:
		t.forgotten++
		return t.forget, true
	}
	x.open++
	return func(err error) { t.end(key, x, unknown(err) || detour && err == nil) }, true
}

func unknown(err error) bool { return err != nil && api.CodeOf(err).Stored() == api.StoredUnknown }

// end takes in the outcome of a try. A detour is kept whatever became of it: the answer
// may not reach the producer.
func (t *trails) end(key uint64, x *trail, keep bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	x.open--
	if keep {
		x.ends = t.clock.Now().Add(trailsFor)
		if !x.due { // however often it is sent again
			x.due = true
			t.ending = append(t.ending, ending{key, x.ends})
		}
	}
	if x.open == 0 && !x.due {
		delete(t.logs, key)
	}
}

func (t *trails) forget(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.forgotten--
	if unknown(err) {
		t.blind = t.clock.Now().Add(trailsFor)
	}
}

// expire drops what matters no more. t.mu is held.
func (t *trails) expire(now time.Time) {
	n := 0
	for ; n < len(t.ending) && !now.Before(t.ending[n].at); n++ {
		id := t.ending[n].id
		switch x := t.logs[id]; {
		case now.Before(x.ends): // it was put off since
			t.ending = append(t.ending, ending{id, x.ends})
		case x.open == 0:
			delete(t.logs, id)
		default:
			x.due = false // the outcome of a try decides
		}
	}
	t.ending = t.ending[n:]
}
