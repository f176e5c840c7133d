package lab

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"domicile/deploy"
	"domicile/regions"
	"domicile/regions/identity"
)

// Founding is a federation that was given addresses on this machine.
type Founding struct {
	Federation *regions.Federation
	Manifest   []byte // its federation.yaml
	Authority  *identity.Authority
}

// Found makes a federation like the one of a manifest of solo regions; nil: like the
// example. place is asked for each region's entry in the new manifest, and the witness's, and may have
// certificates from the authority, which is valid for as long as told. number counts
// the regions from 1.
func Found(manifest []byte, validity time.Duration, place func(region string, number int, authority *identity.Authority) (entry string, err error)) (*Founding, error) {
	if manifest == nil {
		manifest = deploy.FederationYAML
	}
	planned, err := regions.ParseManifest("federation.yaml", manifest)
	if err != nil {
		return nil, err
	}
	f := &Founding{}
	if f.Authority, err = identity.NewCA(planned.Name(), time.Now(), validity); err != nil {
		return nil, err
	}
	text, names := string(manifest), planned.Regions()
	witness, there := planned.Witness()
	if there {
		names = append(slices.Clone(names), witness.Name)
	}
	for i, name := range names {
		entry, err := place(name, i+1, f.Authority)
		if err != nil {
			return nil, fmt.Errorf("settle %s: %w", name, err)
		}
		address := witness.Link
		if r, ok := planned.Region(name); ok {
			address = r.Link
		}
		old := `{link: "` + address + `"}`
		if !strings.Contains(text, old) {
			return nil, fmt.Errorf("%s is not written as %s in the manifest", name, old)
		}
		text = strings.ReplaceAll(text, old, entry)
	}
	f.Manifest = []byte(text)
	f.Federation, err = regions.ParseManifest("federation.yaml", f.Manifest)
	return f, err
}
