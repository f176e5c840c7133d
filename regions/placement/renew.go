package placement

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
)

// Grant is what a region's renewal covers.
type Grant struct {
	Region     string
	Generation uint32
	Index      uint64   // of the entry
	Digest     string   // over the logs that are covered, see CoverDigest
	Revoked    []string `json:",omitempty"` // logs of the region that are not: incarnations, in order
}

// renew prolongs the leases of whole regions. It refuses nothing: what a region may no
// longer write is left out of what its renewal covers.
func (s *State) renew(index uint64, regions []string) Result {
	s.applied = index
	r := Result{Version: s.version}
	for _, region := range regions {
		if _, known := s.renewed[region]; !known && len(s.renewed) >= MaxRegions {
			continue
		}
		s.renewed[region] = index
		g := s.cover(region)
		g.Index = index
		r.Grants = append(r.Grants, g)
	}
	return r
}

// Renewed is the index of the region's last renewal under this authority.
func (s *State) Renewed(region string) uint64 { return s.renewed[region] }

func (s *State) cover(region string) Grant {
	if g, ok := s.covers[region]; ok {
		return g
	}
	g := Grant{Region: region, Generation: s.generation}
	var covered []Log
	for _, name := range slices.Sorted(maps.Keys(s.logs)) {
		l := s.logs[name]
		switch {
		case l.Terms.Isolation != FenceAfter || l.Home != region:
		case l.leased():
			covered = append(covered, *l)
		default:
			g.Revoked = append(g.Revoked, name)
		}
	}
	g.Digest = CoverDigest(covered)
	s.covers[region] = g
	return g
}

// CoverDigest identifies a set of logs with epoch and length of lease, whatever their
// order. A home compares it with the digest of what it thinks it owns.
func CoverDigest(logs []Log) string {
	lines := make([]string, len(logs))
	for i, l := range logs {
		lines[i] = fmt.Sprintf("%q %s %d\n", l.Incarnation, l.Epoch, l.Terms.FenceAfter)
	}
	slices.Sort(lines)
	h := sha256.New()
	for _, line := range lines {
		h.Write([]byte(line))
	}
	return hex.EncodeToString(h.Sum(nil))
}
