package placement

import (
	"maps"
	"slices"
)

// found begins an authority: the first one by all voters together, or one that goes on
// from what a region had in its cache when the majority of the voters is gone. The second
// is a generation of its own, so that no epoch of it can be mistaken for one of the first.
func (s *State) found(c *Command) (Result, error) {
	f := c.Founding
	switch {
	case s.generation != 0:
		return Result{}, conflict("generation", "", "the authority is founded already")
	case f.Authority == "" || !plain(f.Authority) || !plain(f.Region) || f.Region == Quorum:
		return Result{}, bad("founding", "it needs a random name of its own, and a region's name that is no reserved word")
	}
	if len(f.Cache) == 0 {
		if f.Region != "" {
			return Result{}, bad("cache", "a region founds an authority only from its cache")
		}
		*s = State{generation: 1, authority: f.Authority, issuer: Quorum}
		s.makeMaps()
		s.version++
		return Result{}, nil
	}
	if f.Region == "" {
		return Result{}, bad("founding", "name the region that founds it")
	}
	if distinct(c.Approvals, c.Actor, "") < 2 {
		return Result{}, broken(RuleApprovals, "two people, neither of them the one who asks, have to approve")
	}
	base, err := Restore(f.Cache)
	if err != nil {
		return Result{}, err
	}
	if base.generation == 0 {
		return Result{}, bad("cache", "it is of an authority that was never founded")
	}
	base.goOn(f)
	*s = *base
	return Result{}, nil
}

// goOn makes a cached state the first of a new generation. Moves that were open are
// dropped: nobody can tell whether the other authority finished them.
func (s *State) goOn(f *Founding) {
	s.generation, s.authority, s.issuer, s.voters = s.generation+1, f.Authority, f.Region, nil
	s.answers, s.renewed = answers{}, map[string]uint64{}
	s.version++
	for _, name := range slices.Sorted(maps.Keys(s.logs)) {
		if l := s.logs[name]; l.Status == Moving {
			s.drop(l, ByFounding)
			l.Version = s.version
		}
	}
}

func (s *State) makeMaps() {
	if s.logs == nil {
		s.logs = map[string]*Log{}
	}
	if s.retired == nil {
		s.retired = map[string]Gone{}
	}
	if s.renewed == nil {
		s.renewed = map[string]uint64{}
	}
	if s.covers == nil {
		s.covers = map[string]Grant{}
	}
}
