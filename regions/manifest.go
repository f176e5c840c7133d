package regions

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"domicile/api"
	"domicile/regions/strict"
)

// manifestFile is federation.yaml as it is written.
type manifestFile struct {
	Version    int                 `yaml:"version"`
	Federation string              `yaml:"federation"`
	Regions    map[string]*Region  `yaml:"regions"`
	Boundaries map[string][]string `yaml:"boundaries"`
	Links      [][]string          `yaml:"links"` // pairs; absent: every pair
	Authority  *Council            `yaml:"authority"`
	Drills     *Drills             `yaml:"drills"` // absent: nobody may cut a link on purpose
	Topics     map[string]*Topic   `yaml:"topics"`
}

// state is one manifest as it was loaded. It is never changed.
type state struct {
	name        string
	sum         string // digest of everything in it, in canonical form
	regions     map[string]Region
	regionNames []string
	boundaries  map[string]Boundary
	topics      map[string]*Topic
	topicNames  []string
	digests     map[string]string
	links       map[string][]string
	voters      []string // the witness included
	witness     Witness  // without a name: there is none
	drills      *Drills
	placed      map[api.LogID]Placed // what the authority says, over what the manifest says
	logs        map[string][]slot    // of each topic, with both taken together
}

// LoadManifest reads and checks federation.yaml.
func LoadManifest(path string) (*Federation, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, &api.Error{Code: api.ConfigInvalid, Op: "read manifest", Err: err, Hint: "set federation: in node.yaml to the path of federation.yaml"}
	}
	return ParseManifest(path, data)
}

// ParseManifest checks a manifest. Every error names the field and the way out; a
// value that a later version will carry out is refused with NotInThisVersion.
func ParseManifest(file string, data []byte) (*Federation, error) {
	var m manifestFile
	if err := strict.Decode(file, data, &m); err != nil {
		return nil, err
	}
	f := &state{
		name: m.Federation, regions: map[string]Region{}, boundaries: map[string]Boundary{},
		topics: map[string]*Topic{}, digests: map[string]string{}, links: map[string][]string{},
	}
	for _, step := range []func(*state) error{m.checkHead, m.addRegions, m.addBoundaries, m.addLinks, m.addAuthority, m.addDrills, m.addTopics} {
		if err := step(f); err != nil {
			return nil, err
		}
	}
	f.sum = f.digest()
	return newFederation(f.with(nil)), nil
}

func bad(field, value, hint string) error {
	return &api.Error{Code: api.ConfigInvalid, Op: "check manifest", Field: field, Value: value, Hint: hint}
}

func notYet(field, value, hint string) error {
	return &api.Error{Code: api.NotInThisVersion, Op: "check manifest", Field: field, Value: value, Hint: hint}
}

func (m *manifestFile) checkHead(*state) error {
	if m.Version != 1 {
		return bad("version", fmt.Sprint(m.Version), "this binary reads version: 1")
	}
	if err := CheckName(m.Federation); err != nil {
		return bad("federation", m.Federation, err.Error())
	}
	if len(m.Regions) == 0 {
		return bad("regions", "", "name at least one region")
	}
	return nil
}

func (m *manifestFile) addRegions(f *state) error {
	addresses := map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(m.Regions)) {
		field := "regions." + name
		if err := CheckRegionName(name); err != nil {
			return bad(field, name, err.Error())
		}
		r := m.Regions[name]
		if err := r.check(field); err != nil {
			return err
		}
		for _, link := range r.Links() {
			if other, taken := addresses[link]; taken {
				return bad(field+".link", link, "region "+other+" has the same address: one region, one name")
			}
			addresses[link] = name
		}
		f.regions[name] = Region{Name: name, Link: r.Link, Gateways: r.Gateways}
		f.regionNames = append(f.regionNames, name)
	}
	return nil
}

// check refuses a region that is neither solo nor quorum.
func (r *Region) check(field string) error {
	switch {
	case r == nil || r.Link == "" && !r.Quorum():
		return bad(field+".link", "", "give the host:port at which other regions reach it, or the gateways of a quorum region")
	case r.Link != "" && r.Quorum():
		return bad(field+".gateways", r.Link, "a solo region has a link, a quorum region has gateways: write one of the two")
	case r.Quorum() && len(r.Gateways) != QuorumNodes:
		return bad(field+".gateways", fmt.Sprint(len(r.Gateways)), fmt.Sprintf("a quorum region has %d gateways", QuorumNodes))
	}
	for _, name := range slices.Sorted(maps.Keys(r.Gateways)) {
		if err := CheckRegionName(name); err != nil {
			return bad(field+".gateways", name, err.Error())
		}
		if r.Gateways[name] == "" {
			return bad(field+".gateways."+name, "", "give the host:port at which other regions reach this gateway")
		}
	}
	return nil
}

func (m *manifestFile) addBoundaries(f *state) error {
	for _, name := range slices.Sorted(maps.Keys(m.Boundaries)) {
		field := "boundaries." + name
		if err := CheckRegionName(name); err != nil {
			return bad(field, name, err.Error())
		}
		members := slices.Clone(m.Boundaries[name])
		if len(members) == 0 {
			return bad(field, name, "list at least one region")
		}
		slices.Sort(members)
		if len(slices.Compact(slices.Clone(members))) != len(members) {
			return bad(field, strings.Join(members, ","), "a region is listed twice")
		}
		for _, member := range members {
			r, ok := f.regions[member]
			if !ok {
				return bad(field, member, suggest("unknown region", member, f.regionNames))
			}
			if r.Boundary != "" {
				return bad(field, member, "already in boundary "+r.Boundary+": a region lies in one legal area")
			}
			r.Boundary = name
			f.regions[member] = r
		}
		f.boundaries[name] = Boundary{Name: name, Regions: members}
	}
	return nil
}

func (m *manifestFile) addLinks(f *state) error {
	pairs := m.Links
	if pairs == nil {
		for i, a := range f.regionNames {
			for _, b := range f.regionNames[i+1:] {
				pairs = append(pairs, []string{a, b})
			}
		}
	}
	for i, p := range pairs {
		field := fmt.Sprintf("links[%d]", i)
		if len(p) != 2 || p[0] == p[1] {
			return bad(field, strings.Join(p, ","), "a link is a pair of two different regions")
		}
		for _, r := range p {
			if _, ok := f.regions[r]; !ok {
				return bad(field, r, suggest("unknown region", r, f.regionNames))
			}
		}
		if slices.Contains(f.links[p[0]], p[1]) {
			return bad(field, strings.Join(p, ","), "the pair is listed twice")
		}
		f.links[p[0]] = append(f.links[p[0]], p[1])
		f.links[p[1]] = append(f.links[p[1]], p[0])
	}
	for r := range f.links {
		slices.Sort(f.links[r])
	}
	return nil
}

func (m *manifestFile) addTopics(f *state) error {
	for _, name := range slices.Sorted(maps.Keys(m.Topics)) {
		t := m.Topics[name]
		if t == nil {
			return bad("topics."+name, "", "say at least how it is written: writes: local or writes: home")
		}
		t.Name = name
		if err := t.complete(f); err != nil {
			return err
		}
		f.topics[name] = t
		f.topicNames = append(f.topicNames, name)
		f.digests[name] = digestOf(t.Fields())
	}
	return nil
}

func (f *state) boundaryNames() []string { return slices.Sorted(maps.Keys(f.boundaries)) }

func digestOf(v any) string {
	b, err := json.Marshal(v) // maps are written in key order
	if err != nil {
		panic("digest: " + err.Error()) // only strings and maps of strings come here
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:8])
}

func (f *state) digest() string {
	regions := map[string]string{}
	for name, r := range f.regions {
		regions[name] = strings.Join(r.Links(), ",") + "|" + r.Boundary
	}
	links := map[string]string{}
	for name, peers := range f.links {
		links[name] = strings.Join(peers, ",")
	}
	all := map[string]any{"federation": f.name, "regions": regions, "links": links, "topics": f.digests}
	if len(f.voters) > 0 {
		all["authority"] = f.voters
	}
	if f.witness.Name != "" {
		all["witness"] = f.witness.Name + "|" + f.witness.Link
	}
	if f.drills != nil {
		all["drills"] = f.drills.String()
	}
	return digestOf(all)
}

// Defaults of a topic.
const (
	DefaultMaxAge       = 7 * 24 * time.Hour
	DefaultMaxBytes     = 1 << 30
	MinMaxBytes         = 8 << 20
	DefaultBatchRecords = 512
	DefaultBatchBytes   = 1 << 20
	DefaultBatchLinger  = 5 * time.Millisecond
)
