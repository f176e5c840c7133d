package placement_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"domicile/api"
	"domicile/regions/placement"
)

// verbs is every verb, each as a command that lacks nothing.
func verbs(l placement.Log) map[string]placement.Command {
	span, d := time.Second, placement.Divergence{Epoch: api.StaticEpoch("home"), From: 1, To: 1, Count: 1, Root: "r", Fate: placement.Kept}
	approval := []placement.Approval{{Actor: "a", Role: "incident", Signed: "s"}}
	proof := func(k placement.ProofKind) placement.Command {
		return placement.Command{Verb: placement.Prove, Op: "m", Proof: &placement.Proof{Kind: k}}
	}
	return map[string]placement.Command{
		"found":         {Verb: placement.Found, Founding: &placement.Founding{Authority: "B"}},
		"voters":        {Verb: placement.Voters, Regions: []string{"home"}},
		"renew":         {Verb: placement.Renew, Regions: []string{"home"}},
		"meet":          {Verb: placement.Meet, Other: &l},
		"declare":       {Verb: placement.Declare, Log: "new", Home: "home", Terms: &l.Terms},
		"alter":         {Verb: placement.Alter, Terms: &l.Terms, Approvals: approval},
		"retire":        {Verb: placement.Retire},
		"begin":         {Verb: placement.Begin, Move: &placement.Move{Kind: placement.Forced, Target: "target"}},
		"approve":       {Verb: placement.Approve, Op: "m", Approvals: approval},
		"prove marker":  proof(placement.Marker),
		"prove lapsed":  proof(placement.Lapsed),
		"prove accept":  proof(placement.Diverges),
		"prove attests": proof(placement.Attested),
		"cut":           {Verb: placement.FixCut, Op: "m", Point: &placement.Point{}},
		"caughtup":      {Verb: placement.CaughtUp, Op: "m", Point: &placement.Point{}},
		"frozen":        {Verb: placement.Frozen, Op: "m", Point: &placement.Point{}, Lost: &placement.Loss{Span: &span}},
		"flip":          {Verb: placement.Flip, Op: "m"},
		"opened":        {Verb: placement.Opened, Point: &placement.Point{}},
		"denied":        {Verb: placement.Denied, Denial: api.HomeOutsideBoundary},
		"abort":         {Verb: placement.Abort, Op: "m"},
		"diverged":      {Verb: placement.Diverged, Divergence: &d},
		"closed":        {Verb: placement.Closed, Divergence: &d},
		"resolve":       {Verb: placement.Resolve, Home: "home"},
		"nonsense":      {Verb: "nonsense"},
	}
}

// TestFA2_WhoMaySayWhat walks all verbs by all kinds of senders: the log's home, the target of
// the move that is under way, another region that it may move to, one that holds a copy, one
// that has nothing to do with it, and nobody.
func TestFA2_WhoMaySayWhat(t *testing.T) {
	senders := []string{"home", "target", "mover", "copy", "stranger", ""}
	may := map[string][]string{
		"declare": {"home"}, "alter": {"home"}, "retire": {"home"}, "opened": {"home"}, "denied": {"home"}, "prove marker": {"home"},
		"begin": {"home", "target", "mover"}, "abort": {"home", "target", "mover"}, "resolve": {"home", "target", "mover"},
		"approve":      {"home", "target", "mover", "copy", "stranger"},
		"prove accept": {"target"}, "prove attests": {"target"}, "cut": {"target"}, "caughtup": {"target"}, "frozen": {"target"}, "flip": {"target"},
		"diverged": {"home", "target", "mover", "copy"}, "closed": {"home", "target", "mover", "copy"},
	}
	s := &placement.State{}
	terms := placement.Terms{Allowed: []string{"copy", "home", "mover", "target"}, Targets: []string{"mover", "target"}, Mode: placement.Manual, Isolation: placement.Accept, Digest: "d"}
	for i, c := range []placement.Command{
		{Verb: placement.Found, ID: "f", Actor: "a", Reason: "r", Founding: &placement.Founding{Authority: "A"}},
		{Verb: placement.Declare, ID: "d", Log: "L", Region: "home", Home: "home", Actor: "a", Reason: "r", Expect: api.StaticEpoch("home"), Terms: &terms},
		{Verb: placement.Begin, ID: "m", Log: "L", Region: "home", Actor: "a", Reason: "r", Plan: "p", Expect: api.StaticEpoch("home"),
			Move: &placement.Move{Kind: placement.Planned, Target: "target", HomeDigest: "d", TargetDigest: "d"}},
	} {
		if _, err := s.Apply(uint64(i+1), c); err != nil {
			t.Fatal(err)
		}
	}
	l, _ := s.Log("L")
	all := verbs(l)
	for name := range may {
		if _, ok := all[name]; !ok {
			t.Errorf("no verb %q", name)
		}
	}
	for name, c := range all {
		for _, sender := range senders {
			c.ID, c.Actor, c.Reason, c.Plan, c.Region = "x", "a", "r", "p", sender
			if c.Log == "" {
				c.Log, c.Expect = "L", l.Epoch
			}
			if c.Divergence != nil {
				d := *c.Divergence
				d.Region, c.Divergence = sender, &d
			}
			err := s.May(c, l.Version)
			if want := slices.Contains(may[name], sender); want != (err == nil) {
				t.Errorf("%s by %q: %v", name, sender, err)
			} else if err != nil && api.CodeOf(err) != api.PermissionDenied {
				t.Errorf("%s by %q is refused as %v, which is no liar's", name, sender, err)
			}
		}
	}
	late := all["retire"]
	late.ID, late.Actor, late.Reason, late.Log, late.Region, late.Expect = "x", "a", "r", "L", "copy", api.StaticEpoch("copy")
	if err := s.May(late, l.Version); api.CodeOf(err) != api.Conflict {
		t.Errorf("one that goes by another epoch: %v", err)
	}
	foreign := all["diverged"]
	foreign.ID, foreign.Actor, foreign.Reason, foreign.Log, foreign.Region, foreign.Expect = "x", "a", "r", "L", "copy", l.Epoch
	foreign.Divergence.Region = "target"
	if err := s.May(foreign, l.Version); api.CodeOf(err) != api.PermissionDenied {
		t.Errorf("what another region holds: %v", err)
	}
}

// TestFA2_AnswersAreForTheirSender: whoever lost the answer asks again, and nobody else by its id.
func TestFA2_AnswersAreForTheirSender(t *testing.T) {
	s := founded(t)
	c := declaration("L")
	c.Region = "eu-west"
	if err := s.May(c, 0); api.CodeOf(err) != api.Conflict {
		t.Errorf("the id of another's command: %v", err)
	}
	c.Region = ""
	if err := s.May(c, 0); api.CodeOf(err) != api.PermissionDenied {
		t.Errorf("by nobody: %v", err)
	}
	own := declaration("N")
	own.ID, own.Region = "own", "eu-west"
	if _, err := s.Apply(50, own); err != nil {
		t.Fatal(err)
	}
	if err := s.May(own, 0); err != nil {
		t.Errorf("a sender that lost the answer: %v", err)
	}
}

// TestFA2_NobodyUsesUpAnothersIds: the ids of what a home is about to say are known before it
// says it. A region that took one for a command of its own would keep the log shut.
func TestFA2_NobodyUsesUpAnothersIds(t *testing.T) {
	s := founded(t)
	l, _ := s.Log("L")
	begin := placement.Command{Verb: placement.Begin, ID: "move/plan", Log: "L", Region: "eu-west", Actor: "a", Reason: "r", Plan: "plan", Expect: l.Epoch,
		Move: &placement.Move{Kind: placement.Planned, Target: "eu-central", HomeDigest: l.Terms.Digest, TargetDigest: l.Terms.Digest}}
	if err := s.May(begin, 0); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Apply(50, begin); err != nil {
		t.Fatal(err)
	}
	tail := placement.Divergence{Epoch: l.Epoch, Region: "eu-central", From: 1, To: 1, Count: 1, Root: "r", Fate: placement.Kept}
	report := placement.Command{Verb: placement.Diverged, Log: "L", Expect: l.Epoch, Region: "eu-central", Actor: "a", Reason: "r", Divergence: &tail}
	own := declaration("new")
	own.Region = "eu-west"
	alter := placement.Command{Verb: placement.Alter, Log: "M", Expect: l.Epoch, Region: "eu-west", Actor: "a", Reason: "r", Terms: &l.Terms}
	for id, c := range map[string]placement.Command{
		"1.1.eu-west/L/opened/eu-west": report, "move/plan/L/prove/eu-west": report, "alter/L/3": report, "retire/L/2": report,
		"abort/move/plan": alter, "approve/plan/eve": alter, "alter/L/2": alter, "declare/other": own, "retire/M/2": own,
	} {
		c.ID = id
		m, _ := s.Log(c.Log)
		if err := s.May(c, m.Version); api.CodeOf(err) != api.PermissionDenied {
			t.Errorf("%s under the id %s: %v", c.Verb, id, err)
		}
	}
	for id, c := range map[string]placement.Command{"L/1.1.eu-west/diverged/eu-central/r": report, "alter/M/2": alter, "declare/new": own} {
		c.ID = id
		m, _ := s.Log(c.Log)
		if err := s.May(c, m.Version); err != nil {
			t.Errorf("%s under its own id %s: %v", c.Verb, id, err)
		}
	}
}

// TestFA2_BindingNamesAllThatIsConsentedTo changes each field of a move.
func TestFA2_BindingNamesAllThatIsConsentedTo(t *testing.T) {
	span, records := time.Second, uint64(3)
	move := placement.Move{Kind: placement.Forced, Target: "us-east", Accepted: placement.Loss{Span: &span}}
	names := map[string]string{move.Binding("L", api.StaticEpoch("a")): "the move itself"}
	take := func(what, name string) {
		t.Helper()
		if other, ok := names[name]; ok {
			t.Errorf("%s has the name of %s", what, other)
		}
		names[name] = what
	}
	take("another log", move.Binding("M", api.StaticEpoch("a")))
	take("another epoch", move.Binding("L", api.StaticEpoch("b")))
	for what, change := range map[string]func(*placement.Move){
		"target":    func(m *placement.Move) { m.Target = "ap-south" },
		"kind":      func(m *placement.Move) { m.Kind = placement.Planned },
		"span":      func(m *placement.Move) { more := 2 * span; m.Accepted.Span = &more },
		"records":   func(m *placement.Move) { m.Accepted.Records = &records },
		"divergent": func(m *placement.Move) { m.Divergent = true },
		"attested":  func(m *placement.Move) { m.Attested = true },
		"overrides": func(m *placement.Move) { m.Overrides = []string{placement.RuleCutFirst} },
	} {
		other := move
		change(&other)
		take(what, other.Binding("L", api.StaticEpoch("a")))
	}
	s := founded(t)
	l, _ := s.Log("L")
	move = placement.Move{Kind: placement.Planned, Target: "eu-central", HomeDigest: l.Terms.Digest, TargetDigest: l.Terms.Digest}
	begin := placement.Command{Verb: placement.Begin, ID: "m", Log: "L", Region: "eu-west", Actor: "a", Reason: "r", Plan: "p", Expect: l.Epoch, Move: &move}
	if _, err := s.Apply(50, begin); err != nil {
		t.Fatal(err)
	}
	if l, _ = s.Log("L"); l.Binding() != move.Binding("L", l.Epoch) || strings.TrimSpace(l.Binding()) == "" {
		t.Errorf("the move under way is bound as %s", l.Binding())
	}
}
