package history

import (
	"time"

	"domicile/api"
)

// Told is what one producer of the drill was told of some of its records, which share
// everything but their rows.
type Told struct {
	Producer  string         `json:"producer"` // its name; a record is its producer and its number
	Asked     string         `json:"asked"`    // the region whose door was asked
	Topic     string         `json:"topic"`
	Residency string         `json:"residency"` // global, or the boundary that the records are bound to
	Size      int            `json:"size"`      // bytes, each
	Outcome   Answer         `json:"outcome"`
	Code      api.Code       `json:"code,omitempty"` // of a refusal or an unknown outcome
	Log       string         `json:"log,omitempty"`  // of an ack, like all that follow
	Region    string         `json:"stored,omitempty"`
	Epoch     string         `json:"epoch,omitempty"`
	Durable   api.Durability `json:"durable,omitempty"`
	Drill     string         `json:"drill,omitempty"` // the drill that the answer says is on
	Rows      []Row          `json:"rows"`
}

// Answer is what a producer was told.
type Answer string

// The answers.
const (
	Acked     Answer = "acked"
	NotStored Answer = "refused" // by a code that says nothing was stored
	Unknown   Answer = "unknown"
)

// Row is one record of a Told.
type Row struct {
	Number   uint64        `json:"n"`
	Begin    time.Duration `json:"b"` // since the origin: handed in
	End      time.Duration `json:"e"` // answered
	Sequence uint64        `json:"s,omitempty"`
	Repeat   bool          `json:"r,omitempty"` // acknowledged as a duplicate
}

// Heard is what one reader of the drill got at once of the drill's own records.
type Heard struct {
	Reader string `json:"reader"` // one stream has one name
	Topic  string `json:"topic"`
	Place  string `json:"place,omitempty"` // the boundary that its certificate puts it in
	Runs   []Run  `json:"runs,omitempty"`
	Ended  string `json:"ended,omitempty"` // why the reader had to begin again
	// What must never be: records with another body than was published, and records
	// whose sequence is not above the one before it.
	Altered    uint64 `json:"altered,omitempty"`
	Disordered uint64 `json:"disordered,omitempty"`
}

// Run is a row of records of one producer in one log, without a gap in their numbers.
type Run struct {
	Producer  string `json:"producer"`
	Residency string `json:"residency"`
	Log       string `json:"log"`
	Epoch     string `json:"epoch,omitempty"`
	From      uint64 `json:"from"` // numbers, both included
	To        uint64 `json:"to"`
	First     uint64 `json:"first"` // sequence of From
	Last      uint64 `json:"last"`  // sequence of To
}

// Gauge is what a region says of one log's lag. A nil figure is not known.
type Gauge struct {
	Log       string        `json:"log"`
	Home      string        `json:"home"`
	Target    string        `json:"target"`
	State     string        `json:"state"`
	Cause     string        `json:"cause,omitempty"`
	Asked     time.Duration `json:"asked_ns"`              // since the origin: the question left; the answer came at Event.At
	Staleness *float64      `json:"staleness_s,omitempty"` // of the target's copy
	Error     float64       `json:"error_s,omitempty"`     // ± of Staleness
	Trusted   bool          `json:"trusted"`               // clocks measured and within bounds
	Exposure  *float64      `json:"exposure_s,omitempty"`  // at the home
	Records   *uint64       `json:"records,omitempty"`     // pending
	Bytes     *uint64       `json:"bytes,omitempty"`
	Knowledge *float64      `json:"knowledge_s,omitempty"` // since the other side was heard
	Head      uint64        `json:"head,omitempty"`
	Cursor    uint64        `json:"cursor,omitempty"`
}

// Silent is a question to a region that was not answered.
type Silent struct {
	Asked time.Duration `json:"asked_ns"` // since the origin
	Text  string        `json:"text"`
}

// Link is what a region says of a link.
type Link struct {
	Peer      string   `json:"peer"`
	State     string   `json:"state"` // up | down | unknown
	Direction string   `json:"direction,omitempty"`
	Reason    string   `json:"reason,omitempty"`
	Fault     string   `json:"fault,omitempty"`    // what a fault gate does to it
	Offset    *float64 `json:"offset_s,omitempty"` // of the peer's clock
	Error     *float64 `json:"offset_error_s,omitempty"`
}

// Probe is one answer of the failover engine, which executed nothing.
type Probe struct {
	Topic    string        `json:"topic"`
	Log      string        `json:"log"`
	Home     string        `json:"home"`
	Target   string        `json:"target"`
	Kind     string        `json:"kind"`     // planned | forced
	Moment   string        `json:"moment"`   // of the plan
	Since    time.Duration `json:"since_ns"` // since the cut; negative before
	Allowed  bool          `json:"allowed"`
	Rule     string        `json:"rule,omitempty"` // that denies
	Code     api.Code      `json:"code,omitempty"`
	Why      string        `json:"why,omitempty"` // of a denial: residency | lag | declared | authority | unknown …
	Text     string        `json:"text,omitempty"`
	Span     *float64      `json:"span_s,omitempty"`  // what would be lost at most
	Records  *uint64       `json:"records,omitempty"` // likewise
	Revision string        `json:"revision,omitempty"`
}

// Move is where a move that the drill executes has come.
type Move struct {
	Topic string  `json:"topic"`
	Log   string  `json:"log"`
	Kind  string  `json:"kind"`  // planned | forced
	Step  string  `json:"step"`  // one of the Move constants
	Back  bool    `json:"back"`  // the failback
	Home  string  `json:"home"`  // from
	To    string  `json:"to"`    // a region
	Epoch string  `json:"epoch"` // the log's, at this step
	Plan  string  `json:"plan,omitempty"`
	Proof string  `json:"proof,omitempty"` // how the old home is known to have stopped
	Cut   *uint64 `json:"cut,omitempty"`   // the last sequence that stands
	Text  string  `json:"text,omitempty"`
	// People who have approved the plan, as the authority has them: name (role).
	Approved []string `json:"approved,omitempty"`
}

// The steps of a move.
const (
	MoveAsked   = "asked"   // by the controller
	MoveDecided = "decided" // begun by the authority
	MoveFenced  = "fenced"  // the old home is known to have stopped
	MoveCut     = "cut"     // where the old epoch ends is decided
	MoveOpen    = "open"    // the new home takes records
	MoveRefused = "refused"
	MoveAborted = "aborted"
)

// Loss is a region's own report of what a forced move left behind.
type Loss struct {
	Log     string    `json:"log"`
	By      string    `json:"by"`
	Version int       `json:"version"` // 1: at the cut; 2: after the old home's return
	Epoch   string    `json:"epoch"`   // that ended
	Cut     uint64    `json:"cut"`
	AtMost  *uint64   `json:"at_most,omitempty"`
	Missing []Range   `json:"missing,omitempty"` // sequences of records beyond the cut
	Unknown []Range   `json:"unknown,omitempty"`
	Bytes   *uint64   `json:"bytes,omitempty"`
	Oldest  time.Time `json:"oldest,omitzero"` // stamp of the first that is missing
	Signed  bool      `json:"signed"`          // and the signature verified
}

// Range is a run of sequences, both included.
type Range struct {
	From uint64 `json:"from"`
	To   uint64 `json:"to"`
}

// Reconcile is one log in one region after everything was healed.
type Reconcile struct {
	Log         string `json:"log"`
	Home        string `json:"home"`
	Head        uint64 `json:"head"`   // at the home
	Cursor      uint64 `json:"cursor"` // of this region's copy; at the home, its head
	Mirrored    uint64 `json:"mirrored"`
	Withheld    uint64 `json:"withheld"`
	Expired     uint64 `json:"expired"`
	Purged      uint64 `json:"purged"`
	Erased      uint64 `json:"erased"`
	Void        uint64 `json:"void"`
	Damaged     uint64 `json:"damaged"`
	Unexplained int64  `json:"unexplained"`      // what none of these accounts for
	Digest      string `json:"digest,omitempty"` // of what is there, where it was computed
	Text        string `json:"text,omitempty"`
}

// Scan is a search for the marks of the drill's resident records in files: outside their
// boundary, or at home, where they have to be found.
type Scan struct {
	Where string `json:"where"` // which files
	Files uint64 `json:"files"`
	Bytes uint64 `json:"bytes"`
	Older uint64 `json:"older,omitempty"` // files that were last changed before the drill, and not read
	Sown  uint64 `json:"sown"`            // marks that were looked for
	Hits  uint64 `json:"hits"`            // outside: occurrences of any; at home: marks that were found
	Home  bool   `json:"home"`
	Text  string `json:"text,omitempty"`
	// Beyond is what of that node could not be looked through, in words.
	Beyond []string `json:"beyond,omitempty"`
}
