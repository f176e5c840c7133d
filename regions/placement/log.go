package placement

import (
	"slices"
	"time"

	"domicile/api"
)

// Status is where a log stands with its home.
type Status string

// The states of a log.
const (
	Active    Status = "ACTIVE"    // the home writes
	Moving    Status = "MOVING"    // a move is under way, the home still is the old one
	Opening   Status = "OPENING"   // the home is decided and has not reported that it writes
	Contested Status = "CONTESTED" // two authorities gave it two homes; both refuse
)

// Mode says whether a log may ever have another home.
type Mode string

// The modes. Automatic failover does not exist in this version.
const (
	Never  Mode = "never"
	Manual Mode = "manual"
)

// Isolation is what a home does that cannot reach the authority.
type Isolation string

// The two answers. FenceAfter gives up writing when the lease ends; Accept goes on, and
// a forced failover then means two histories, one of which will be void.
const (
	FenceAfter Isolation = "fence_after"
	Accept     Isolation = "accept"
)

// Terms are what a log's declaration says about moving it.
type Terms struct {
	Allowed    []string      // regions in which the log may rest, sorted
	Targets    []string      `json:",omitempty"` // regions it may be moved to, sorted
	Mode       Mode          //
	Isolation  Isolation     //
	FenceAfter time.Duration `json:",omitempty"` // length of the lease
	RPO        time.Duration `json:",omitempty"` // the most that a forced move may lose
	Approvals  int           `json:",omitempty"` // people, besides the one who asks, that a move needs
	Digest     string        // of the topic's declaration
	Address    string        `json:",omitempty"` // hash of the log's name: one incarnation of it is placed at a time; "" in declarations of older nodes
}

// Log is the placement of one log.
type Log struct {
	Incarnation string
	Terms       Terms
	Home        string
	Epoch       api.Epoch
	Status      Status
	History     []Ended      `json:",omitempty"` // epochs that ended, oldest first
	Held        *Tenure      `json:",omitempty"` // what the home may still go by, until it opens under changed terms
	Op          *Op          `json:",omitempty"` // the move under way, or that waits to be opened
	Divergences []Divergence `json:",omitempty"`
	Refused     api.Code     `json:",omitempty"` // why the home did not open, if it said so
	Rival       *Log         `json:",omitempty"` // the other claim, while contested
	Version     uint64       // of the state when this log last changed
	Reason      string       `json:",omitempty"` // of that change
	Actor       string       `json:",omitempty"` // who made it
}

// Clone is a copy that shares nothing with l.
func (l Log) Clone() Log {
	l.Terms.Allowed = slices.Clone(l.Terms.Allowed)
	l.Terms.Targets = slices.Clone(l.Terms.Targets)
	l.History = slices.Clone(l.History)
	l.Divergences = slices.Clone(l.Divergences)
	if l.Op != nil {
		op := l.Op.clone()
		l.Op = &op
	}
	if l.Held != nil {
		h := *l.Held
		l.Held = &h
	}
	if l.Rival != nil {
		r := l.Rival.Clone()
		l.Rival = &r
	}
	return l
}

// Tenure is what a home goes by while it is cut off.
type Tenure struct {
	Isolation  Isolation
	FenceAfter time.Duration `json:",omitempty"`
}

// Tenure is the longest that the home may go on writing by itself: by the present terms,
// or by those it knew before and may not have seen changed.
func (l *Log) Tenure() Tenure {
	t := Tenure{l.Terms.Isolation, l.Terms.FenceAfter}
	if l.Held == nil {
		return t
	}
	if l.Held.Isolation == Accept {
		t.Isolation = Accept
	}
	t.FenceAfter = max(t.FenceAfter, l.Held.FenceAfter)
	return t
}

// leased reports whether the home may renew. From the beginning of a forced move on its time
// must run out; a planned one only its own marker carries on, and until it is there the home
// writes.
func (l *Log) leased() bool {
	if l.Terms.Isolation != FenceAfter {
		return false
	}
	waits := l.Status == Moving && l.Op.Kind == Planned && l.Op.Step == Begun
	return waits || l.Status == Active || l.Status == Opening
}

// Kind is what sort of move an operation is.
type Kind string

// The kinds. Both go through the same table.
const (
	Planned Kind = "planned" // the home takes part; nothing is lost
	Forced  Kind = "forced"  // the home does not, or not surely
)

// Step is how far a move has come.
type Step string

// The steps, in order.
const (
	Begun   Step = "begun"
	Proven  Step = "proven"  // the old home can't write any more, or its writing is accepted as void
	Cut     Step = "cut"     // where the old epoch ends is fixed
	Ready   Step = "ready"   // the target has everything up to the cut and takes nothing beyond it
	Flipped Step = "flipped" // the target is the home and has not opened yet
)

// Op is a move.
type Op struct {
	ID         string
	Kind       Kind
	Target     string
	Step       Step
	Plan       string // hash of the plan that people saw and approved
	Reason     string
	Actor      string
	Renewed    uint64     `json:",omitempty"` // index of the home's last renewal before the move began
	Accepted   Loss       `json:",omitzero"`  // the most that may be lost; nil parts: no bound was named
	Unopened   bool       `json:",omitempty"` // the home that it leaves had not opened the log, and must not any more
	Divergent  bool       `json:",omitempty"` // the old home may go on writing what will be void
	Attested   bool       `json:",omitempty"` // two people sign that the old home is stopped; the target says so once it has checked them
	Overrides  []string   `json:",omitempty"` // rules set aside, by id
	Proof      *Proof     `json:",omitempty"`
	Cut        uint64     `json:",omitempty"` // the last sequence that stands
	SafeTime   time.Time  `json:",omitzero"`  // all records stamped before it are there
	Lost       *Loss      `json:",omitempty"` // bound of what is beyond the cut
	Compared   bool       `json:",omitempty"` // the target held its copy against the marker's sum, and has the same
	Approvals  []Approval `json:",omitempty"`
	BeganIndex uint64     // index of the entry that began it
}

// Lends reports whether regions give on to the target what their copies have beyond its own:
// while a forced move's home is known to have stopped, and the cut is not fixed, or is the
// home's own marker, which the target may not be able to reach at the home itself.
func (o *Op) Lends() bool {
	if o.Kind != Forced || o.Proof == nil {
		return false
	}
	return o.Step == Proven || o.Step == Cut && o.Proof.Kind == Marker
}

func (o Op) clone() Op {
	o.Overrides = slices.Clone(o.Overrides)
	o.Approvals = slices.Clone(o.Approvals)
	if o.Proof != nil {
		p := *o.Proof
		o.Proof = &p
	}
	o.Accepted = o.Accepted.clone()
	if o.Lost != nil {
		l := o.Lost.clone()
		o.Lost = &l
	}
	return o
}

// ProofKind is why the old home is held to have stopped.
type ProofKind string

// The proofs.
const (
	Marker   ProofKind = "marker"   // the home appended its FENCE marker; End is what it closes
	Lapsed   ProofKind = "lapsed"   // its lease has run out by the leader's own clock
	Diverges ProofKind = "accept"   // it may go on; what it writes beyond the cut is void
	Attested ProofKind = "attested" // people sign that it is stopped
)

// Proof is the evidence of one move.
type Proof struct {
	Kind      ProofKind
	End       uint64        `json:",omitempty"` // marker: the last sequence before it
	Sum       string        `json:",omitempty"` // marker: hash of what it closes, if the home has one
	Renewed   uint64        `json:",omitempty"` // lapsed: index of the renewal that it counts from
	Waited    time.Duration `json:",omitempty"` // lapsed: by the leader's clock
	Term      uint64        `json:",omitempty"` // lapsed: the leader's
	Statement string        `json:",omitempty"` // attested: hash of what was signed
}

// Loss bounds what a forced move leaves behind. A nil part is not known.
type Loss struct {
	Span    *time.Duration `json:",omitempty"`
	Records *uint64        `json:",omitempty"`
}

// None is the loss of nothing.
func None() Loss {
	span, records := time.Duration(0), uint64(0)
	return Loss{Span: &span, Records: &records}
}

func (l Loss) clone() Loss {
	if l.Span != nil {
		s := *l.Span
		l.Span = &s
	}
	if l.Records != nil {
		r := *l.Records
		l.Records = &r
	}
	return l
}

// Approval is one person's consent to a plan. Signed is what they signed; the authority
// keeps it and cannot judge it: home and target do, by their own trust.
type Approval struct {
	Actor  string
	Role   string
	Signed string `json:",omitempty"`
}

// MaxSigned bounds Approval.Signed, in bytes.
const MaxSigned = 8 << 10

// Ended is an epoch that is over.
type Ended struct {
	Epoch    api.Epoch
	Home     string
	End      uint64    // the last sequence that stands, if EndKnown
	EndKnown bool      //
	SafeTime time.Time `json:",omitzero"`
	How      How
	Proof    ProofKind `json:",omitempty"`
	Lost     *Loss     `json:",omitempty"`
	Compared bool      `json:",omitempty"` // the copy that took over had what the home's sum named
}

// What is said of a copy that took over, or is about to, beside the home's records.
const (
	ComparedSame = "same"
	NotCompared  = "not compared" // the home named nothing, or no longer what the copy has
)

// Comparison is ComparedSame or NotCompared for an epoch that a move ended by the home's own
// marker, "" for any other: nothing was there to be compared with.
func (e *Ended) Comparison() string {
	return comparison(e.Proof == Marker && (e.How == ByMove || e.How == ByForce), e.Compared)
}

// Comparison is the same of a move, once its target has caught up.
func (o *Op) Comparison() string {
	return comparison(o.Proof != nil && o.Proof.Kind == Marker && (o.Step == Ready || o.Step == Flipped), o.Compared)
}

func comparison(due, done bool) string {
	switch {
	case !due:
		return ""
	case done:
		return ComparedSame
	}
	return NotCompared
}

// How an epoch ended.
type How string

// The ways.
const (
	ByMove     How = "moved"
	ByForce    How = "forced"
	ByAbort    How = "aborted"
	ByFounding How = "dropped"  // its move was open when the authority was founded anew
	ByResolve  How = "resolved" // the log was contested, and this epoch's home won
	ByAlter    How = "altered"  // its terms changed what the home does while cut off
	AsLoser    How = "void"     // the log was contested, and this epoch lost: nothing of it stands
)

// Divergence is what a region holds beyond the end of an epoch.
type Divergence struct {
	Epoch  api.Epoch
	Region string
	From   uint64 // first and last sequence
	To     uint64
	Count  uint64
	Bytes  uint64
	Root   string // hash over the records' hashes
	Fate   Fate
}

// Fate says what became of a divergent tail.
type Fate string

// The fates.
const (
	Kept        Fate = "open"
	Republished Fate = "republished"
	Discarded   Fate = "discarded"
)
