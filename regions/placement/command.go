package placement

import (
	"time"

	"domicile/api"
)

// Verb is what a command does.
type Verb string

// The verbs.
const (
	Found    Verb = "found"    // begin an authority, once, as its first command
	Voters   Verb = "voters"   // note who votes
	Declare  Verb = "declare"  // take a log in
	Alter    Verb = "alter"    // change its terms
	Retire   Verb = "retire"   // let it go, for good
	Renew    Verb = "renew"    // leases of whole regions
	Begin    Verb = "begin"    // a move
	Approve  Verb = "approve"  // a move
	Prove    Verb = "prove"    // that the old home has stopped
	FixCut   Verb = "cut"      // fix where the old epoch ends
	CaughtUp Verb = "caughtup" // the target has all up to the cut
	Frozen   Verb = "frozen"   // the target has all up to the cut, and this is what may be lost
	Flip     Verb = "flip"     // the target is the home
	Opened   Verb = "opened"   // the home writes
	Denied   Verb = "denied"   // the home's own policy forbids it to open
	Abort    Verb = "abort"    // the move; it ends the epoch all the same
	Diverged Verb = "diverged" // a region holds records beyond an epoch's end
	Closed   Verb = "closed"   // what became of them
	Meet     Verb = "meet"     // another authority's view of a log
	Resolve  Verb = "resolve"  // which claim wins
)

// Command is one entry of the authority's log. Which of the parts at the end are read
// follows from the verb.
type Command struct {
	Verb   Verb
	ID     string    `json:",omitempty"` // the same id and content get the same answer; other content is a conflict
	Log    string    `json:",omitempty"` // incarnation
	Expect api.Epoch `json:",omitzero"`  // the log's epoch as the sender knows it
	Op     string    `json:",omitempty"` // id of the begin that a step belongs to
	Region string    `json:",omitempty"` // that sends it
	Actor  string    `json:",omitempty"` // the person, or the region's worker
	Reason string    `json:",omitempty"`
	Plan   string    `json:",omitempty"` // hash of the plan

	Regions    []string    `json:",omitempty"` // renew, voters
	Founding   *Founding   `json:",omitempty"` // found
	Terms      *Terms      `json:",omitempty"` // declare, alter
	Home       string      `json:",omitempty"` // declare; resolve: the winner's
	Move       *Move       `json:",omitempty"` // begin
	Proof      *Proof      `json:",omitempty"` // prove
	Point      *Point      `json:",omitempty"` // cut, caughtup, frozen, opened
	Lost       *Loss       `json:",omitempty"` // frozen
	Approvals  []Approval  `json:",omitempty"` // approve: one; found, alter: all
	Divergence *Divergence `json:",omitempty"` // diverged, closed
	Other      *Log        `json:",omitempty"` // meet
	Winner     api.Epoch   `json:",omitzero"`  // resolve
	Denial     api.Code    `json:",omitempty"` // denied
}

// Founding is the beginning of an authority.
type Founding struct {
	Authority string // random
	Region    string `json:",omitempty"` // issuer of epochs; "": the first founding, by all voters
	Cache     []byte `json:",omitempty"` // snapshot of the state that it goes on from
}

// Move is what begin asks for.
type Move struct {
	Kind         Kind
	Target       string
	HomeDigest   string   // of the topic's declaration there; forced: "" if the home can't be asked
	TargetDigest string   //
	Accepted     Loss     `json:",omitzero"` // forced
	Divergent    bool     `json:",omitempty"`
	Attested     bool     `json:",omitempty"` // forced: people sign that the home is stopped
	Overrides    []string `json:",omitempty"`
}

// Point is a place in a log.
type Point struct {
	End      uint64    // the last sequence, 0 in an empty log
	SafeTime time.Time `json:",omitzero"`
	Sum      string    `json:",omitempty"` // caught up: the marker's sum, if the copy was held against it; "": it was not
}

// Result answers a command that was applied.
type Result struct {
	Version uint64    // of the state
	Epoch   api.Epoch `json:",omitzero"`
	Status  Status    `json:",omitempty"`
	Grants  []Grant   `json:",omitempty"` // renew
}
