package failover

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"domicile/api"
	"domicile/regions"
	"domicile/regions/placement"
)

// Life is how long a plan may be begun after it was made.
const Life = 15 * time.Minute

// Drain is how far behind a target may be when a planned move begins: producers wait until
// it has caught up.
const Drain = 5 * time.Second

// Request is what an operator wants of a log.
type Request struct {
	Log       api.LogID
	Kind      placement.Kind
	Target    string         // "": back to where the manifest puts it
	Accept    placement.Loss // of a forced move: the most that may be lost
	Divergent bool           // the old home may go on writing what will be void
	Attest    bool           // people sign that the old home is stopped
	Overrides []string       // rules that are set aside
}

// Copy is what is known here of one region's part of a log.
type Copy struct {
	Region       string
	Home         bool
	Known        bool // Sequence
	Sequence     uint64
	Safe         time.Time     // all that is stamped before it is there; zero: not known
	Lag          time.Duration // how old the copy is; of a home's word: what it has not confirmed
	LagError     time.Duration // ±
	LagKnown     bool
	Pending      uint64 // records at the home that are not there
	PendingKnown bool
	Withheld     uint64 // by policy: kept at the home
	Damaged      uint64 // could not be read any more where the copy had them from, or is
	Cause        string // why something is not known, or does not move
}

// Facts is what this node knows when a plan is made.
type Facts struct {
	Self      string
	Log       placement.Log
	First     string // where the manifest puts the log
	RTO       time.Duration
	Reachable bool              // the authority answers
	Up        func(string) bool // the link to a region works; true for Self
	Digests   map[string]string // region → digest of the topic's declaration there, where known
	Copies    []Copy            // by region
	Denied    error             // why this region's policy does not let the target hold the log
	Sync      []string          // regions that have a record before it is acknowledged
	All       bool              // this region's copy certainly has all that was acknowledged
}

// State is what came of a rule.
type State string

// The states of a check.
const (
	OK      State = "ok"
	Refused State = "refused"
	Waived  State = "waived" // it refuses, and the request sets it aside
)

// Check is one rule, asked.
type Check struct {
	Rule  string
	State State
	Text  string
	Code  api.Code // of a refusal
}

// Plan is what a move would do, as of now. The id stands for it in a start and in
// approvals: it changes with the log's epoch, the terms, the request and the outcome of
// each rule, and not with figures that move by themselves.
type Plan struct {
	ID string // "": a rule refuses it
	Request
	Expires time.Time
	Log     placement.Log
	Checks  []Check
	Copies  []Copy
	Loss    placement.Loss // bound of what would be left behind now; nil parts: not known
	Wait    time.Duration  // until the old home is known to have stopped, at most
	RTO     time.Duration  // declared
	Heard   bool           // the old home
	Notes   []string
}

// Make plans a move from what is known. It is a pure function; until is when the plan ends.
func Make(r Request, f Facts, until time.Time) Plan {
	if r.Target == "" {
		r.Target = f.First
	}
	p := Plan{Request: r, Expires: until.UTC().Truncate(time.Second), Log: f.Log, Copies: f.Copies, RTO: f.RTO, Heard: f.Up(f.Log.Home)}
	m := &making{Plan: &p, facts: &f}
	m.limit()
	for _, check := range rules() {
		m.ask(check.rule, check.ask)
	}
	m.note()
	if p.Refusal() == nil {
		p.ID = p.name()
	}
	return p
}

// Refusal is the first rule that refuses the plan, as an error; nil if none does.
func (p *Plan) Refusal() error {
	i := slices.IndexFunc(p.Checks, func(c Check) bool { return c.State == Refused })
	if i < 0 {
		return nil
	}
	c := p.Checks[i]
	e := &api.Error{Code: c.Code, Op: "plan move", Topic: p.Request.Log.Topic, Field: "rule", Value: c.Rule, Hint: c.Text}
	if c.Code == api.HomeOutsideBoundary {
		e.Region = p.Target
	}
	return e
}

// name is the plan's id: when it ends, a hash of all that it rests on, and what binds it to
// the one move that it stands for, which is what everyone can compare who was not there.
func (p *Plan) name() string {
	type outcome struct {
		Rule  string
		State State
	}
	var checks []outcome
	for _, c := range p.Checks {
		checks = append(checks, outcome{c.Rule, c.State})
	}
	text, err := json.Marshal(struct {
		Until   time.Time
		Log     string
		Epoch   api.Epoch
		Home    string
		Terms   placement.Terms
		Request Request
		Checks  []outcome
	}{p.Expires, p.Log.Incarnation, p.Log.Epoch, p.Log.Home, p.Log.Terms, p.Request, checks})
	if err != nil {
		panic("plan: " + err.Error()) // only strings, numbers and a time whose year is now
	}
	sum := sha256.Sum256(text)
	move := p.move()
	return p.Expires.Format(stamp) + "-" + hex.EncodeToString(sum[:16]) + "-" + move.Binding(p.Log.Incarnation, p.Log.Epoch)
}

// bound refuses a plan's name that binds it to another move, or to none.
func bound(plan, binding string) error {
	if binding != "" && strings.HasSuffix(plan, "-"+binding) {
		return nil
	}
	return &api.Error{Code: api.PermissionDenied, Op: "check plan", Field: "plan", Value: plan,
		Hint: "it stands for another move: its target, what may be lost, what is set aside or attested is not what people read in it"}
}

const stamp = "20060102T150405Z"

// ends reads out of a plan's id when it ends.
func ends(id string) (time.Time, error) {
	head, _, _ := strings.Cut(id, "-")
	until, err := time.Parse(stamp, head)
	if err != nil {
		return time.Time{}, &api.Error{Code: api.BadRequest, Op: "read plan", Field: "plan", Hint: "give the id that `domicile failover plan` printed"}
	}
	return until, nil
}

// limit fills in what a forced move would leave behind and how long it has to wait.
func (m *making) limit() {
	if m.Kind != placement.Forced {
		return
	}
	if t := m.target(); m.Target == m.facts.Self {
		if t.LagKnown && t.Damaged == 0 {
			span := t.Lag + t.LagError
			m.Loss.Span = &span
		}
		if t.PendingKnown {
			records := t.Pending + t.Damaged
			m.Loss.Records = &records
		}
	}
	if m.all() {
		m.Loss = placement.None()
	}
	if held := m.Log.Tenure(); held.Isolation == placement.FenceAfter && !m.Attest {
		m.Wait = regions.LeaseWait(held.FenceAfter)
	}
}

// all: the target certainly has what was acknowledged. That it is to have it by the topic's
// rule proves nothing: its disk may have been lost since.
func (m *making) all() bool { return m.facts.All && m.Target == m.facts.Self }

func (m *making) target() Copy {
	i := slices.IndexFunc(m.facts.Copies, func(c Copy) bool { return c.Region == m.Target })
	if i < 0 {
		return Copy{Region: m.Target}
	}
	return m.facts.Copies[i]
}
