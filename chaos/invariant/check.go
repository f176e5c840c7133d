package invariant

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"domicile/chaos/ledger"
	"domicile/regions"
)

// The numbers of the promises, as in the table of chaos/DESIGN.md.
const (
	Whole     = 0 // the history holds everything that happened
	Kept      = 1
	Durable   = 2
	Once      = 3
	Resident  = 4
	Crossed   = 5
	NoOffer   = 6
	Order     = 7
	NoRepeat  = 8
	Fenced    = 9
	Slope     = 11
	LagTruth  = 12
	Idle      = 13
	Gaps      = 17
	Revision  = 18
	Counted   = 19
	Quotas    = 21
	Memory    = 22
	Heartbeat = 23
	CatchUp   = 24
	// GossipAlone is judged where the gossip noticed the cut.
	GossipAlone = 27
	OneWay      = 28
	DiskTold    = 29
	Converged   = 30
	NoLeak      = 31
	Redriven    = 32
	Synced      = 33
)

// Violation is one broken promise. It names logs, regions, sequences and times; a
// record without a sequence is named by the mark of its id.
type Violation struct {
	Number   int
	Log      string
	Region   string
	Sequence uint64
	At       time.Duration // since the history's origin; 0: seen in what is stored
	Text     string
}

// String is one line for people.
func (v Violation) String() string {
	s := fmt.Sprintf("invariant %d", v.Number)
	if v.Log != "" {
		s += ", " + v.Log
	}
	if v.Region != "" {
		s += " in " + v.Region
	}
	if v.Sequence > 0 {
		s += fmt.Sprintf(", sequence %d", v.Sequence)
	}
	if v.At > 0 {
		s += fmt.Sprintf(", at %.3f s", v.At.Seconds())
	}
	return s + ": " + v.Text
}

// Verdict is what Check found.
type Verdict struct {
	Violations []Violation // by number, log, region, sequence, time; at most maxEach per number
	Broken     map[int]int // how many there were, by number
	Judged     map[int]int // how often each promise was put to the test; one that is missing here was not
}

// Holds reports whether no promise was broken.
func (v *Verdict) Holds() bool { return len(v.Violations) == 0 }

// maxEach bounds the violations that are listed of one number.
const maxEach = 100

// Limits are the bounds within which figures may be off.
type Limits struct {
	// Slack is how late a sample may have been taken, and a message may be on its way.
	Slack time.Duration
	// Settle is how long after a fault begins or ends regions may take to notice.
	Settle time.Duration
	// Young is how old the copy of an idle log may be whose link is up; at least Settle.
	Young time.Duration
	// SlopeOff is how far from 1 the slope of a lag under a cut may be.
	SlopeOff float64
	// Refusal is how long a refusal may take while a disk is broken.
	Refusal time.Duration
	// HeapBytes bounds the heap of a node; 0: not judged.
	HeapBytes float64
	// AckP99 bounds 99 of 100 local acks while mirrors catch up; 0: not judged.
	AckP99 time.Duration
	// Silence is the longest time between heartbeats on a slow line; 0: not judged.
	Silence time.Duration
	// Hiccup is how long a busy machine may take a link down, and keep a region from taking
	// records, while gossip is cut; 0: not at all. A change of home or epoch is never excused.
	Hiccup time.Duration
	// Quotas are those that the run's federation declares; none: 21 is not judged.
	Quotas []Quota
}

// Usual are the limits of a node at this pace.
func Usual(pace regions.Pace) Limits {
	beat := pace.Of(time.Second)
	return Limits{
		Slack: time.Second, Settle: 3*beat + time.Second, SlopeOff: 0.1, Refusal: 3 * time.Second,
		HeapBytes: 1 << 30, AckP99: 2 * time.Second, Silence: 3*beat + time.Second,
	}
}

// Check judges a history and the shelves of all regions. Shelves are read when the run
// is over; copies are compared with their homes only if the history says Converged.
// The begin of a fault must be noted when it holds, its end before it is healed. Check
// does not change its arguments.
func Check(h *ledger.History, final []ledger.Shelf, limits Limits) *Verdict {
	e := newEvidence(h, final, limits)
	for _, judge := range []func(*evidence){
		whole, promises, durable, once, resident, noOffer, order, fenced, slope, lagTruth, idle, gaps,
		revision, counted, quotas, memory, heartbeat, catchUp, oneWay, diskTold, converged, noLeak, synced, crossed, gossipAlone,
	} {
		judge(e)
	}
	slices.SortStableFunc(e.verdict.Violations, func(a, b Violation) int {
		return cmp.Or(cmp.Compare(a.Number, b.Number), cmp.Compare(a.Log, b.Log), cmp.Compare(a.Region, b.Region),
			cmp.Compare(a.Sequence, b.Sequence), cmp.Compare(a.At, b.At))
	})
	return e.verdict
}

// whole: a history that had no room for something vouches for nothing.
func whole(e *evidence) {
	e.judged(Whole)
	if n := e.history.Dropped; n > 0 {
		e.broken(Violation{Number: Whole, Text: fmt.Sprintf("%d events were dropped", n)})
	}
}
