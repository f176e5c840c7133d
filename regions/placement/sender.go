package placement

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"
	"strings"

	"domicile/api"
)

// says lists who may send a command of each verb. It is the whole of it: what is not in it
// nobody may.
func says() map[Verb]party {
	return map[Verb]party{
		Found: byAuthority, Voters: byAuthority, Renew: byAuthority, Meet: byAuthority,
		Declare: byHome, Alter: byHome, Retire: byHome, Opened: byHome, Denied: byHome,
		Begin: byMover, Abort: byMover,
		Approve: anyone, // what counts is whose signature it brings
		Prove:   byProof,
		FixCut:  byTarget, CaughtUp: byTarget, Frozen: byTarget, Flip: byTarget,
		Diverged: byHolder, Closed: byHolder,
		Resolve: byClaimant,
	}
}

// Owned reports whether a command is the authority's own, which no region sends.
func (c *Command) Owned() bool {
	who := says()[c.Verb]
	return who == byAuthority || who == "" || c.Verb == Prove && c.Proof != nil && c.Proof.Kind == Lapsed
}

// May refuses a command that its sender, c.Region, has no say in as the log is now, with
// PermissionDenied; whoever goes by an older state gets a conflict. It is asked before a
// command is proposed and never when one is applied: entries that are in the authority's log
// already were judged by the rules of their time. seen is the version of the log that the
// sender had: an alteration, which leaves the epoch as it is, is for that one only.
func (s *State) May(c Command, seen uint64) error {
	if err := c.check(); err != nil {
		return err
	}
	if s.generation == 0 {
		return &api.Error{Code: api.NotReady, Op: "place log", Hint: "the authority is not founded yet, or was not heard here"}
	}
	if c.Region == "" || c.Owned() {
		return strange(&c, "its home")
	}
	if a, ok := s.answers.find(c.ID); ok {
		if said, err := c.content(); err != nil || a.Content != said {
			return conflict("id", "", "the id was used for another command; take a new one")
		}
		return nil // its sender asks for the answer
	}
	if err := s.ownID(&c); err != nil {
		return err
	}
	if c.Verb == Declare {
		if c.Region != c.Home {
			return strange(&c, c.Home)
		}
		return nil
	}
	l, err := s.expected(&c)
	if err != nil {
		return err
	}
	if c.Op != "" && c.Op != opID(l) {
		return conflict("op", opID(l), "the log has no such move; look at its state")
	}
	if who := l.sayers(&c); who != nil && !slices.Contains(who, c.Region) {
		return strange(&c, who[0])
	}
	if c.Verb == Alter && l.Version != seen {
		return conflict("version", "", "the log changed since; look again and decide anew")
	}
	return nil
}

// sayers are the regions that may send a command of the log; nil: any may.
func (l *Log) sayers(c *Command) []string {
	home, target, who := []string{l.Home}, []string{l.Home}, says()[c.Verb]
	if l.Op != nil {
		target = []string{l.Op.Target}
	}
	if who == byProof {
		who = map[ProofKind]party{Diverges: byTarget, Attested: byTarget}[c.Proof.Kind]
	}
	switch who {
	case anyone:
		return nil
	case byTarget:
		return target
	case byMover:
		return slices.Concat(home, target, l.Terms.Targets)
	case byClaimant:
		if l.Rival != nil {
			home = append(home, l.Rival.Home)
		}
		return append(home, l.Terms.Targets...)
	case byHolder:
		return l.holders(c.Divergence)
	}
	return home
}

// holders are the regions that may say of a divergence: the one that it names, if it may
// have the log, or had it.
func (l *Log) holders(d *Divergence) []string {
	had := slices.ContainsFunc(l.History, func(e Ended) bool { return e.Home == d.Region })
	if had || slices.Contains(l.Terms.Allowed, d.Region) {
		return []string{d.Region}
	}
	return []string{l.Home}
}

// ownID refuses an id that others will need: ids follow from what is said, so that it is said
// once, and whoever used up the one of another region's next step would keep it from it.
func (s *State) ownID(c *Command) error {
	foreign := &api.Error{Code: api.PermissionDenied, Op: "place log", Field: "id", Value: c.ID,
		Hint: "the id is another command's; name your own"}
	words := strings.Split(c.ID, "/")
	if says()[Verb(words[0])] != "" && Verb(words[0]) != c.Verb || c.Verb == Declare && len(words) > 1 && words[1] != c.Log {
		return foreign
	}
	l := s.logs[c.Log]
	for _, w := range words {
		if w != c.Log && s.logs[w] != nil {
			return foreign
		}
		part := l != nil && (w == l.Home || slices.Contains(l.Terms.Allowed, w))
		if part && w != c.Region && Verb(words[0]) != Approve { // the id of an approval ends with a person's name
			return foreign
		}
	}
	for _, other := range s.logs {
		if other.Op != nil && other.Incarnation != c.Log && slices.Contains(words, other.Op.Plan) {
			return foreign
		}
	}
	return nil
}

func strange(c *Command, who string) *api.Error {
	return &api.Error{Code: api.PermissionDenied, Op: "place log", Region: who, Field: "region", Value: c.Region,
		Hint: "this region has no say in that (" + string(c.Verb) + "): ask a node of " + who}
}

// Binding names all that people consent to in a move. It ends the plan's name, which is what
// they sign, so that no approval stands for another move than it was given for.
func (m *Move) Binding(log string, epoch api.Epoch) string {
	text, err := json.Marshal(struct {
		Log       string
		Epoch     api.Epoch
		Kind      Kind
		Target    string
		Accepted  Loss
		Divergent bool
		Attested  bool
		Overrides []string
	}{log, epoch, m.Kind, m.Target, m.Accepted, m.Divergent, m.Attested, append([]string{}, m.Overrides...)})
	if err != nil {
		panic("placement: " + err.Error()) // only strings, numbers and flags
	}
	sum := sha256.Sum256(append([]byte("domicile move 1\n"), text...))
	return hex.EncodeToString(sum[:16])
}

// Binding is that of the move under way, or of one that waits for its home to open; "": there
// is none.
func (l *Log) Binding() string {
	op, epoch := l.Op, l.Epoch
	if op == nil {
		return ""
	}
	if n := len(l.History); op.Step == Flipped && n > 0 {
		epoch = l.History[n-1].Epoch
	}
	m := Move{Kind: op.Kind, Target: op.Target, Accepted: op.Accepted, Divergent: op.Divergent, Attested: op.Attested, Overrides: op.Overrides}
	return m.Binding(l.Incarnation, epoch)
}
