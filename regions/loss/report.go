package loss

import (
	"encoding/hex"
	"fmt"
	"slices"
	"time"

	"domicile/api"
	"domicile/regions"
)

// The versions of a report.
const (
	AtCut  = 1 // made by the new home when it froze
	Rejoin = 2 // made by the old home when it came back
)

// Side is a region that owned the log, and in which epoch.
type Side struct {
	Region string    `json:"region"`
	Epoch  api.Epoch `json:"epoch"`
}

// Move is which forced move a report is about.
type Move struct {
	Federation  string `json:"federation"`
	Log         string `json:"log"`
	Incarnation string `json:"incarnation"`
	Op          string `json:"op"`
	Plan        string `json:"plan,omitempty"`
	Proof       string `json:"proof"` // why the old home was held to have stopped, or not
	Old         Side   `json:"old"`
	New         Side   `json:"new"`
	Cut         uint64 `json:"cut"`      // the last sequence that stands
	Compared    bool   `json:"compared"` // up to there the new home was compared with what the old one's marker named, and had the same
}

// Range is a run of sequences, both ends included.
type Range struct {
	From uint64 `json:"from"`
	To   uint64 `json:"to"`
}

func (r Range) count() uint64 { return r.To - r.From + 1 }

// Record is one record beyond the cut. Hash stands for its id.
type Record struct {
	Sequence uint64    `json:"sequence"`
	Hash     string    `json:"id_hash"`
	Time     time.Time `json:"ingested"`
	Bytes    uint32    `json:"bytes"`
}

// Holes counts sequences up to the cut that the new home has no record for.
type Holes struct {
	Kept    uint64 `json:"kept"`    // withheld from it by policy; not lost
	Damaged uint64 `json:"damaged"` // its disk could not be read there, or that of the copy they came from
}

// String says it in words.
func (h *Holes) String() string {
	switch {
	case h == nil:
		return "unknown"
	case *h == Holes{}:
		return "nothing"
	}
	return fmt.Sprintf("%d kept in the old home by policy, %d damaged", h.Kept, h.Damaged)
}

// Report is what a forced move left behind, in its first version. A nil pointer is not
// known.
type Report struct {
	Version int       `json:"version"`
	Move    Move      `json:"move"`
	By      string    `json:"by"` // the region that made it
	Made    time.Time `json:"made"`

	// SafeTime is on the old home's clock: every record stamped before it is here.
	SafeTime *time.Time `json:"safe_time"`
	Below    *Holes     `json:"missing_before_the_cut"`
	// Head is the last that was heard of where the old home's log ended; Heard when, and
	// Closed up to when it was complete by then, on the old home's clock.
	Head   *uint64    `json:"old_home_head"`
	Heard  *time.Time `json:"old_home_heard"`
	Closed *time.Time `json:"old_home_closed"`
	// Stopped is by when the old home wrote no more, on its own clock, as well as that is
	// known; nil: it may have gone on.
	Stopped    *time.Time    `json:"old_home_stopped"`
	ClockError time.Duration `json:"clock_error_ns"` // ± of Stopped

	Missing []Record          `json:"known_missing"` // by the hash of the id
	Kept    []Range           `json:"kept"`          // in the old home, by policy; not lost
	Gone    map[string]uint64 `json:"gone"`          // sequences that were no records any more, by kind
	Unknown []Range           `json:"unknown"`       // up to Head, and what comes behind it besides
	// AtMost bounds what is missing up to Head; what the old home stored behind it is
	// bounded by time alone.
	AtMost *uint64 `json:"at_most"`

	Truth *Truth `json:"truth,omitempty"` // version 2
}

// CutInput is what the new home knows when it has frozen.
type CutInput struct {
	Move       Move
	By         string
	Now        time.Time
	SafeTime   time.Time // zero: not known
	Stopped    time.Time // zero: not known
	ClockError time.Duration
	Below      *Holes // nil: not known
	// What was told of the tail; Heard is zero when nothing was.
	Head    uint64
	Heard   time.Time
	Closed  time.Time
	Entries []regions.TailEntry // in order, not overlapping
}

// Cut is the report at the cut.
func Cut(in CutInput) Report {
	r := Report{Version: AtCut, Move: in.Move, By: in.By, Made: in.Now, Missing: []Record{}, Kept: []Range{}, Unknown: []Range{}, Gone: map[string]uint64{}}
	r.SafeTime, r.Stopped, r.ClockError, r.Below = known(in.SafeTime), known(in.Stopped), in.ClockError, in.Below
	if in.Heard.IsZero() {
		return r
	}
	head := max(in.Head, in.Move.Cut)
	r.Head, r.Heard, r.Closed = &head, known(in.Heard), known(in.Closed)
	next := in.Move.Cut + 1
	unknown := func(to uint64) {
		if next <= to {
			r.Unknown = append(r.Unknown, Range{next, to})
		}
	}
	for _, e := range in.Entries {
		from := max(e.From, next)
		if e.Sequence < from || e.Sequence > head {
			continue
		}
		unknown(from - 1)
		r.take(e, Range{from, e.Sequence})
		next = e.Sequence + 1
	}
	unknown(head)
	most := uint64(len(r.Missing)) + Count(r.Unknown)
	r.AtMost = &most
	return r
}

func (r *Report) take(e regions.TailEntry, at Range) {
	switch e.Kind {
	case "":
		r.Missing = append(r.Missing, Record{Sequence: e.Sequence, Hash: hex.EncodeToString(e.ID[:]), Time: e.Time, Bytes: e.Bytes})
	case regions.Withheld:
		r.Kept = append(r.Kept, at)
	default:
		r.Gone[string(e.Kind)] += at.count()
	}
}

// Count is how many sequences the ranges hold.
func Count(ranges []Range) (n uint64) {
	for _, r := range ranges {
		n += r.count()
	}
	return n
}

// Span bounds in time what may be missing: stamped from SafeTime on and until the old
// home stopped. known is false while either end is not known.
func (r *Report) Span() (span time.Duration, known bool) {
	if r.SafeTime == nil || r.Stopped == nil {
		return 0, false
	}
	return max(0, r.Stopped.Sub(*r.SafeTime)), true
}

// Whole reports whether the bound by count holds for all that the old home ever stored:
// it was heard to be complete until it stopped.
func (r *Report) Whole() bool {
	return r.AtMost != nil && r.Closed != nil && r.Stopped != nil && !r.Stopped.After(*r.Closed)
}

func known(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC().Round(0)
	return &t
}

func within(ranges []Range, sequence uint64) bool {
	return slices.ContainsFunc(ranges, func(r Range) bool { return r.From <= sequence && sequence <= r.To })
}
