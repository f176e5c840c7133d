package ledger

import (
	"cmp"
	"slices"
	"time"

	"domicile/api"
	"domicile/regions"
)

// History is all that happened to the clients of a federation in one run, in the
// order in which it was noted down.
type History struct {
	Origin  time.Time // wall time at which the monotonic offsets start
	Events  []Event
	Dropped int // events that came after the bound: with any, the history vouches for nothing
}

// Event is one thing that happened. Exactly one of the pointers is set. Nobody
// changes what they point to afterwards.
type Event struct {
	At    time.Duration `json:"at_ns"` // since Origin, on the monotonic clock
	Wall  time.Time     `json:"wall"`
	Entry *Entry        `json:"entry,omitempty"` // a publish attempt, noted when it ended
	Batch *Batch        `json:"batch,omitempty"`
	Lag   *LagSample    `json:"lag,omitempty"`
	Link  *LinkSample   `json:"link,omitempty"`
	Step  *Step         `json:"step,omitempty"`
	Gauge *Gauge        `json:"gauge,omitempty"`

	Advice   *Advice   `json:"advice,omitempty"`
	Crossing *Crossing `json:"crossing,omitempty"`
	Line     *Line     `json:"line,omitempty"`
	Placed   *Placed   `json:"placed,omitempty"`
	Counts   *Counts   `json:"counts,omitempty"`
}

// Batch is what one reader got at once.
type Batch struct {
	Reader string     `json:"reader"` // one stream has one name: a reader that starts anew gets another
	Region string     `json:"region"` // whose door it read at
	Topic  string     `json:"topic"`
	Items  []Got      `json:"items,omitempty"`
	Logs   []LogState `json:"logs,omitempty"` // what the batch said of each log
}

// Got is one record as a reader got it.
type Got struct {
	Log      string `json:"log"`
	Sequence uint64 `json:"sequence"`
	Epoch    string `json:"epoch,omitempty"`
	ID       string `json:"id"`            // Mark of the id
	Key      string `json:"key,omitempty"` // Mark of the key
	Revision string `json:"revision,omitempty"`
}

// LogState is what a reader was told of a log's copy.
type LogState struct {
	Log       string           `json:"log"`
	State     regions.LagState `json:"state"`
	Staleness time.Duration    `json:"staleness_ns"`
	Error     time.Duration    `json:"error_ns"` // ±
	Known     bool             `json:"known"`    // without it Staleness means nothing
	Withheld  uint64           `json:"withheld"`
	Expired   uint64           `json:"expired"`
	Cursor    uint64           `json:"cursor"`
}

// LagSample is a region's own word on one log's lag towards one region.
type LagSample struct {
	Region string `json:"region"` // who says so
	regions.Lag
}

// LinkSample is a region's own word on one of its links.
type LinkSample struct {
	Region  string        `json:"region"` // who says so
	Peer    string        `json:"peer"`
	Known   bool          `json:"known"`
	Up      bool          `json:"up"` // an unknown link is not up
	Reason  string        `json:"reason,omitempty"`
	Heard   bool          `json:"heard"`      // in this run, ever
	Silence time.Duration `json:"silence_ns"` // since then; without Heard it means nothing
}

// Advice is what a region told its operators that they may do.
type Advice struct {
	Region string   `json:"region"`
	Lines  []string `json:"lines"`
}

// Counts is what the nodes of a region say, all of them together, of how often something was
// judged or answered there. It holds questions and codes, nothing of a record.
type Counts struct {
	Region string        `json:"region"`
	Run    string        `json:"run"`     // names the processes that said so: with one that was started anew it is another
	Nodes  int           `json:"nodes"`   // how many they are
	From   time.Duration `json:"from_ns"` // when the first was asked; when the last had answered is the event's time
	// Asked is how often the policy was asked, by policy.Question in words, as it is kept on
	// disk over restarts.
	Asked map[string]uint64 `json:"asked"`
	// Told is how often publishes at the region's doors had an outcome, by topic and code, since
	// the processes were started.
	Told map[string]uint64 `json:"told"`
}

// Told is how Counts names an outcome: code "" is an ack, topic "" one that is not declared.
func Told(topic string, code api.Code) string {
	return topic + " " + cmp.Or(string(code), "ACKED")
}

// Gauge is one figure of one node: heap in bytes, goroutines, descriptors.
type Gauge struct {
	Region string  `json:"region"`
	Node   string  `json:"node,omitempty"`
	Name   string  `json:"name"`
	Value  float64 `json:"value"`
}

// The names of gauges that the invariants know.
const (
	HeapBytes   = "heap_bytes"
	Goroutines  = "goroutines"
	Descriptors = "descriptors"
	// GossipMembers is how many gateways are alive as far as a node's gossip goes.
	GossipMembers = "gossip_members"
)

// StepKind is the kind of a step of a schedule.
type StepKind string

// The kinds of step that the invariants know. A schedule may use others.
const (
	Load       StepKind = "load"         // producers run
	Cut        StepKind = "cut"          // nothing passes between Region and Peer, either way
	CutOneWay  StepKind = "cut one way"  // nothing passes from Region to Peer
	GossipCut  StepKind = "gossip cut"   // no gossip passes between Region and Peer, all else does; Value says which way
	SlowLine   StepKind = "slow line"    // Value says how slow
	Kill       StepKind = "kill"         // SIGKILL, from then until it runs again
	Pause      StepKind = "pause"        // SIGSTOP until SIGCONT
	PowerCut   StepKind = "power cut"    // from then until it runs again
	Stop       StepKind = "stop"         // orderly
	DiskFull   StepKind = "disk full"    //
	DiskError  StepKind = "disk error"   // the disk fails writes or syncs
	SlowDisk   StepKind = "slow disk"    //
	ClockStep  StepKind = "clock step"   // Region's wall clock is off by Value
	PolicyFlip StepKind = "policy flip"  // a point: all nodes of Region have the revision Value, or a newer one
	Isolation  StepKind = "isolation"    // nothing passes between Node and the other nodes of its region
	NoQuorum   StepKind = "no quorum"    // the region lacks a majority of its nodes
	Converged  StepKind = "converged"    // a point: all is healed, and the mirrors said they have caught up
	LeakBase   StepKind = "leak base"    // a point: gauges from here are the base
	LeakAgain  StepKind = "leak compare" // a point: gauges from here must be back at the base
)

// Step is a step of the schedule: a fault that begins or ends, or a point in time.
// A fault without an end lasts until the end of the history.
type Step struct {
	Kind   StepKind `json:"kind"`
	Phase  Phase    `json:"phase"`
	Region string   `json:"region,omitempty"` // "": all
	Peer   string   `json:"peer,omitempty"`   // of a link; "": all others
	Node   string   `json:"node,omitempty"`   // "": all nodes of the region
	Value  string   `json:"value,omitempty"`
}

// Phase says whether a step begins, ends, or is a point in time.
type Phase string

// The phases.
const (
	Begin Phase = "begin"
	End   Phase = "end"
	Point Phase = "point"
)

// Entries lists the publish attempts in the order in which they ended.
func (h *History) Entries() []Entry {
	var entries []Entry
	for i := range h.Events {
		if e := h.Events[i].Entry; e != nil {
			entries = append(entries, *e)
		}
	}
	return entries
}

// Span is a stretch of time in which a fault was there.
type Span struct {
	Step
	From, To time.Duration
}

// Spans lists when steps of the given kinds were on, of all kinds without any, in the
// order of their begin. What was never ended ends with the history.
func (h *History) Spans(kinds ...StepKind) []Span {
	var spans []Span
	open := map[Step]int{}
	var last time.Duration
	for i := range h.Events {
		e := &h.Events[i]
		last = max(last, e.At)
		if e.Step == nil || len(kinds) > 0 && !slices.Contains(kinds, e.Step.Kind) {
			continue
		}
		key := *e.Step
		key.Phase, key.Value = "", ""
		switch e.Step.Phase {
		case Begin:
			open[key] = len(spans)
			spans = append(spans, Span{Step: *e.Step, From: e.At, To: -1})
		case End:
			if n, ok := open[key]; ok {
				spans[n].To = e.At
				delete(open, key)
			}
		case Point:
			spans = append(spans, Span{Step: *e.Step, From: e.At, To: e.At})
		}
	}
	for i := range spans {
		if spans[i].To < spans[i].From {
			spans[i].To = last
		}
	}
	return spans
}
