package placement

import (
	"maps"
	"slices"
	"strings"

	"domicile/api"
	"domicile/regions"
)

// Quorum is the issuer of the epochs of an authority that all voters began together.
const Quorum = regions.QuorumIssuer

// State is the state of the authority. The zero value is one that was not founded yet.
// It is not safe for concurrent use.
type State struct {
	generation uint32
	authority  string
	issuer     string
	voters     []string
	version    uint64
	applied    uint64
	logs       map[string]*Log
	retired    map[string]Gone
	renewed    map[string]uint64 // index of each region's last renewal under this authority
	answers    answers
	audit      audit

	covers map[string]Grant // what a renewal of each region covers; derived
}

// Generation counts the foundings: 0 before the first.
func (s *State) Generation() uint32 { return s.generation }

// Authority is the random name of the present founding.
func (s *State) Authority() string { return s.authority }

// Issuer stands in the epochs that this authority gives.
func (s *State) Issuer() string { return s.issuer }

// Voters are who was last noted as voting.
func (s *State) Voters() []string { return slices.Clone(s.voters) }

// Version counts the changes, over all generations. Renewals are none.
func (s *State) Version() uint64 { return s.version }

// Applied is the index of the last entry that was taken, renewals included.
func (s *State) Applied() uint64 { return s.applied }

// Log is the placement of one log.
func (s *State) Log(incarnation string) (Log, bool) {
	l, ok := s.logs[incarnation]
	if !ok {
		return Log{}, false
	}
	return l.Clone(), true
}

// Len is how many logs there are.
func (s *State) Len() int { return len(s.logs) }

// Changed lists the logs that changed after a version, in the order of their names.
func (s *State) Changed(after uint64) []Log {
	var list []Log
	for _, name := range slices.Sorted(maps.Keys(s.logs)) {
		if l := s.logs[name]; l.Version > after {
			list = append(list, l.Clone())
		}
	}
	return list
}

// Moving lists the logs with a move under way, in the order of their names.
func (s *State) Moving() []Log {
	var list []Log
	for _, l := range s.logs {
		if l.Status == Moving {
			list = append(list, l.Clone())
		}
	}
	slices.SortFunc(list, func(a, b Log) int { return strings.Compare(a.Incarnation, b.Incarnation) })
	return list
}

// Gone is what is kept of a retired log.
type Gone struct {
	Epoch   api.Epoch // its last
	Version uint64    // of the state when it was retired
}

// Leases reports whether any log's home needs a lease.
func (s *State) Leases() bool {
	for _, l := range s.logs {
		if l.Terms.Isolation == FenceAfter && l.Terms.Mode == Manual {
			return true
		}
	}
	return false
}

// Answered is what a command was answered with, as long as that is remembered. It is how
// a sender that lost the answer learns of it.
func (s *State) Answered(id string) (Result, bool) {
	a, ok := s.answers.find(id)
	return a.Result, ok
}

// Apply takes one entry of the authority's log. A refusal is an *api.Error and leaves the
// state as it was, byte by byte. Index grows from entry to entry.
func (s *State) Apply(index uint64, c Command) (Result, error) {
	if index <= s.applied {
		return Result{}, conflict("index", "", "the entry was applied before")
	}
	if err := c.check(); err != nil {
		return Result{}, err
	}
	if s.generation == 0 && c.Verb != Found {
		return Result{}, &api.Error{Code: api.NotReady, Op: "place log", Hint: "the authority is not founded yet"}
	}
	if c.Verb == Renew {
		return s.renew(index, c.Regions), nil
	}
	said, err := c.content()
	if err != nil {
		return Result{}, err
	}
	if a, ok := s.answers.find(c.ID); ok {
		if a.Content != said {
			return Result{}, conflict("id", "", "the id was used for another command; take a new one")
		}
		return a.Result, nil
	}
	var was api.Epoch
	if l := s.logs[c.Log]; l != nil {
		was = l.Epoch
	}
	r, err := s.change(index, &c)
	if err != nil {
		return Result{}, err
	}
	s.applied = index
	r.Version = s.version
	s.answers.keep(answer{ID: c.ID, Content: said, Result: r})
	s.audit.append(entryOf(index, c, said, was, r))
	clear(s.covers)
	return r, nil
}

// change does what a verb says, or nothing.
func (s *State) change(index uint64, c *Command) (Result, error) {
	switch c.Verb {
	case Found:
		return s.found(c)
	case Voters:
		return s.noteVoters(c)
	case Declare:
		return s.declare(c)
	case Meet:
		return s.meet(c)
	}
	old, err := s.expected(c)
	if err != nil {
		return Result{}, err
	}
	if c.Verb == Retire {
		return s.retire(old)
	}
	l := old.Clone()
	if l.Status == Contested && c.Verb != Resolve {
		return Result{}, contested(&l)
	}
	if err := s.edit(index, &l, c); err != nil {
		return Result{}, err
	}
	return s.store(l, c), nil
}

func (s *State) edit(index uint64, l *Log, c *Command) error {
	switch c.Verb {
	case Alter:
		return s.alter(l, c)
	case Begin:
		return s.begin(index, l, c)
	case Approve:
		return approve(l, c)
	case Abort:
		return s.abort(l, c)
	case Diverged:
		return diverged(l, c)
	case Closed:
		return closed(l, c)
	case Denied:
		return denied(l, c)
	case Resolve:
		return s.resolve(l, c)
	}
	return s.step(l, c)
}

// expected finds the log of a command, if it is still what its sender thinks.
func (s *State) expected(c *Command) (*Log, error) {
	l := s.logs[c.Log]
	switch {
	case l == nil && s.retired[c.Log] != (Gone{}):
		return nil, broken(RuleNoReopen, "the log was retired; its incarnation never comes back")
	case l == nil:
		return nil, bad("log", "no log of this incarnation is placed; declare it first")
	case l.Epoch != c.Expect:
		return nil, conflict("expected_epoch", l.Epoch.String(), "the log changed since; look again and decide anew")
	}
	return l, nil
}

// store makes l the log's state, and the change the next version.
func (s *State) store(l Log, c *Command) Result {
	s.version++
	l.Version, l.Reason, l.Actor = s.version, c.Reason, c.Actor
	s.logs[l.Incarnation] = &l
	return Result{Epoch: l.Epoch, Status: l.Status}
}

// next is the epoch after e under this authority.
func (s *State) next(e api.Epoch) api.Epoch {
	return api.Epoch{Term: max(s.generation, e.Term), Counter: e.Counter + 1, Issuer: s.issuer}
}
