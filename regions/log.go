package regions

import (
	"context"
	"time"

	"domicile/api"
)

// Head is what is known of a log's durable end. Nothing beyond it is mirrored,
// read or counted.
type Head struct {
	Incarnation string
	Epoch       api.Epoch
	Term        uint64    // writer term
	Sequence    uint64    // last durable sequence; 0: none yet
	Time        time.Time // ingest time of that record; zero: none yet
	First       uint64    // first sequence still stored; Sequence+1 when nothing is
	Records     uint64    // data records still stored
	Bytes       uint64    // their size on disk, as the broker counts it
	Unsure      bool      // where the end is, is not known yet: nothing may be read or mirrored
}

// GapKind types what stands in place of records that are not in a copy.
type GapKind string

// The kinds of gap. The ledger sum is over these, mirrored and pending.
const (
	Withheld GapKind = "withheld" // the policy of either side says no
	Expired  GapKind = "expired"  // retention at the home took it first
	Purged   GapKind = "purged"
	Erased   GapKind = "erased"
	Void     GapKind = "void"    // beyond the cut of an epoch
	Damaged  GapKind = "damaged" // a disk lost the records, or no longer holds what was stored
)

// Gap is a typed hole in a copy: sequences From to To, both included, are not here,
// and why. It names no id and no key.
type Gap struct {
	Kind     GapKind
	From, To uint64
	Code     api.Code // why, when policy withheld it
	Side     string   // "egress" or "ingress", when policy withheld it
	Revision string   // of the policy that decided
}

// Count is the number of sequences the gap covers.
func (g Gap) Count() uint64 { return g.To - g.From + 1 }

// Item is one step of a log in order: a data record, or a gap.
type Item struct {
	Sequence uint64 // of the record; of a gap: its last sequence
	Epoch    api.Epoch
	Term     uint64
	Time     time.Time // ingest time, stamped by the log's writer at its home
	Revision string    // policy revision that admitted the record at its home
	Record   api.Record
	Gap      *Gap // nil for a data record
}

// Size is the number of bytes an item counts for in batches and credits.
func (i *Item) Size() int {
	if i.Gap != nil {
		return 64
	}
	return i.Record.Size() + 96
}

// Ledger is what became of every sequence of a log up to a copy's cursor. Sum must
// equal the cursor; with what is pending it equals the head.
type Ledger struct {
	Mirrored, Withheld, Expired, Purged, Erased, Void, Damaged uint64
}

// Sum is the number of sequences accounted for.
func (l Ledger) Sum() uint64 {
	return l.Mirrored + l.Withheld + l.Expired + l.Purged + l.Erased + l.Void + l.Damaged
}

// Add counts one item.
func (l *Ledger) Add(i *Item) {
	if i.Gap == nil {
		l.Mirrored++
		return
	}
	switch i.Gap.Kind {
	case Withheld:
		l.Withheld += i.Gap.Count()
	case Expired:
		l.Expired += i.Gap.Count()
	case Purged:
		l.Purged += i.Gap.Count()
	case Erased:
		l.Erased += i.Gap.Count()
	case Void:
		l.Void += i.Gap.Count()
	case Damaged:
		l.Damaged += i.Gap.Count()
	}
}

// Cursor is how far a copy has come: the last item stored, durably. The zero
// Sequence means nothing yet; then Incarnation is "" unless the copy was opened.
type Cursor struct {
	Incarnation string
	Epoch       api.Epoch
	Sequence    uint64
	Time        time.Time // ingest time of the last item; zero: none yet
	Ledger      Ledger
}

// Draft is a record on its way into its home log, after it was judged.
type Draft struct {
	Record   api.Record
	Revision string // policy revision that admitted it here
}

// Stored is what the log's writer did with a draft. Err is nil only when the record
// is durable at its home.
type Stored struct {
	Position  api.Cursor
	Term      uint64 // 0, with the epoch: not known, of a duplicate that retention took since
	Time      time.Time
	Done      api.Durability
	Duplicate bool
	Revision  string   // of the decision the stored record was admitted under
	Copies    []string // other regions on whose disks it is as well, where the topic waits for them
	// Unconfirmed: this region went on as the log's home while the placement authority was
	// out of reach; a forced failover would make the record void.
	Unconfirmed bool
	Err         error
}

// ReadLimit bounds one read, by count and by bytes. At least one item is returned
// if there is any, so a record above Bytes cannot block a reader for ever.
type ReadLimit struct {
	Records int
	Bytes   int
}

// Reader walks a log in order from a sequence. It holds resources; Close frees
// them. A Reader is used by one goroutine at a time.
type Reader interface {
	// Next returns the items that follow, at most limit, none beyond the durable
	// watermark. It returns an empty slice at once when there is nothing. Sequences
	// that retention took come as one Expired gap, those whose records the disk lost or
	// changed as a Damaged one. Items and what they point to
	// belong to the caller.
	Next(ctx context.Context, limit ReadLimit) ([]Item, error)
	Close()
}

// Log is the readable side of any log in this region, home or copy. All methods are
// safe for concurrent use.
type Log interface {
	ID() api.LogID
	Head() Head
	// Changed returns a channel that is closed when the durable head has moved past
	// sequence after (at once if it already has).
	Changed(after uint64) <-chan struct{}
	// Reader opens a reader whose first item is the one after sequence after.
	Reader(ctx context.Context, after uint64) (Reader, error)
	// After is the last sequence whose ingest time is before t: a reader opened
	// after it starts at t.
	After(ctx context.Context, t time.Time) (uint64, error)
}

// HomeLog is a log this region owns: the one place where records get their
// sequence.
type HomeLog interface {
	Log
	// Append hands a draft to the log's writer and returns. done is called exactly
	// once, from another goroutine, when the outcome is known, at the latest when
	// the append deadline has passed; it must not block. When the writer's bounds
	// are reached done is called with Overloaded.
	Append(d Draft, done func(Stored))
	// ClosedInstant is the instant up to which the log is complete: no record with
	// an earlier ingest time will ever follow the durable head. Call it before Head.
	ClosedInstant() time.Time
}

// CopyLog is this region's copy of a log whose home is elsewhere.
type CopyLog interface {
	Log
	Cursor() Cursor
	// Apply appends items exactly once, in order, and returns when they are durable.
	// The first item must start at the cursor's sequence + 1, else it fails with
	// ErrOutOfOrder and nothing is stored. incarnation must be the copy's own, or
	// anything while the copy is empty.
	Apply(ctx context.Context, incarnation string, items []Item) (Cursor, error)
}
