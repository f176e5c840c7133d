package fabric

import (
	"sync/atomic"
	"time"

	"domicile/api"
	"domicile/regions"
)

// The states of an entry. Whoever moves it to settled calls done; nobody else does.
const (
	entryQueued  = iota // the broker has not been asked: a refusal is certain
	entrySent           // the broker may have it: without its word the outcome is unknown
	entrySettled        // the caller was told
)

// entry is one item on its way through a log's writer.
type entry struct {
	item     regions.Item
	sweep    *sweepRange // a sweep's control message; nil otherwise
	mark     *marked     // an ownership marker; nil otherwise
	id, hash [hashSize]byte
	size     int
	state    atomic.Int32
	deadline time.Time
	done     func(regions.Stored)

	// Below: the store's mu.
	waiters  []*entry // later callers with the same id
	afloat   bool     // it counts in the share of what is on its way
	resolved bool     // its place in the log is decided, whatever the caller was told

	// Below: the writer alone, until it hands the entry to the barrier.
	broker   uint64
	position position
	end      end   // of the log behind it
	known    bool  // its id is in the index
	unfit    error // why it can't be stored, see storable
}

type sweepRange struct{ from, to uint64 }

// control: it is no item, neither a record nor a gap.
func (e *entry) control() bool { return e.sweep != nil || e.mark != nil }

// settle tells the caller, unless someone did.
func (e *entry) settle(s regions.Stored) {
	if e.state.Swap(entrySettled) != entrySettled {
		e.done(s)
	}
}

// expire settles an entry whose deadline has passed.
func (e *entry) expire() {
	if e.state.CompareAndSwap(entryQueued, entrySettled) {
		e.done(regions.Stored{Err: &api.Error{Code: api.Overloaded, Op: "append", RetryAfter: time.Second,
			Hint: "the log's writer did not get to it in time; nothing was stored, retry with the same id"}})
		return
	}
	e.settle(regions.Stored{Err: unknown("the deadline passed before the disk answered")})
}

func unknown(why string) error {
	return &api.Error{Code: api.OutcomeUnknown, Op: "append", Hint: why + "; retry with the same id"}
}
