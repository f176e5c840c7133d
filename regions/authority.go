package regions

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Council is who decides which region owns a log that may move: one voter per region,
// and perhaps one witness, the same in every region's manifest.
type Council struct {
	Voters  []string            `yaml:"voters"`
	Witness map[string]*Witness `yaml:"witness"` // by its name, which is no region's; at most one
}

// Witness is a voter that is in no region: it has no place in a boundary, holds no log and
// gets no record. With two regions it makes a third voice, which stays when one of them goes.
type Witness struct {
	Name string `yaml:"-"`
	Link string `yaml:"link"` // host:port at which all regions reach it
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
	case len(voters)+len(m.Authority.Witness) > maxVoters:
		return bad("authority.voters", strings.Join(voters, ","), "at most five: the other regions follow without a vote")
	}
	if err := m.addWitness(f); err != nil {
		return err
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
	if f.witness.Name != "" {
		f.voters = slices.Sorted(slices.Values(append(voters, f.witness.Name)))
	}
	return nil
}

func (m *manifestFile) addWitness(f *state) error {
	names := slices.Sorted(maps.Keys(m.Authority.Witness))
	if len(names) > 1 {
		return bad("authority.witness", strings.Join(names, ","), "one witness at most: it breaks a tie, and regions are the other voters")
	}
	for _, name := range names {
		field, w := "authority.witness."+name, m.Authority.Witness[name]
		if err := CheckRegionName(name); err != nil {
			return bad(field, name, err.Error())
		}
		if _, ok := f.regions[name]; ok {
			return bad(field, name, "it is a region's name: a witness is in none, and holds no record of any")
		}
		if w == nil || w.Link == "" {
			return bad(field+".link", "", "give the host:port at which the regions reach it")
		}
		for _, r := range f.regionNames {
			if region := f.regions[r]; slices.Contains(region.Links(), w.Link) {
				return bad(field+".link", w.Link, fmt.Sprintf("region %s has the same address", r))
			}
		}
		f.witness = Witness{Name: name, Link: w.Link}
	}
	return nil
}

// Witness is the voter that is in no region; false: there is none.
func (f *Federation) Witness() (Witness, bool) {
	w := f.now.Load().witness
	return w, w.Name != ""
}

// Witnesses lists the addresses, by name, of those with whom a region, or the witness, speaks
// of the placement of logs and of nothing else: a region's witness, and the witness's regions.
func (f *Federation) Witnesses(self string) map[string][]string {
	now, all := f.now.Load(), map[string][]string{}
	switch now.witness.Name {
	case "":
	case self:
		for name, r := range now.regions {
			all[name] = r.Links()
		}
	default:
		all[now.witness.Name] = []string{now.witness.Link}
	}
	return all
}

// Voters lists the regions, and the witness, that decide together which region owns a log
// that may move, by name; none: no log of this federation moves.
func (f *Federation) Voters() []string { return f.now.Load().voters }
