package placement

import (
	"maps"
	"slices"

	"domicile/api"
)

// Delta is what changed between two versions of the state: what a follower that has no
// vote needs to keep a copy. Answers and audit entries are not in it, the head of the
// audit is.
type Delta struct {
	After      uint64 // the version it follows; 0: it is the whole state
	Generation uint32
	Authority  string
	Issuer     string
	Voters     []string `json:",omitempty"`
	Version    uint64
	Applied    uint64
	Logs       []Log           `json:",omitempty"`
	Retired    map[string]Gone `json:",omitempty"`
	Entries    uint64          // of the audit
	Head       string          // hash of the last
}

// Since is what changed after a version under the same authority. Whoever has another
// authority's state asks for all of it, with version 0.
func (s *State) Since(version uint64) Delta {
	if version > s.version {
		version = 0
	}
	d := Delta{
		After: version, Generation: s.generation, Authority: s.authority, Issuer: s.issuer, Voters: slices.Clone(s.voters), Version: s.version,
		Applied: s.applied, Logs: s.Changed(version), Entries: s.audit.Number, Head: s.audit.Head,
	}
	for name, gone := range s.retired {
		if gone.Version > version || version == 0 {
			if d.Retired == nil {
				d.Retired = map[string]Gone{}
			}
			d.Retired[name] = gone
		}
	}
	return d
}

// Follow takes a delta into a copy. It refuses what does not follow on it, what an older
// authority says, and what a rival one says: a copy changes sides upwards only.
func (s *State) Follow(d Delta) error {
	whole := d.After == 0
	switch {
	case d.Generation < s.generation:
		return conflict("generation", "", "an older authority; ask another voter")
	case d.Generation == s.generation && d.Authority != s.authority:
		return &api.Error{Code: api.Contested, Op: "follow placement", Field: "authority", Hint: "two authorities of one generation; found one anew"}
	case !whole && (d.Generation != s.generation || d.After != s.version):
		return conflict("version", "", "changes are missing; ask for the whole state")
	case d.Generation == s.generation && d.Version < s.version:
		return conflict("version", "", "the voter is behind this copy")
	}
	for i := range d.Logs {
		if !d.Logs[i].whole() || d.Logs[i].Incarnation == "" {
			return bad("delta", "a log that no authority can have placed")
		}
	}
	if whole {
		*s = State{}
	}
	s.makeMaps()
	s.generation, s.authority, s.issuer, s.voters = d.Generation, d.Authority, d.Issuer, slices.Clone(d.Voters)
	s.version, s.applied = d.Version, d.Applied
	for _, l := range d.Logs {
		l = l.Clone()
		s.logs[l.Incarnation] = &l
	}
	for name := range d.Retired {
		delete(s.logs, name)
	}
	maps.Copy(s.retired, d.Retired)
	s.audit, s.answers = audit{Number: d.Entries, Head: d.Head}, answers{}
	clear(s.covers)
	return nil
}
