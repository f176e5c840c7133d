package placement

import (
	"fmt"
	"slices"

	"domicile/api"
)

// who may say something of a log.
type party string

const (
	anyone      party = "anyone"
	byAuthority party = "authority" // its leader, of itself
	byHome      party = "home"
	byTarget    party = "target"   // of the move under way
	byMover     party = "mover"    // the home, or a region that the log may move to
	byProof     party = "proof"    // the home of its marker, the target of the others
	byHolder    party = "holder"   // a region, of what it holds itself
	byClaimant  party = "claimant" // as byMover, or the home by the other claim
)

// row is one line of the move table.
type row struct {
	verb  Verb
	kinds []Kind
	from  Step
	to    Step // "": the move is over
	by    party
	take  func(*State, *Log, *Command) error
}

// table is the one order in which a log changes its home. A step that is not in it, out
// of turn, or reported by another party is refused. begin and abort stand outside: begin
// needs a log without a move, abort takes any step before flipped.
func table() []row {
	both := []Kind{Planned, Forced}
	return []row{
		{Prove, both, Begun, Proven, anyone, (*State).prove},
		{FixCut, both, Proven, Cut, byTarget, (*State).fixCut},
		{CaughtUp, both, Cut, Ready, byTarget, (*State).caughtUp},
		{Frozen, []Kind{Forced}, Cut, Ready, byTarget, (*State).frozen},
		{Flip, both, Ready, Flipped, anyone, (*State).flip},
	}
}

// step carries a move from one row of the table to the next.
func (s *State) step(l *Log, c *Command) error {
	if c.Verb == Opened {
		return opened(l, c)
	}
	op := l.Op
	if op == nil || op.ID != c.Op {
		return conflict("op", opID(l), "the log has no such move; look at its state")
	}
	rows := table()
	i := slices.IndexFunc(rows, func(r row) bool { return r.verb == c.Verb && slices.Contains(r.kinds, op.Kind) })
	if i < 0 {
		return bad("verb", fmt.Sprintf("a %s move has no step %q", op.Kind, c.Verb))
	}
	r := rows[i]
	if op.Step != r.from {
		return broken(RuleCutFirst, fmt.Sprintf("the move is at %q, %s comes after %q", op.Step, c.Verb, r.from))
	}
	if c.Plan != "" && c.Plan != op.Plan {
		return conflict("plan", op.Plan, "the move follows another plan")
	}
	if r.by == byTarget && c.Region != op.Target {
		return notHome(c.Region, op.Target)
	}
	if err := r.take(s, l, c); err != nil {
		return err
	}
	l.Op.Step = r.to
	return nil
}

func opID(l *Log) string {
	if l.Op == nil {
		return ""
	}
	return l.Op.ID
}

func notHome(got, want string) *api.Error {
	return &api.Error{Code: api.NotHome, Op: "place log", Region: want, Field: "region", Value: got,
		Hint: "only this region may say so"}
}

func (s *State) begin(index uint64, l *Log, c *Command) error {
	m := c.Move
	switch {
	case m.Kind != Planned && m.Kind != Forced:
		return bad("kind", "planned or forced")
	case l.Terms.Mode != Manual:
		return broken(RulePinned, "the log is declared never to move")
	case l.Status == Moving:
		return broken(RuleOneOp, "another move is under way; let it end or abort it")
	case l.Status == Opening && m.Kind == Planned:
		return broken(RuleOneOp, "the log's home has not opened; only a forced move can take it from there")
	case m.Target == l.Home:
		return bad("target", "the log is there")
	}
	for _, check := range []func(*Log, *Command) error{inBounds, sameDigest, overrides, tailClosed, acceptable} {
		if err := check(l, c); err != nil {
			return err
		}
	}
	unopened := l.Status == Opening
	l.Status, l.Refused = Moving, ""
	l.Op = &Op{
		ID: c.ID, Kind: m.Kind, Target: m.Target, Step: Begun, Plan: c.Plan, Reason: c.Reason, Actor: c.Actor,
		Renewed: s.renewed[l.Home], Accepted: m.Accepted.clone(), Divergent: m.Divergent, Attested: m.Attested,
		Overrides: slices.Clone(m.Overrides), BeganIndex: index, Unopened: unopened,
	}
	return nil
}

// inBounds is S5: whoever made the command, the target has to be recorded and allowed.
func inBounds(l *Log, c *Command) error { return l.mayMoveTo(c.Move.Target) }

func (l *Log) mayMoveTo(region string) error {
	if !slices.Contains(l.Terms.Allowed, region) || !slices.Contains(l.Terms.Targets, region) {
		return outside(region)
	}
	return nil
}

func sameDigest(l *Log, c *Command) error {
	m := c.Move
	gone := m.HomeDigest == "" && m.Kind == Forced
	if m.TargetDigest != l.Terms.Digest || !gone && m.HomeDigest != l.Terms.Digest {
		return broken(RuleDigest, "home, target and authority declare the topic differently; reload the manifest and alter the terms")
	}
	return nil
}

func overrides(l *Log, c *Command) error {
	seen := map[string]bool{}
	for _, rule := range c.Move.Overrides {
		if !overridable[rule] || seen[rule] {
			return broken(RuleOverride, fmt.Sprintf("%.20q can't be set aside", rule))
		}
		seen[rule] = true
	}
	return nil
}

func tailClosed(l *Log, c *Command) error {
	if l.openTail() && !slices.Contains(c.Move.Overrides, RuleTail) {
		return broken(RuleTail, "republish or discard the divergent tail first")
	}
	return nil
}

// acceptable refuses a forced move that accepts more loss than the declaration does.
func acceptable(l *Log, c *Command) error {
	m := c.Move
	switch {
	case m.Kind == Planned && (m.Divergent || m.Attested || m.Accepted != (Loss{})):
		return bad("accepted", "a planned move loses nothing")
	case m.Divergent && l.Tenure().Isolation != Accept:
		return broken(RuleOneHome, "the log's home fences itself; wait for its lease instead of accepting two histories")
	case m.Kind == Planned:
		return nil
	}
	known := m.Accepted.Span != nil
	if !known && !slices.Contains(m.Overrides, RuleUnknown) {
		return broken(RuleUnknown, "say how much loss is accepted")
	}
	if known && *m.Accepted.Span > l.Terms.RPO && !slices.Contains(m.Overrides, RuleCutFirst) {
		return broken(RuleCutFirst, fmt.Sprintf("the declaration accepts a loss of %s", l.Terms.RPO))
	}
	return nil
}

func (s *State) prove(l *Log, c *Command) error {
	p := *c.Proof
	if !plain(p.Sum) || !plain(p.Statement) {
		return bad("proof", "printable text")
	}
	if l.Op.Kind == Planned && p.Kind != Marker {
		return broken(RuleCutFirst, "a planned move goes on with the home's marker only")
	}
	if err := s.proves(l, c.Region, p); err != nil {
		return err
	}
	l.Op.Proof = &p
	if p.Kind == Marker && c.Point != nil {
		l.Op.SafeTime = c.Point.SafeTime // the last instant that the home called closed
	}
	return nil
}

func (s *State) proves(l *Log, from string, p Proof) error {
	switch p.Kind {
	case Marker:
		if from != l.Home {
			return notHome(from, l.Home)
		}
		return nil
	case Lapsed:
		return s.lapsed(l, p)
	case Diverges:
		if l.Tenure().Isolation != Accept || !l.Op.Divergent {
			return broken(RuleOneHome, "the move has to accept two histories from its beginning, on a log whose home does")
		}
		return nil
	case Attested:
		switch {
		case !l.Op.Attested:
			return broken(RuleOneHome, "nobody was asked to sign that the home is stopped: the plan has to say so from its beginning")
		case from != l.Op.Target:
			return notHome(from, l.Op.Target)
		case p.Statement == "":
			return bad("statement", "give the hash of what was signed")
		}
		return nil
	}
	return bad("proof", "marker, lapsed, accept or attested")
}

// lapsed checks what of a lapse can be checked from the log: that it is counted from the
// last renewal that covered the log, and that the wait was the whole one.
func (s *State) lapsed(l *Log, p Proof) error {
	held := l.Tenure()
	switch {
	case held.Isolation != FenceAfter:
		return broken(RuleOneHome, "the log's home goes by no lease that could lapse")
	case s.generation > 1 && l.Op.Renewed == 0:
		return broken(RuleOneHome, "its home has never renewed with this authority, and an older one may still renew its lease; abort, and begin it again with people who attest that it is stopped")
	case p.Renewed != l.Op.Renewed:
		return broken(RuleOneHome, "the wait was not counted from the home's last renewal")
	case p.Waited < Wait(held.FenceAfter):
		return broken(RuleOneHome, fmt.Sprintf("the home's lease has lapsed after %s", Wait(held.FenceAfter)))
	}
	return nil
}

func (s *State) fixCut(l *Log, c *Command) error {
	if l.Op.Proof.Kind == Marker && c.Point.End != l.Op.Proof.End {
		return broken(RuleCutFirst, fmt.Sprintf("the home's marker closes the epoch at %d", l.Op.Proof.End))
	}
	l.Op.Cut = c.Point.End
	if l.Op.Proof.Kind != Marker || l.Op.SafeTime.IsZero() {
		l.Op.SafeTime = c.Point.SafeTime
	}
	return nil
}

func (s *State) atCut(l *Log, c *Command) error {
	if c.Point.End != l.Op.Cut {
		return broken(RuleCutFirst, fmt.Sprintf("the cut is fixed at %d", l.Op.Cut))
	}
	return nil
}

// caughtUp ends the wait of a move that loses nothing.
func (s *State) caughtUp(l *Log, c *Command) error {
	if err := s.atCut(l, c); err != nil {
		return err
	}
	if l.Op.Proof.Kind != Marker {
		return broken(RuleCutFirst, "without the home's marker nobody knows that this is all; report what may be lost")
	}
	if c.Point.Sum != "" && c.Point.Sum != l.Op.Proof.Sum {
		return broken(RuleCutFirst, "the target's records are not the home's; look at the copy before anything else")
	}
	none := None()
	l.Op.Lost, l.Op.Compared = &none, c.Point.Sum != ""
	return nil
}

// frozen takes the bound of what is left behind, on a cut that no longer moves.
func (s *State) frozen(l *Log, c *Command) error {
	if err := s.atCut(l, c); err != nil {
		return err
	}
	lost := c.Lost.clone()
	if lost.Span != nil && *lost.Span < 0 {
		return bad("lost", "no loss is negative")
	}
	l.Op.Lost = &lost
	if !c.Point.SafeTime.IsZero() {
		l.Op.SafeTime = c.Point.SafeTime
	}
	return nil
}

// flip is the point of no return: everything is checked again.
func (s *State) flip(l *Log, c *Command) error {
	op := l.Op
	if err := l.mayMoveTo(op.Target); err != nil {
		return err
	}
	if err := op.Unaccepted(); err != nil {
		return err
	}
	if got, need := l.Approved(); got < need {
		return broken(RuleApprovals, fmt.Sprintf("%d of %d people have approved the plan", got, need))
	}
	how := ByMove
	if op.Kind == Forced {
		how = ByForce
	}
	l.end(Ended{End: op.Cut, EndKnown: true, SafeTime: op.SafeTime, How: how, Proof: op.Proof.Kind, Lost: op.Lost, Compared: op.Compared})
	l.Home, l.Epoch, l.Status, l.Held = op.Target, s.next(l.Epoch), Opening, nil
	return nil
}

// Approved counts the people, besides the one who asked, that have approved the move that
// is under way, and those that it needs.
func (l *Log) Approved() (got, need int) {
	if l.Op == nil {
		return 0, 0
	}
	if need = l.Terms.Approvals; l.Op.Attested {
		need = max(need, 2)
	}
	return distinct(l.Op.Approvals, l.Op.Actor, ""), need
}

// Unaccepted holds the frozen bound of what is lost against what was accepted; nil: it is
// within that. Unknown is more than any bound. It is asked of a move that is ready: the bound
// changes no more, so a move that it refuses never comes to its end.
func (o *Op) Unaccepted() error {
	if o.Kind == Planned || o.Proof.Kind == Marker && o.Lost.none() {
		return nil
	}
	waived := slices.Contains(o.Overrides, RuleUnknown)
	limit, lost := o.Accepted, o.Lost
	switch {
	case lost.Span == nil && !waived, limit.Records != nil && lost.Records == nil && !waived:
		return broken(RuleUnknown, "nobody knows what would be lost; override S4 if it must be")
	case limit.Span != nil && lost.Span != nil && *lost.Span > *limit.Span:
		return broken(RuleCutFirst, fmt.Sprintf("up to %s may be lost, %s are accepted; begin again with more", *lost.Span, *limit.Span))
	case limit.Records != nil && lost.Records != nil && *lost.Records > *limit.Records:
		return broken(RuleCutFirst, fmt.Sprintf("up to %d records may be lost, %d are accepted; begin again with more", *lost.Records, *limit.Records))
	}
	return nil
}

func (l *Loss) none() bool {
	return l.Span != nil && *l.Span == 0 && l.Records != nil && *l.Records == 0
}

// approve notes one person's consent to exactly this plan.
func approve(l *Log, c *Command) error {
	op, a := l.Op, c.Approvals[0]
	switch {
	case op == nil || op.ID != c.Op:
		return conflict("op", opID(l), "the log has no such move; look at its state")
	case op.Step == Flipped:
		return broken(RuleNoReopen, "the new home is decided")
	case c.Plan != op.Plan:
		return conflict("plan", op.Plan, "the move follows another plan; read it before approving")
	case a.Actor != c.Actor:
		return bad("approvals", "everyone approves for themselves")
	case len(op.Approvals) >= maxApprovals:
		return bad("approvals", fmt.Sprintf("at most %d", maxApprovals))
	}
	op.Approvals = append(op.Approvals, a)
	return nil
}

// abort ends a move and, since a marker may exist from its beginning on, the epoch. The
// log stays with its home, which has to open the next epoch.
func (s *State) abort(l *Log, c *Command) error {
	if l.Op == nil || l.Op.ID != c.Op {
		return conflict("op", opID(l), "the log has no such move; look at its state")
	}
	if l.Op.Step == Flipped {
		return broken(RuleNoReopen, "the new home is decided; begin a new move to leave it")
	}
	s.drop(l, ByAbort)
	return nil
}

func (s *State) drop(l *Log, how How) {
	e := Ended{How: how}
	if p := l.Op.Proof; p != nil && p.Kind == Marker {
		e.End, e.EndKnown, e.Proof = p.End, true, p.Kind
	}
	l.end(e)
	l.Epoch, l.Status, l.Op = s.next(l.Epoch), Opening, nil
}

// opened is the home's report that it writes the epoch from Point.End on.
func opened(l *Log, c *Command) error {
	if err := opening(l, c); err != nil {
		return err
	}
	if err := l.began(c.Point.End); err != nil {
		return err
	}
	l.Status, l.Op, l.Refused, l.Held = Active, nil, "", nil
	return nil
}

// denied keeps the log shut: its own home may not hold it. A new move is allowed.
func denied(l *Log, c *Command) error {
	if err := opening(l, c); err != nil {
		return err
	}
	if !c.Denial.Known() {
		return bad("denial", "a code of the table")
	}
	l.Refused = c.Denial
	return nil
}

// opening: the home that is to open says what became of it.
func opening(l *Log, c *Command) error {
	switch {
	case l.Status != Opening:
		return broken(RuleNoReopen, fmt.Sprintf("the log is %s", l.Status))
	case c.Region != l.Home:
		return notHome(c.Region, l.Home)
	}
	return nil
}
