package regions

import (
	"slices"
	"strings"
)

// Council is who decides which region owns a log that may move: one voter per region,
// the same in every region's manifest.
type Council struct {
	Voters []string `yaml:"voters"`
}

// maxVoters bounds a council: with more, each decision waits for more regions and nothing
// is gained.
const maxVoters = 5

func (m *manifestFile) addAuthority(f *state) error {
	if m.Authority == nil {
		return nil
	}
	voters := slices.Sorted(slices.Values(m.Authority.Voters))
	switch {
	case len(voters) == 0:
		return bad("authority.voters", "", "name the regions that vote, or leave authority out: then no log moves")
	case len(voters) > maxVoters:
		return bad("authority.voters", strings.Join(voters, ","), "at most five: the other regions follow without a vote")
	}
	for i, v := range voters {
		if _, ok := f.regions[v]; !ok {
			return bad("authority.voters", v, suggest("unknown region", v, f.regionNames))
		}
		if i > 0 && voters[i-1] == v {
			return bad("authority.voters", v, "the region is listed twice")
		}
		for _, other := range voters[:i] {
			if !slices.Contains(f.links[v], other) {
				return bad("authority.voters", v, "it has no link with "+other+": every two voters need one")
			}
		}
	}
	for _, r := range f.regionNames {
		if !slices.Contains(voters, r) && !slices.ContainsFunc(voters, func(v string) bool { return slices.Contains(f.links[r], v) }) {
			return bad("authority.voters", strings.Join(voters, ","), r+" has no link with any of them, so it could not learn who owns a log")
		}
	}
	f.voters = voters
	return nil
}

// Voters lists the regions that decide together which region owns a log that may move, by
// name; none: no log of this federation moves.
func (f *Federation) Voters() []string { return f.now.Load().voters }
