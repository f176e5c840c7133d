package placement_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"domicile/api"
	"domicile/regions/placement"
)

// machine plays random commands against three copies of the state: one that takes them
// all, one that takes the same bytes beside it, and one that now and then starts from a
// snapshot. What the rules promise is checked after every command.
type machine struct {
	one, two, three *placement.State
	copy            *placement.State // that follows by deltas
	index           uint64
	ids             int
	homes           map[string]string    // log and epoch → its one home
	ended           map[string]bool      // log and epoch
	number          uint64               // of the audit that was read
	head            string               //
	answered        []placement.Command  // that were taken
	results         []placement.Result   // in the same order
	began           map[string]api.Epoch // op → the epoch it set out from
}

var (
	modelRegions = []string{"ap-south", "eu-west", "us-east"}
	modelLogs    = []string{"K", "L"}
)

func TestR14e_MachineKeepsItsRules(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := &machine{one: &placement.State{}, two: &placement.State{}, three: &placement.State{}, copy: &placement.State{},
			homes: map[string]string{}, ended: map[string]bool{}, began: map[string]api.Epoch{}}
		m.apply(t, placement.Command{Verb: placement.Found, ID: "f", Actor: "a", Reason: "r", Founding: &placement.Founding{Authority: "A"}})
		t.Repeat(map[string]func(*rapid.T){
			"declare": m.declare,
			"next":    m.next,
			"wild":    m.wild,
			"again":   m.again,
			"renew": func(t *rapid.T) {
				m.apply(t, placement.Command{Verb: placement.Renew, Regions: modelRegions[rapid.IntRange(0, 2).Draw(t, "from"):]})
			},
			"restart": func(t *rapid.T) {
				var err error
				if m.three, err = placement.Restore(snapshot(t, m.three)); err != nil {
					t.Fatal(err)
				}
			},
			"follow": m.follow,
			"":       m.check,
		})
	})
}

func snapshot(t rapid.TB, s *placement.State) []byte {
	data, err := s.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func (m *machine) id() string { m.ids++; return fmt.Sprintf("i%d", m.ids) }

// apply gives one command to all copies, as its bytes.
func (m *machine) apply(t *rapid.T, c placement.Command) {
	data, err := c.Encode()
	if err != nil {
		t.Fatal(err)
	}
	m.strangers(t, c)
	before := snapshot(t, m.one)
	was, had := m.one.Log(c.Log)
	m.index++
	var first placement.Result
	var firstErr error
	for i, s := range []*placement.State{m.one, m.two, m.three} {
		read, err := placement.DecodeCommand(data, placement.CommandVersion)
		if err != nil {
			t.Fatalf("%+v: %v", c, err)
		}
		r, err := s.Apply(m.index, read)
		if i == 0 {
			first, firstErr = r, err
		} else if fmt.Sprint(r, err) != fmt.Sprint(first, firstErr) {
			t.Fatalf("%s: %v %v at one, %v %v at another", c.Verb, first, firstErr, r, err)
		}
	}
	after := snapshot(t, m.one)
	if firstErr != nil {
		if !bytes.Equal(before, after) {
			t.Fatalf("%s was refused and changed the state: %v", c.Verb, firstErr)
		}
		return
	}
	if c.Verb != placement.Renew {
		m.answered, m.results = append(m.answered, c), append(m.results, first)
	}
	if now, ok := m.one.Log(c.Log); ok && had && was.Home != now.Home {
		m.moved(t, was, now)
	}
}

// strangers: whatever is said, in whatever state, counts from no region that has nothing to do
// with the log, nor from one that names none, nor from a region in another's name.
func (m *machine) strangers(t *rapid.T, c placement.Command) {
	l, placed := m.one.Log(c.Log)
	for _, region := range append([]string{"sa-north", ""}, modelRegions...) {
		c.ID, c.Region = "of a stranger", region
		home := placed && l.Home == region || c.Verb == placement.Declare && c.Home == region
		mover := placed && (slices.Contains(l.Terms.Targets, region) || slices.Contains(l.Terms.Allowed, region) || l.Op != nil && l.Op.Target == region)
		had := placed && (slices.ContainsFunc(l.History, func(e placement.Ended) bool { return e.Home == region }) || l.Rival != nil && l.Rival.Home == region)
		anyone := c.Verb == placement.Approve && region != ""
		owner := slices.Contains([]placement.Verb{placement.Declare, placement.Alter, placement.Retire, placement.Opened, placement.Denied}, c.Verb)
		if m.one.May(c, l.Version) == nil && !home && !anyone && (owner || !mover && !had) {
			t.Fatalf("%q by %q is taken of %+v", c.Verb, region, l)
		}
	}
}

// moved holds a change of home against S1 to S5.
func (m *machine) moved(t *rapid.T, was, now placement.Log) {
	op := was.Op
	switch {
	case was.Status != placement.Moving || op == nil || op.Step != placement.Ready || op.Proof == nil || op.Lost == nil:
		t.Fatalf("%s changed its home without proof, cut and what is lost: %+v", was.Incarnation, op)
	case !slices.Contains(now.Terms.Allowed, now.Home) || !slices.Contains(now.Terms.Targets, now.Home):
		t.Fatalf("%s is at %s, outside", now.Incarnation, now.Home)
	case op.Proof.Kind == placement.Attested && !op.Attested:
		t.Fatalf("%s: nobody signed that the home is stopped", was.Incarnation)
	case now.Epoch.Compare(was.Epoch) <= 0:
		t.Fatalf("epoch %s after %s", now.Epoch, was.Epoch)
	}
	if end, err := now.EpochEnd(was.Epoch); err != nil || end != op.Cut {
		t.Fatalf("epoch %s ends at %d (%v), the cut was %d", was.Epoch, end, err, op.Cut)
	}
}

func (m *machine) check(t *rapid.T) {
	if a, b, c := snapshot(t, m.one), snapshot(t, m.two), snapshot(t, m.three); !bytes.Equal(a, b) || !bytes.Equal(a, c) {
		t.Fatal("the same commands gave different bytes")
	}
	for _, l := range m.one.Changed(0) {
		key := l.Incarnation + " " + l.Epoch.String()
		if home, ok := m.homes[key]; ok && home != l.Home {
			t.Fatalf("%s has two homes: %s and %s", key, home, l.Home)
		}
		if m.ended[key] {
			t.Fatalf("%s ended and is back", key)
		}
		m.homes[key] = l.Home
		for _, h := range l.History {
			m.ended[l.Incarnation+" "+h.Epoch.String()] = true
		}
	}
	entries, err := m.one.Audit(m.number)
	if err != nil {
		t.Fatal(err)
	}
	if err := placement.VerifyAudit(m.number, m.head, entries); err != nil {
		t.Fatal(err)
	}
	m.number, m.head = m.one.AuditHead()
}

// follow brings the copy up to date and compares what it has.
func (m *machine) follow(t *rapid.T) {
	if err := m.copy.Follow(m.one.Since(m.copy.Version())); err != nil {
		t.Fatal(err)
	}
	if c := placement.Compare(m.one, m.copy); c.Authority != placement.Same || len(c.Logs) > 0 {
		t.Fatalf("the copy differs: %+v", c)
	}
	mine, _ := json.Marshal(m.one.Since(0))
	if theirs, _ := json.Marshal(m.copy.Since(0)); !bytes.Equal(mine, theirs) {
		t.Fatal("the copy differs")
	}
}

func (m *machine) declare(t *rapid.T) {
	terms := placement.Terms{Allowed: modelRegions[rapid.IntRange(0, 1).Draw(t, "allowed"):], Targets: modelRegions[1:], Mode: placement.Manual,
		Isolation: placement.Accept, RPO: time.Minute, Approvals: rapid.IntRange(0, 1).Draw(t, "approvals"), Digest: "d"}
	if rapid.Bool().Draw(t, "fence") {
		terms.Isolation, terms.FenceAfter = placement.FenceAfter, time.Duration(rapid.IntRange(10, 40).Draw(t, "length"))*time.Second
	}
	log := rapid.SampledFrom(modelLogs).Draw(t, "log")
	c := placement.Command{Verb: placement.Declare, ID: m.id(), Log: log, Actor: "a", Reason: "r", Home: "eu-west", Terms: &terms, Expect: api.StaticEpoch("eu-west")}
	if l, ok := m.one.Log(log); ok {
		c.Verb, c.Home, c.Expect = placement.Alter, "", l.Epoch
	}
	m.apply(t, c)
}

// next does what brings a log's move further, most of the time in the right way.
func (m *machine) next(t *rapid.T) {
	l, ok := m.one.Log(rapid.SampledFrom(modelLogs).Draw(t, "log"))
	if !ok {
		return
	}
	c := placement.Command{ID: m.id(), Log: l.Incarnation, Expect: l.Epoch, Actor: "a", Reason: "r", Region: l.Home}
	at := uint64(rapid.IntRange(0, 3).Draw(t, "at"))
	switch {
	case l.Status == placement.Opening && rapid.Bool().Draw(t, "open"):
		if n := len(l.History); n > 0 && l.History[n-1].EndKnown {
			at = l.History[n-1].End
		}
		c.Verb, c.Point = placement.Opened, &placement.Point{End: at}
	case l.Op == nil || l.Op.Step == placement.Flipped:
		span := time.Second
		c.Verb, c.Plan = placement.Begin, "p"
		c.Move = &placement.Move{Kind: placement.Planned, Target: rapid.SampledFrom(modelRegions).Draw(t, "target"), HomeDigest: "d", TargetDigest: "d"}
		if rapid.Bool().Draw(t, "forced") {
			c.Move.Kind, c.Move.Accepted, c.Move.Divergent = placement.Forced, placement.Loss{Span: &span}, rapid.Bool().Draw(t, "divergent")
			c.Move.Attested = rapid.Bool().Draw(t, "attested")
		}
	default:
		m.step(t, &c, l, at)
	}
	m.apply(t, c)
}

func (m *machine) step(t *rapid.T, c *placement.Command, l placement.Log, at uint64) {
	op := l.Op
	c.Op = op.ID
	if rapid.IntRange(0, 5).Draw(t, "out of turn") == 0 {
		c.Verb, c.Region = rapid.SampledFrom([]placement.Verb{placement.Flip, placement.FixCut, placement.CaughtUp}).Draw(t, "verb"), op.Target
		c.Point = &placement.Point{End: op.Cut}
		return
	}
	switch op.Step {
	case placement.Begun:
		c.Verb, c.Proof = placement.Prove, &placement.Proof{End: at, Renewed: op.Renewed, Waited: time.Minute, Statement: "s",
			Kind: rapid.SampledFrom([]placement.ProofKind{placement.Marker, placement.Lapsed, placement.Diverges, placement.Attested}).Draw(t, "proof")}
		if c.Proof.Kind == placement.Attested {
			c.Region = op.Target
		}
	case placement.Proven:
		if op.Proof.Kind == placement.Marker {
			at = op.Proof.End
		}
		c.Verb, c.Region, c.Point = placement.FixCut, op.Target, &placement.Point{End: at}
	case placement.Cut:
		span := time.Duration(rapid.IntRange(0, 2).Draw(t, "span")) * time.Second
		c.Verb, c.Region, c.Point = placement.Frozen, op.Target, &placement.Point{End: op.Cut}
		c.Lost = &placement.Loss{Span: &span}
		if op.Proof.Kind == placement.Marker {
			c.Verb, c.Lost = placement.CaughtUp, nil
		}
	case placement.Ready:
		c.Verb = placement.Flip
		if rapid.IntRange(0, 2).Draw(t, "approve") == 0 {
			c.Verb, c.Plan, c.Actor, c.Approvals = placement.Approve, op.Plan, "b", []placement.Approval{{Actor: "b", Role: "incident"}}
		}
	}
}

// wild says anything about anything.
func (m *machine) wild(t *rapid.T) {
	verbs := []placement.Verb{placement.Alter, placement.Retire, placement.Begin, placement.Approve, placement.Prove, placement.FixCut, placement.CaughtUp,
		placement.Frozen, placement.Flip, placement.Opened, placement.Denied, placement.Abort, placement.Abort, placement.Diverged, placement.Closed,
		placement.Meet, placement.Resolve, placement.Voters, placement.Found, "nonsense"}
	l, ok := m.one.Log(rapid.SampledFrom(modelLogs).Draw(t, "log"))
	if !ok {
		return
	}
	c := placement.Command{Verb: rapid.SampledFrom(verbs).Draw(t, "verb"), ID: m.id(), Log: l.Incarnation, Expect: l.Epoch, Actor: "a", Reason: "r", Plan: "p",
		Region: rapid.SampledFrom(modelRegions).Draw(t, "region"), Home: rapid.SampledFrom(modelRegions).Draw(t, "home"),
		Point: &placement.Point{End: uint64(rapid.IntRange(0, 3).Draw(t, "at"))}, Proof: &placement.Proof{Kind: placement.Marker},
		Lost: &placement.Loss{}, Denial: api.HomeOutsideBoundary, Regions: modelRegions, Winner: l.Epoch,
		Approvals: []placement.Approval{{Actor: "a", Role: "incident"}}, Founding: &placement.Founding{Authority: "B"}}
	if rapid.Bool().Draw(t, "stale") {
		c.Expect.Counter--
	}
	if l.Op != nil {
		c.Op = l.Op.ID
	}
	c.Terms = &l.Terms
	c.Move = &placement.Move{Kind: placement.Forced, Target: c.Home, TargetDigest: "d", Overrides: []string{placement.RuleUnknown}}
	c.Divergence = &placement.Divergence{Epoch: api.StaticEpoch("eu-west"), Region: c.Region, From: c.Point.End, To: 9, Count: 1, Root: "r",
		Fate: rapid.SampledFrom([]placement.Fate{placement.Kept, placement.Discarded}).Draw(t, "fate")}
	if c.Verb == placement.Retire && rapid.IntRange(0, 3).Draw(t, "retire") > 0 {
		return
	}
	other := l
	other.Epoch.Issuer = rapid.SampledFrom([]string{l.Epoch.Issuer, "us-east"}).Draw(t, "issuer")
	if other.Status == placement.Contested {
		other.Status = placement.Active
	}
	other.Rival = nil
	c.Other = &other
	m.apply(t, c)
}

// again sends a command once more: the answer is the first one, and nothing changes.
func (m *machine) again(t *rapid.T) {
	if len(m.answered) == 0 {
		return
	}
	i := rapid.IntRange(0, len(m.answered)-1).Draw(t, "which")
	before := snapshot(t, m.one)
	m.index++
	r, err := m.one.Apply(m.index, m.answered[i])
	if err != nil || fmt.Sprint(r) != fmt.Sprint(m.results[i]) {
		t.Fatalf("the same command got %v (%v), first %v", r, err, m.results[i])
	}
	changed := m.answered[i]
	changed.Reason += "!"
	if _, err := m.one.Apply(m.index, changed); api.CodeOf(err) != api.Conflict {
		t.Fatalf("other content under the same id: %v", err)
	}
	if !bytes.Equal(before, snapshot(t, m.one)) {
		t.Fatal("a repeated command changed the state")
	}
}
