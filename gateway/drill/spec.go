package drill

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"time"

	"domicile/api"
	"domicile/regions"
	"domicile/regions/link"
)

// Bounds of a lease: shorter and one lost packet heals it, longer and a controller that
// died leaves the region cut for too long.
const (
	MinLease = time.Second
	MaxLease = 5 * time.Minute
)

const maxID = 64 // bytes

// Spec is what is cut: the same at every node that takes part. Direction and planes are
// seen from the isolated region.
type Spec struct {
	Isolate   string
	Peers     []string // that it is cut off from
	Planes    []link.Plane
	Direction string // Both, or one of regions.In and regions.Out
	Fault     string // FaultCut or FaultBlackhole
	Gate      string // GateFilter, or else the gates in the nodes' processes
	Lease     time.Duration
	For       time.Duration // the longest that the cut may last
}

// The words of a Spec.
const (
	Both           = "both"
	FaultCut       = "cut"       // connections end, and new ones are refused
	FaultBlackhole = "blackhole" // nothing is said, and nothing arrives
	GateProcess    = "process"   // under the links, within each node
	GateFilter     = "nftables"  // in each node's kernel
)

// modes are the gates' words for the faults.
var modes = map[string]link.Mode{FaultCut: link.Reject, FaultBlackhole: link.BlackHole}

// Consent is what people sign who approve of the drill with that id in this federation. It
// changes with everything that is cut and for how long: a consent is to one drill.
func (s *Spec) Consent(federation, id string) string {
	peers, planes := slices.Sorted(slices.Values(s.Peers)), slices.Sorted(slices.Values(s.Planes))
	gate := ""
	if s.Gate == GateFilter {
		gate = " " + s.Gate
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "domicile drill 1\n%q %q %q %q %q %q %q %s %s%s", federation, id, s.Isolate, peers, planes, s.Direction, s.Fault, s.Lease, s.For, gate))
	return "drill/" + hex.EncodeToString(sum[:16])
}

// Check refuses, naming the field, what cannot be meant or what the manifest does not
// permit at that instant.
func (s *Spec) Check(f *regions.Federation, now time.Time) error {
	limits := f.Drills()
	if limits == nil {
		return &api.Error{Code: api.PermissionDenied, Op: "check drill", Field: "drills", Hint: "federation.yaml permits none: write drills: {max_for: 15m} there, and restart the regions with it"}
	}
	if err := s.check(f); err != nil {
		return err
	}
	switch {
	case s.For > limits.MaxFor:
		return &api.Error{Code: api.PermissionDenied, Op: "check drill", Field: "for", Value: s.For.String(), Hint: "federation.yaml permits at most " + regions.Span(limits.MaxFor) + ", the lease in which a cut heals included"}
	case !limits.Holds(now, s.For):
		return &api.Error{Code: api.PermissionDenied, Op: "check drill", Field: "window", Value: now.UTC().Format("Mon 15:04"), Hint: "federation.yaml permits drills within " + limits.WindowsText() + " UTC, to their end"}
	}
	return nil
}

func (s *Spec) check(f *regions.Federation) error {
	bad := func(field, value, hint string) error {
		return &api.Error{Code: api.BadRequest, Op: "check drill", Field: field, Value: value, Hint: hint}
	}
	if _, ok := f.Region(s.Isolate); !ok {
		return bad("isolate", s.Isolate, "a region of federation.yaml: "+strings.Join(f.Regions(), ", "))
	}
	links := f.Peers(s.Isolate)
	stranger := func(p string) bool { return !slices.Contains(links, p) }
	sorted := slices.Sorted(slices.Values(s.Peers))
	switch {
	case len(s.Peers) == 0 || slices.ContainsFunc(s.Peers, stranger) || len(slices.Compact(sorted)) != len(s.Peers):
		return bad("peers", strings.Join(s.Peers, ","), s.Isolate+" has links with "+strings.Join(links, ", ")+": each once")
	case len(s.Planes) == 0 || slices.ContainsFunc(s.Planes, func(p link.Plane) bool { return !slices.Contains(link.Planes(), p) }):
		return bad("planes", fmt.Sprint(s.Planes), "control, data, council and gossip, or some of them")
	case s.Gate != "" && s.Gate != GateProcess && s.Gate != GateFilter:
		return bad("gate", s.Gate, "process or nftables")
	case s.Gate == GateFilter && slices.ContainsFunc(link.Planes(), func(p link.Plane) bool { return !slices.Contains(s.Planes, p) }):
		return bad("planes", fmt.Sprint(s.Planes), "all lanes of a link share one port, so a packet filter cuts all of them: name control, data, council and gossip, or say gate: process")
	case s.Direction != Both && s.Direction != string(regions.In) && s.Direction != string(regions.Out):
		return bad("direction", s.Direction, "both, in or out, seen from the isolated region")
	case modes[s.Fault] == "":
		return bad("fault", s.Fault, "cut or blackhole")
	case s.Lease < MinLease || s.Lease > MaxLease:
		return bad("lease", s.Lease.String(), "from "+regions.Span(MinLease)+" to "+regions.Span(MaxLease))
	case s.For < s.Lease:
		return bad("for", s.For.String(), "at least the lease")
	}
	return nil
}

// all is everything that one region holds for the drill.
func (s *Spec) all(self, id string, f *regions.Federation) []link.Cut {
	return append(s.cuts(self, id), s.unwitnessed(self, id, f)...)
}

// unwitnessed is the cut of the way to the authority's witness, if this region is cut off
// from all others: it is so for the placement of logs as well.
func (s *Spec) unwitnessed(self, id string, f *regions.Federation) []link.Cut {
	w, ok := f.Witness()
	if !ok || self != s.Isolate || len(s.Peers) < len(f.Peers(self)) || !slices.Contains(s.Planes, link.Council) {
		return nil
	}
	all := s.cuts(self, id)
	all[0].Peer, all[0].Planes = w.Name, []link.Plane{link.Council}
	return all[:1]
}

// cuts are the gates that one region holds for the drill; none if it has no part in it.
func (s *Spec) cuts(self, id string) []link.Cut {
	peers, dirs := s.Peers, []regions.Direction{regions.Direction(s.Direction)}
	switch {
	case self == s.Isolate:
	case slices.Contains(s.Peers, self):
		peers = []string{s.Isolate}
		dirs[0] = map[regions.Direction]regions.Direction{regions.In: regions.Out, regions.Out: regions.In}[dirs[0]]
	default:
		return nil
	}
	if s.Direction == Both {
		dirs = []regions.Direction{regions.In, regions.Out}
	}
	var out []link.Cut
	for _, p := range peers {
		out = append(out, link.Cut{Peer: p, Planes: s.Planes, Dirs: dirs, Mode: modes[s.Fault], Drill: id})
	}
	return out
}

// FaultOf is the fault that a gate's mode is.
func FaultOf(m link.Mode) string {
	if m == link.BlackHole {
		return FaultBlackhole
	}
	return FaultCut
}
