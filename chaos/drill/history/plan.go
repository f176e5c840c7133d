package history

import (
	"slices"
	"time"
)

// Plan is what the drill set out to do, everything resolved.
type Plan struct {
	Isolate   string        `json:"isolate"`
	Peers     []string      `json:"peers"`
	Planes    []string      `json:"planes"`
	Direction string        `json:"direction"`      // both | in | out
	Fault     string        `json:"fault"`          // cut | blackhole
	Gate      string        `json:"gate,omitempty"` // process | nftables; "": process
	Baseline  time.Duration `json:"baseline_ns"`
	For       time.Duration `json:"for_ns"`
	Lease     time.Duration `json:"lease_ns"`
	Topics    []Topic       `json:"topics"`
	Legal     []Boundary    `json:"boundaries"`
	Expect    []Expectation `json:"expect"`
	Exercise  []string      `json:"exercise,omitempty"` // topics that really move
	By        string        `json:"by,omitempty"`       // who asked for it
	Approved  []string      `json:"approved,omitempty"`
	Reason    string        `json:"reason,omitempty"` // ticket, in words
	Policies  []Revision    `json:"policies,omitempty"`
	Digest    string        `json:"digest,omitempty"` // of the plan's file
	Bounds    Bounds        `json:"bounds"`
}

// Boundary is the regions that form one legal area.
type Boundary struct {
	Name    string   `json:"name"`
	Regions []string `json:"regions"`
}

// Global is the residency of records that are bound to no boundary.
const Global = "global"

// MayRest reports whether records of a residency may rest in a region, by the map alone.
func (p *Plan) MayRest(residency, region string) bool {
	return residency == Global || slices.ContainsFunc(p.Legal, func(b Boundary) bool { return b.Name == residency && slices.Contains(b.Regions, region) })
}

// Rests lists the regions in which a record of a residency is once it has been accepted into
// a log and the mirrors have caught up: by the map alone, apart from the policy.
func (p *Plan) Rests(log, residency string) []string {
	var list []string
	for _, t := range p.Topics {
		for _, l := range t.Logs {
			if l.Log != log {
				continue
			}
			for _, region := range append([]string{l.Home}, l.Copies...) {
				if p.MayRest(residency, region) {
					list = append(list, region)
				}
			}
		}
	}
	return list
}

// Revision is a policy in force in a region.
type Revision struct {
	Region   string `json:"region"`
	Revision string `json:"revision"`
}

// Bounds are how far figures may be off before the drill fails.
type Bounds struct {
	Busy  time.Duration `json:"busy_ns"`  // a lag against the oracle, while records flow
	Idle  time.Duration `json:"idle_ns"`  // while none do
	Clock time.Duration `json:"clock_ns"` // how far below the oracle a lag may be
	Beat  time.Duration `json:"beat_ns"`  // time between two marks on a link
	See   time.Duration `json:"see_ns"`   // within which both sides see the cut
	Catch time.Duration `json:"catch_ns"` // within which copies have caught up after the heal
}

// Topic is one topic as it is declared.
type Topic struct {
	Name      string        `json:"name"`
	Resident  []string      `json:"resident,omitempty"` // boundaries that its records may be bound to; none: all are global
	Mode      string        `json:"mode"`               // never | manual
	Targets   []string      `json:"targets,omitempty"`
	RPO       time.Duration `json:"rpo_ns,omitempty"`
	RTO       time.Duration `json:"rto_ns,omitempty"`
	Isolation string        `json:"isolation,omitempty"` // accept | fence_after …
	Route     string        `json:"route,omitempty"`     // refuse | within_boundary: for records whose home is lost
	Producers string        `json:"producers,omitempty"` // what they get when the home is lost, as declared
	Consumers string        `json:"consumers,omitempty"` // wait | stop | read_copy …
	Owner     string        `json:"owner,omitempty"`     // who decides meanwhile
	Text      string        `json:"text,omitempty"`      // the declaration's own words
	Logs      []Log         `json:"logs"`
}

// Log is one log of a topic, and where it is.
type Log struct {
	Log    string   `json:"log"`
	Home   string   `json:"home"`
	Copies []string `json:"copies,omitempty"` // regions with a copy
}

// Expectation is what the failover engine has to answer.
type Expectation struct {
	Topic  string `json:"topic"`
	Log    string `json:"log,omitempty"`    // "": every log of the topic
	Target string `json:"target,omitempty"` // "": every region asked about
	Moment string `json:"moment"`           // one of the Moment constants, or Always
	Want   string `json:"want"`             // Allowed or Denied
	Why    string `json:"why,omitempty"`    // of a denial: residency | lag | declared …, as Probe.Why; "": any
}

// The moments of a cut at which permissions are asked, and the answers.
const (
	Before     = "before" // the cut
	AtCut      = "0"
	HalfRPO    = "rpo/2"
	AtRPO      = "rpo"
	TwiceRPO   = "2rpo"
	AfterHeal  = "healed"
	Always     = "every" // in an expectation: whenever it is asked
	Allowed    = "allowed"
	Denied     = "denied"
	WhyResides = "residency"
	WhyLag     = "lag"
)

// Figure is one number that was predicted, or measured. Those that the report measures
// itself have the names below.
type Figure struct {
	Name   string  `json:"name"`
	Topic  string  `json:"topic,omitempty"`
	Log    string  `json:"log,omitempty"`
	Target string  `json:"target,omitempty"`
	Value  float64 `json:"value"`
	Unit   string  `json:"unit"`            // s | records | bytes
	Basis  string  `json:"basis,omitempty"` // what it was taken from, and how much of the time that covers
}

// Names of figures.
const (
	LagAtHeal     = "lag at heal"          // s; of a log towards a target
	PendingAtHeal = "pending at heal"      // records of the drill's producers; of a log towards a target
	RefusedReal   = "real records refused" // of a topic, other people's
	DelayedReal   = "real records delayed"
	RefusedOwn    = "own records refused"  // of a topic, the drill's
	CatchUpTime   = "catch-up"             // s
	RoomAtHeal    = "room to loss at heal" // s; until retention overtakes a log's copy in a target, or the log refuses
)
