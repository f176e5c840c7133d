package regions

import (
	"slices"
)

// GlobalResidency is the residency value of a record that may rest anywhere.
const GlobalResidency = "global"

// ResidencyTag is the name of the tag dimension that says where a record may rest.
const ResidencyTag = "residency"

// Region is one independent fabric with its gateways.
type Region struct {
	Name     string `yaml:"-"`
	Link     string `yaml:"link"` // host:port at which other regions reach it
	Boundary string `yaml:"-"`    // "" : in no boundary, keeps only what is global
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
func (f *Federation) Floor(residency string) []string {
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
	if _, ok := f.regions[region]; !ok {
		return false
	}
	return slices.Contains(f.Floor(residency), region)
}
