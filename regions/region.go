package regions

import (
	"maps"
	"slices"
)

// GlobalResidency is the residency value of a record that may rest anywhere.
const GlobalResidency = "global"

// ResidencyTag is the name of the tag dimension that says where a record may rest.
const ResidencyTag = "residency"

// QuorumNodes is the number of gateways of a quorum region.
const QuorumNodes = 3

// Region is one independent fabric with its gateways: a solo region has one, which is
// reached at Link; a quorum region has three, and whichever holds the region's seat
// answers at its own address.
type Region struct {
	Name     string            `yaml:"-"`
	Link     string            `yaml:"link"`     // solo: host:port at which other regions reach it
	Gateways map[string]string `yaml:"gateways"` // quorum: gateway's name → its host:port for links
	Boundary string            `yaml:"-"`        // "" : in no boundary, keeps only what is global
}

// Quorum reports whether the region is one of three gateways.
func (r *Region) Quorum() bool { return len(r.Gateways) > 0 }

// Links lists the addresses at which other regions reach it, in the order of the
// gateways' names.
func (r *Region) Links() []string {
	if !r.Quorum() {
		return []string{r.Link}
	}
	links := make([]string, 0, len(r.Gateways))
	for _, name := range slices.Sorted(maps.Keys(r.Gateways)) {
		links = append(links, r.Gateways[name])
	}
	return links
}

// Boundary is a set of regions that form one legal area. Its name is a value of the
// residency tag.
type Boundary struct {
	Name    string
	Regions []string
}

// Floor is the second floor under the policy: the regions in which a record of this
// residency may rest by the map alone. It is computed in Go, whatever the policy
// says. An unknown or empty residency may rest nowhere.
func (f *Federation) Floor(residency string) []string { return f.now.Load().floor(residency) }

func (f *state) floor(residency string) []string {
	if residency == GlobalResidency {
		return f.regionNames
	}
	if b, ok := f.boundaries[residency]; ok {
		return b.Regions
	}
	return nil
}

// MayRest reports whether the map alone lets a record of this residency rest in the
// region. Unknown means no.
func (f *Federation) MayRest(residency, region string) bool {
	now := f.now.Load()
	if _, ok := now.regions[region]; !ok {
		return false
	}
	return slices.Contains(now.floor(residency), region)
}
