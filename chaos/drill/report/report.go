package report

import (
	"time"

	"domicile/chaos/drill/history"
)

// Version is the version of a report as JSON.
const Version = 1

// Verdict is what came of a drill.
type Verdict string

// The verdicts.
const (
	Pass         Verdict = "pass"
	Fail         Verdict = "fail"         // an expectation or a promise was not kept
	Uncontrolled Verdict = "uncontrolled" // the cut ended because a lease ran out, or nobody knows how
	Incomplete   Verdict = "incomplete"   // ended early, or the history is not whole: it proves nothing as a whole
	Refused      Verdict = "refused"      // nothing was cut
)

// Report is everything that a drill showed. Durations are nanoseconds, offsets are since
// Began on the controller's clock. A nil pointer is not known.
type Report struct {
	Version    int       `json:"version"`
	Drill      string    `json:"drill"`
	Federation string    `json:"federation"`
	Controller string    `json:"controller"`
	Began      time.Time `json:"began"`
	// Simulated is of a forecast in virtual time, of which nothing is evidence; nil: a real drill.
	Simulated *history.Simulated `json:"simulated,omitempty"`
	Took      time.Duration      `json:"took_ns"`
	Verdict   Verdict            `json:"verdict"`
	Line      string             `json:"line"` // the verdict in one sentence
	Source    Source             `json:"history"`
	Plan      *history.Plan      `json:"plan"`
	Cut       *Cut               `json:"cut"`

	Checks    []Check      `json:"checks"`
	Expected  []Expected   `json:"expectations"`
	Moments   []Moment     `json:"moments"`
	Matrix    []Row        `json:"matrix"`
	Lags      []Lag        `json:"lags"`
	Sight     []Sight      `json:"sight"`
	Behind    []Behind     `json:"behind"`
	Moves     []Move       `json:"moves"`
	Degraded  []Degraded   `json:"degraded"`
	Figures   []Figure     `json:"figures"`
	Reconcile []Reconciled `json:"reconcile"`
	Scans     []Scan       `json:"scans"`
	Phases    []Phase      `json:"phases"`
	Notes     []Note       `json:"notes"` // stops, and faults outside the plan
	Unproven  []string     `json:"not_proven"`
}

// Source is the history that the report was made from.
type Source struct {
	Chain   string `json:"chain"` // hash of its last line
	Events  int    `json:"events"`
	Torn    bool   `json:"torn"`
	Closed  bool   `json:"closed"`
	Dropped uint64 `json:"dropped"`
}

// Whole reports whether nothing of the history is missing, as far as it can tell.
func (s *Source) Whole() bool { return !s.Torn && s.Closed && s.Dropped == 0 }

// Cut is when the fault was there. It began and ended at some moment within the bounds.
type Cut struct {
	From   time.Duration `json:"from_ns"`       // not before
	Surely time.Duration `json:"surely_ns"`     // from here on it certainly held
	Until  time.Duration `json:"until_ns"`      // up to here it certainly held
	Gone   time.Duration `json:"gone_ns"`       // from here on it certainly did not
	Lapsed bool          `json:"lapsed"`        // it ended because a lease ran out
	Why    string        `json:"why,omitempty"` // of Lapsed: how the first node was lost
}

// Held is how long it held at least.
func (c *Cut) Held() time.Duration { return c.Until - c.Surely }

// Check is one thing that has to hold whatever the plan expects.
type Check struct {
	Name   string `json:"name"`
	Judged int    `json:"judged"` // how often it was put to the test; 0: nothing was shown
	OK     bool   `json:"ok"`
	Text   string `json:"text"`
}

// Expected is one expectation for one log, target and moment, and what was answered.
type Expected struct {
	Topic  string `json:"topic"`
	Log    string `json:"log,omitempty"`
	Target string `json:"target,omitempty"`
	Moment string `json:"moment"`
	Want   string `json:"want"`
	Why    string `json:"why,omitempty"`
	Got    string `json:"got"` // in words
	Asked  int    `json:"asked"`
	OK     bool   `json:"ok"`
	Moot   bool   `json:"moot"` // the drill had moved the log before it could be asked
}

// Moment is one time at which permissions were asked.
type Moment struct {
	Name  string        `json:"name"`
	Since time.Duration `json:"since_ns"` // the cut, at the first answer
}

// Row is what may become of one log towards one target, over time.
type Row struct {
	Topic    string `json:"topic"`
	Log      string `json:"log"`
	Home     string `json:"home"`
	Target   string `json:"target"`
	Resident bool   `json:"resident"` // the topic holds records bound to a boundary
	Cells    []Cell `json:"cells"`    // one a moment of Report.Moments
}

// Cell is one answer; not Asked: nobody asked then.
type Cell struct {
	Asked   bool          `json:"asked"`
	Since   time.Duration `json:"since_ns"`
	Allowed bool          `json:"allowed"`
	Kind    string        `json:"kind,omitempty"`
	Why     string        `json:"why,omitempty"`
	Rule    string        `json:"rule,omitempty"`
	Text    string        `json:"text,omitempty"`
	Span    *float64      `json:"span_s,omitempty"`
}

// Lag is one log's lag towards one target, as the target said and as the oracle knows it.
type Lag struct {
	Log     string   `json:"log"`
	Home    string   `json:"home"`
	Target  string   `json:"target"`
	Parted  bool     `json:"parted"` // the cut lay between the two
	Busy    bool     `json:"busy"`   // records of the drill flowed when it began
	Points  []Point  `json:"points"`
	Samples int      `json:"samples"` // while the cut held
	Unknown int      `json:"unknown"` // of them, without a figure
	Judged  int      `json:"judged"`
	Late    int      `json:"late"`          // of them, where answer and oracle leave more room than the bound: shown is only that they were not too low or too high
	Under   float64  `json:"under_s"`       // the most that the figure was below the oracle
	Over    float64  `json:"over_s"`        // the most that it was above
	Off     float64  `json:"off_s"`         // the most that it can have been off, given what the oracle does not know
	Typical float64  `json:"typical_off_s"` // in the middle of all
	Blur    float64  `json:"oracle_blur_s"` // what the oracle does not know, at most
	Slope   *float64 `json:"slope"`         // seconds per second while cut off
	Most    *float64 `json:"most_s"`        // the last figure before the heal
}

// Point is one figure.
type Point struct {
	At      time.Duration `json:"at_ns"`
	Seconds *float64      `json:"s"`
	State   string        `json:"state,omitempty"`
}

// Sight is when one region saw that its link to another was down.
type Sight struct {
	Region string         `json:"region"`
	Peer   string         `json:"peer"`
	Within *time.Duration `json:"within_ns"` // since the cut began at the earliest; nil: never
	Flaps  int            `json:"flaps"`     // times it was up again while the cut held
}

// Behind is what a target lacked of a log at the end of the cut: what would have been lost
// if the log's home had died then and the log had moved. Only the drill's own records.
type Behind struct {
	Log     string         `json:"log"`
	Home    string         `json:"home"`
	Target  string         `json:"target"`
	Records uint64         `json:"records"`
	Bytes   uint64         `json:"bytes"`
	Oldest  *time.Duration `json:"oldest_ns"` // its age; nil: nothing lacks
	IDs     []IDs          `json:"ids"`
	Said    *uint64        `json:"said"` // pending as the home said last; other people's records included
}

// IDs is a row of records of one producer: their ids are its name, a dash and a number.
type IDs struct {
	Producer string `json:"producer"`
	From     uint64 `json:"from"`
	To       uint64 `json:"to"`
}

// Move is one executed move of a log.
type Move struct {
	Topic   string         `json:"topic"`
	Log     string         `json:"log"`
	Kind    string         `json:"kind"`
	Back    bool           `json:"back"`
	From    string         `json:"from"`
	To      string         `json:"to"`
	Text    string         `json:"text,omitempty"`
	People  []string       `json:"approved,omitempty"` // who have approved its plan
	Detect  *time.Duration `json:"detect_ns"`          // from the cut until somebody saw it
	Decide  *time.Duration `json:"decide_ns"`          // from the word until the authority had decided
	Fence   *time.Duration `json:"fence_ns"`           // until the old home was known to have stopped
	Open    *time.Duration `json:"open_ns"`            // until the new home was open
	First   *time.Duration `json:"first_ns"`           // until a producer had an ack of the new epoch
	RTO     *time.Duration `json:"rto_ns"`             // last ack of the old epoch to first ack of the new
	Limit   time.Duration  `json:"rto_declared_ns"`
	Bound   time.Duration  `json:"rpo_declared_ns"`
	Known   bool           `json:"loss_known"` // where the old epoch ended is known
	Lost    uint64         `json:"lost"`
	Bytes   uint64         `json:"bytes"`
	Oldest  *time.Duration `json:"oldest_ns"` // its age when the old home was known to have stopped, or else when the move was asked for
	IDs     []IDs          `json:"ids"`
	Reports []LossReport   `json:"reports"`
}

// LossReport is a region's own report held against the oracle.
type LossReport struct {
	Version int    `json:"version"`
	By      string `json:"by"`
	Signed  bool   `json:"signed"`
	Agrees  bool   `json:"agrees"`
	Text    string `json:"text"`
}

// Degraded is what producers of one kind of record got while the cut held.
type Degraded struct {
	Topic     string  `json:"topic"`
	Residency string  `json:"residency"`
	Asked     string  `json:"asked"`
	Home      string  `json:"home"`   // where these records rest
	Parted    bool    `json:"parted"` // the cut lay in between
	Declared  string  `json:"declared"`
	Acked     uint64  `json:"acked"`
	Refused   uint64  `json:"refused"`
	Unknown   uint64  `json:"unknown"`
	Codes     []Count `json:"codes"`
	OK        bool    `json:"ok"`
	Text      string  `json:"text"`

	several bool // homes, and the history does not say which
}

// Count is how often something was answered.
type Count struct {
	Name string `json:"name"`
	N    uint64 `json:"n"`
}

// Figure is one number, predicted and measured.
type Figure struct {
	Name      string   `json:"name"`
	Topic     string   `json:"topic,omitempty"`
	Log       string   `json:"log,omitempty"`
	Target    string   `json:"target,omitempty"`
	Unit      string   `json:"unit"`
	Predicted *float64 `json:"predicted"`
	Measured  *float64 `json:"measured"`
	Basis     string   `json:"basis,omitempty"`
}

// Reconciled is one log in one region at the end.
type Reconciled struct {
	Region string `json:"region"`
	OK     bool   `json:"ok"`
	history.Reconcile
}

// Scan is one search for marks of resident records.
type Scan struct {
	Region string `json:"region,omitempty"`
	OK     bool   `json:"ok"`
	history.Scan
}

// Phase is one phase as it went.
type Phase struct {
	Name   history.Phase  `json:"name"`
	Began  time.Duration  `json:"began_ns"`
	Took   *time.Duration `json:"took_ns"` // nil: it did not end
	Budget time.Duration  `json:"budget_ns,omitempty"`
	OK     bool           `json:"ok"`
	Text   string         `json:"text,omitempty"`
}

// Note is something that happened and was not planned.
type Note struct {
	At     time.Duration `json:"at_ns"`
	Kind   string        `json:"kind"` // stop | outside
	Region string        `json:"region,omitempty"`
	Text   string        `json:"text"`
}
