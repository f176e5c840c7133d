package history

import (
	"errors"
	"time"
)

// Event is one thing that happened. Exactly one of the pointers is set.
type Event struct {
	N      uint64        `json:"n"`                // from 1, without gaps
	At     time.Duration `json:"at_ns"`            // since Head.Origin, on the controller's monotonic clock
	Wall   time.Time     `json:"wall"`             // UTC; for people, never for order
	Region string        `json:"region,omitempty"` // that it is about, or that said so; "": the controller
	Phase  Phase         `json:"phase,omitempty"`  // in which it was noted

	Head       *Head      `json:"head,omitempty"` // the first event, and only it
	Plan       *Plan      `json:"plan,omitempty"`
	Step       *Step      `json:"step,omitempty"`
	Gate       *Gate      `json:"gate,omitempty"`
	Told       *Told      `json:"told,omitempty"`
	Heard      *Heard     `json:"heard,omitempty"`
	Gauge      *Gauge     `json:"gauge,omitempty"`
	Link       *Link      `json:"link,omitempty"`
	Silent     *Silent    `json:"silent,omitempty"`
	Probe      *Probe     `json:"probe,omitempty"`
	Move       *Move      `json:"move,omitempty"`
	Loss       *Loss      `json:"loss,omitempty"`
	Stop       *Stop      `json:"stop,omitempty"`
	Outside    *Outside   `json:"outside,omitempty"`
	Prediction *Figure    `json:"prediction,omitempty"`
	Measured   *Figure    `json:"measured,omitempty"`
	Reconcile  *Reconcile `json:"reconcile,omitempty"`
	Scan       *Scan      `json:"scan,omitempty"`
	Close      *Close     `json:"close,omitempty"` // the last event, if the controller lived to write it
}

// Head says which drill this is.
type Head struct {
	Version    int       `json:"version"` // of the format; Create sets it
	Drill      string    `json:"drill"`   // its id
	Federation string    `json:"federation"`
	Controller string    `json:"controller"` // who wrote it: program and version
	Origin     time.Time `json:"origin"`     // wall time at which the offsets begin; Create sets it
	// Simulated is of a drill that was played in virtual time, on no federation that is used
	// for anything else: it is a forecast, and evidence of nothing. nil: it was a real one.
	Simulated *Simulated `json:"simulated,omitempty"`
}

// Simulated says how a drill was simulated.
type Simulated struct {
	At      time.Time `json:"at"`                // UTC, by the clock on the wall: the history's own times are virtual
	Solo    []string  `json:"solo,omitempty"`    // regions of three nodes, which were modelled as one
	Differs []string  `json:"differs,omitempty"` // in what else the model is not the federation, in sentences
}

// Phase is a part of a drill.
type Phase string

// The phases, in their order.
const (
	Preflight    Phase = "PREFLIGHT"
	Baseline     Phase = "BASELINE"
	Arm          Phase = "ARM"
	Cut          Phase = "CUT"
	ProbePhase   Phase = "PROBE"
	Exercise     Phase = "EXERCISE"
	Heal         Phase = "HEAL"
	CatchUp      Phase = "CATCHUP"
	Failback     Phase = "FAILBACK"
	ReconcileAll Phase = "RECONCILE"
	Search       Phase = "SEARCH"
	ReportPhase  Phase = "REPORT"
)

// Step is the begin or the end of a phase.
type Step struct {
	Phase  Phase         `json:"phase"`
	End    bool          `json:"end"`
	OK     bool          `json:"ok"`                  // of an end: the phase did what it is for
	Budget time.Duration `json:"budget_ns,omitempty"` // of a begin: how long it may take
	Text   string        `json:"text,omitempty"`
}

// Gate is what one node was asked to do with its fault gate, or was found to have done.
type Gate struct {
	Node  string        `json:"node,omitempty"`
	Act   string        `json:"act"` // one of the Act constants
	OK    bool          `json:"ok"`
	Asked time.Duration `json:"asked_ns,omitempty"` // since the origin: the request left; its answer came at Event.At
	Lease time.Duration `json:"lease_ns,omitempty"`
	Text  string        `json:"text,omitempty"`
}

// What a gate is asked to do, or does.
const (
	ActArm    = "arm"    // accept the drill
	ActCut    = "cut"    // the fault holds, under a lease
	ActRenew  = "renew"  // lengthen the lease
	ActHeal   = "heal"   // end the fault
	ActLapsed = "lapsed" // the lease ran out
	ActEnded  = "ended"  // somebody else had healed it
	ActStatus = "status" // asked and answered
)

// Stop is a condition that ended the drill early.
type Stop struct {
	Condition string  `json:"condition"`
	Value     float64 `json:"value"`
	Limit     float64 `json:"limit"`
	Text      string  `json:"text,omitempty"`
}

// Outside is a fault that the plan does not contain.
type Outside struct {
	Peer string `json:"peer,omitempty"`
	Text string `json:"text"`
}

// Close ends a history.
type Close struct {
	Outcome Outcome `json:"outcome"`
	Text    string  `json:"text,omitempty"`
	Dropped uint64  `json:"dropped"` // events that had no room; the writer sets it
}

// Outcome is how a drill ended.
type Outcome string

// The outcomes.
const (
	Completed    Outcome = "completed"    // every phase ran, the fault was ended by command
	Aborted      Outcome = "aborted"      // ended early: by people, a stop condition, or a fault outside the plan
	Uncontrolled Outcome = "uncontrolled" // a lease ran out: the controller had lost the drill
	Refused      Outcome = "refused"      // nothing was cut
)

var errKind = errors.New("an event holds exactly one thing")

// check refuses an event that says nothing, or two things at once.
func (e *Event) check() error {
	set := 0
	for _, there := range []bool{
		e.Head != nil, e.Plan != nil, e.Step != nil, e.Gate != nil, e.Told != nil, e.Heard != nil, e.Gauge != nil, e.Link != nil, e.Silent != nil,
		e.Probe != nil, e.Move != nil, e.Loss != nil, e.Stop != nil, e.Outside != nil, e.Prediction != nil, e.Measured != nil,
		e.Reconcile != nil, e.Scan != nil, e.Close != nil,
	} {
		if there {
			set++
		}
	}
	if set != 1 {
		return errKind
	}
	return nil
}
