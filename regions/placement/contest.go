package placement

import (
	"fmt"
	"maps"
	"slices"

	"domicile/api"
)

// Relation is how two views stand to each other.
type Relation string

// The relations. Of two authorities of one generation and two names neither is older.
const (
	Same    Relation = "same"
	Older   Relation = "older"   // the first was overtaken by the second
	Newer   Relation = "newer"   // the first has overtaken the second
	Rivals  Relation = "rivals"  // neither descends from the other
	Unknown Relation = "unknown" // one of the two does not have it
)

// Comparison is what two states that meet have to say of each other.
type Comparison struct {
	Authority Relation
	Logs      map[string]Relation // of the logs that differ, by incarnation
}

// Compare compares two states that were applied apart. It is symmetric: with the
// arguments exchanged every older is a newer.
func Compare(a, b *State) Comparison {
	c := Comparison{Authority: authorities(a, b), Logs: map[string]Relation{}}
	for name, l := range a.logs {
		if r := relate(l, b.logs[name]); r != Same {
			c.Logs[name] = r
		}
	}
	for name := range b.logs {
		if a.logs[name] == nil {
			c.Logs[name] = Unknown
		}
	}
	return c
}

// Contested lists the logs that both sides gave to someone, in order.
func (c Comparison) Contested() []string {
	var names []string
	for _, name := range slices.Sorted(maps.Keys(c.Logs)) {
		if c.Logs[name] == Rivals {
			names = append(names, name)
		}
	}
	return names
}

func authorities(a, b *State) Relation {
	switch {
	case a.generation < b.generation:
		return Older
	case a.generation > b.generation:
		return Newer
	case a.authority != b.authority:
		return Rivals
	}
	return Same
}

// relate says whether one placement of a log grew out of the other. An epoch has one
// home and one end; two that disagree about either are rivals.
func relate(a, b *Log) Relation {
	switch {
	case a == nil || b == nil:
		return Unknown
	case disagree(a, b):
		return Rivals
	case a.Epoch == b.Epoch:
		return Same
	case b.had(a.Epoch):
		return Older
	case a.had(b.Epoch):
		return Newer
	}
	return Rivals
}

func (l *Log) had(e api.Epoch) bool {
	return slices.ContainsFunc(l.History, func(h Ended) bool { return h.Epoch == e })
}

// disagree finds an epoch that both know and that has two homes or two ends.
func disagree(a, b *Log) bool {
	known := map[api.Epoch]Ended{}
	for _, h := range append(slices.Clone(a.History), Ended{Epoch: a.Epoch, Home: a.Home}) {
		known[h.Epoch] = h
	}
	for _, h := range append(slices.Clone(b.History), Ended{Epoch: b.Epoch, Home: b.Home}) {
		k, ok := known[h.Epoch]
		if ok && (k.Home != h.Home || k.EndKnown && h.EndKnown && k.End != h.End) {
			return true
		}
	}
	return false
}

func contested(l *Log) *api.Error {
	e := &api.Error{Code: api.Contested, Op: "place log", Field: "epoch", Value: l.Epoch.String(),
		Hint: "two authorities gave the log a home; resolve names the winner"}
	if l.Rival != nil {
		e.Hint = fmt.Sprintf("%s claims it by %s, %s by %s; resolve names the winner", l.Home, l.Epoch, l.Rival.Home, l.Rival.Epoch)
	}
	return e
}

// meet takes in what another authority says of one log.
func (s *State) meet(c *Command) (Result, error) {
	o := c.Other.Clone()
	if err := o.sound(c.Log); err != nil {
		return Result{}, err
	}
	l := s.logs[c.Log]
	if s.retired[c.Log] != (Gone{}) {
		return Result{}, broken(RuleNoReopen, "the log was retired; its incarnation never comes back")
	}
	if l == nil {
		if len(s.logs) >= MaxLogs {
			return Result{}, &api.Error{Code: api.Overloaded, Op: "place log", Field: "logs", Value: fmt.Sprint(MaxLogs), Hint: "retire logs that are gone"}
		}
		return s.adopt(o, c), nil
	}
	if l.Epoch != c.Expect {
		return Result{}, conflict("expected_epoch", l.Epoch.String(), "the log changed since; compare again")
	}
	if l.Status == Contested {
		return Result{}, contested(l)
	}
	switch relate(l, &o) {
	case Same, Newer:
		return Result{Epoch: l.Epoch, Status: l.Status}, nil
	case Older:
		if !slices.Contains(l.Terms.Allowed, o.Home) {
			return Result{}, outside(o.Home)
		}
		o.Terms = l.Terms
		return s.adopt(o.Clone(), c), nil
	}
	mine := l.Clone()
	mine.Status, mine.Rival = Contested, &o
	return s.store(mine, c), nil
}

// adopt takes the other authority's placement over. A move that was open there is dropped.
func (s *State) adopt(o Log, c *Command) Result {
	if o.Status == Moving {
		s.drop(&o, ByFounding)
	}
	return s.store(o, c)
}

// sound refuses a foreign placement that no authority can have come to.
func (l *Log) sound(incarnation string) error {
	if l.Incarnation != incarnation || !plain(l.Home) || l.Epoch.Counter == 0 || !plain(l.Epoch.Issuer) || l.Rival != nil {
		return bad("other", "no placement of this log")
	}
	if l.Status != Active && l.Status != Moving && l.Status != Opening || len(l.History) > maxHistory || len(l.Divergences) > maxDivergences {
		return bad("other", "no placement of this log")
	}
	if (l.Status == Moving) != (l.Op != nil && l.Op.Step != Flipped) {
		return bad("other", "a move without its state, or a state without its move")
	}
	if err := l.Terms.check(); err != nil {
		return err
	}
	if !slices.Contains(l.Terms.Allowed, l.Home) {
		return outside(l.Home)
	}
	if !l.whole() {
		return bad("other", "no placement that a voter could read again")
	}
	return nil
}

// resolve names the claim that stands. Of the other nothing stands but what both share,
// and its home rejoins as a copy.
func (s *State) resolve(l *Log, c *Command) error {
	if l.Status != Contested || l.Rival == nil {
		return conflict("state", string(l.Status), "the log is not contested")
	}
	mine, rival := l.Clone(), l.Rival.Clone()
	mine.Rival = nil
	if mine.Epoch == rival.Epoch || mine.had(rival.Epoch) || rival.had(mine.Epoch) {
		return broken(RuleOneHome, "both sides wrote in one epoch, and no rule can tell their records apart; retire the log and make a new one from the copy that you keep")
	}
	winner, loser := mine, rival
	if c.Winner == rival.Epoch && c.Home == rival.Home {
		winner, loser = rival, mine
	} else if c.Winner != mine.Epoch || c.Home != mine.Home {
		return conflict("winner", mine.Epoch.String()+" or "+rival.Epoch.String(), "name one of the two claims")
	}
	if !slices.Contains(mine.Terms.Allowed, winner.Home) {
		return outside(winner.Home)
	}
	void := loser.since(&winner)
	last := max(winner.Epoch.Counter, loser.Epoch.Counter)
	winner.Terms, winner.Op, winner.Held, winner.Refused = mine.Terms, nil, nil, ""
	winner.History = append(winner.History, void...)
	winner.end(Ended{How: ByResolve})
	winner.Epoch = s.next(api.Epoch{Term: max(winner.Epoch.Term, loser.Epoch.Term), Counter: last})
	winner.Status = Opening
	*l = winner.Clone()
	return nil
}

// since lists the epochs that l had and the other had not, as ones of which nothing
// stands: they end where the last epoch that both had ended on this side.
func (l *Log) since(other *Log) []Ended {
	var void []Ended
	end := uint64(0)
	for _, h := range append(slices.Clone(l.History), Ended{Epoch: l.Epoch, Home: l.Home}) {
		if other.had(h.Epoch) {
			end = h.End
			continue
		}
		void = append(void, Ended{Epoch: h.Epoch, Home: h.Home, End: end, EndKnown: true, How: AsLoser})
	}
	return void
}
