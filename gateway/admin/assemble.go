package admin

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	pb "domicile/api/domicile/v1"
	"domicile/api/wire"
	"domicile/regions"
)

// Assemble puts what one region knows into a status. It is a pure function of the
// view: the same view, the same words.
func Assemble(v View) *pb.StatusResponse {
	m := &pb.StatusResponse{
		Region: v.Region, Federation: v.Federation.Name(), Version: v.Version,
		NowUnixNano: wire.TimeToProto(v.Now), StartedUnixNano: wire.TimeToProto(v.Started),
		Links: linkStates(&v), Troubles: troubles(&v), Policies: policyStates(&v), Certificates: certificateStates(&v),
		Clock: &pb.ClockState{StepSeconds: v.ClockStep.Seconds()}, Candidate: v.Policy.Candidate, Logs: uint32(len(v.Holdings)),
		Warnings: warnings(&v), Seat: seatState(&v), Drill: v.Drill.ID, Evidence: evidence(&v),
	}
	if s := v.Storage; s != nil {
		m.Storage = &pb.StorageState{Healthy: s.Healthy, Reason: s.Reason, UsedBytes: s.Used, LimitBytes: s.Limit, Path: s.Path, Durability: s.Durability}
		if s.Healthy {
			m.Storage.Reason = s.Full
		}
	}
	m.Level, m.Verdict = verdict(&v, m)
	m.Heals, m.Advice = heals(&v, m), advice(&v, m)
	join(&v, m)
	return m
}

// Link states as they are written.
const (
	linkIsUp      = "up"
	linkIsDown    = "down"
	linkIsUnknown = "unknown"
)

func linkStates(v *View) []*pb.LinkState {
	links := slices.Clone(v.Links)
	slices.SortFunc(links, func(a, b regions.LinkStatus) int { return cmp.Compare(a.Peer, b.Peer) })
	out := make([]*pb.LinkState, len(links))
	for i := range links {
		out[i] = linkState(&links[i])
	}
	return out
}

func linkState(l *regions.LinkStatus) *pb.LinkState {
	m := &pb.LinkState{Peer: l.Peer, State: linkIsUp, SinceUnixNano: wire.TimeToProto(l.Since), Reason: l.Reason, Code: string(l.Code),
		LastHeardUnixNano: wire.TimeToProto(l.LastHeard), OffsetKnown: l.OffsetOK, Fault: l.Cut, WireVersion: uint32(l.Wire)}
	if l.Hello != nil {
		m.Gateway = l.Hello.Gateway
	}
	if !l.Up {
		m.State = linkIsDown
		if l.Since.IsZero() {
			m.State = linkIsUnknown
		}
		m.Direction = missing(l)
	}
	if l.OffsetOK {
		m.OffsetSeconds, m.OffsetErrorSeconds, m.RttSeconds = l.Offset.Seconds(), l.OffsetErr.Seconds(), l.RTT.Seconds()
		m.SecondsTrusted = l.Offset.Abs() <= time.Second
	}
	return m
}

func missing(l *regions.LinkStatus) string {
	switch {
	case !l.OutProven && !l.InProven:
		return "both"
	case !l.OutProven:
		return string(regions.Out)
	case !l.InProven:
		return string(regions.In)
	}
	return ""
}

func policyStates(v *View) []*pb.PolicyState {
	out := []*pb.PolicyState{{Region: v.Region, Known: !slices.Contains(v.Silent, silentPolicy), Revision: v.Policy.Revision, Serial: v.Policy.Serial,
		ManifestDigest: v.Federation.Digest(), ManifestEqual: true}}
	links := slices.Clone(v.Links)
	slices.SortFunc(links, func(a, b regions.LinkStatus) int { return cmp.Compare(a.Peer, b.Peer) })
	for _, l := range links {
		s := &pb.PolicyState{Region: l.Peer}
		if h := l.Hello; h != nil {
			s.Known, s.Revision, s.Serial, s.ManifestDigest = true, h.PolicyRevision, h.PolicySerial, h.ManifestDigest
			s.ManifestEqual = h.ManifestDigest == v.Federation.Digest()
			s.Differences = differences(v.Federation, h)
			s.HeardUnixNano = wire.TimeToProto(l.LastHeard)
		}
		out = append(out, s)
	}
	return out
}

// differences names what a peer declares differently, as topic.field: ours | theirs.
func differences(f *regions.Federation, h *regions.Hello) []string {
	if h.ManifestDigest == f.Digest() {
		return nil
	}
	var out []string
	for _, name := range f.Topics() {
		if h.TopicDigests[name] == f.TopicDigest(name) {
			continue
		}
		t, _ := f.Topic(name)
		theirs, ok := h.TopicFields[name]
		if !ok {
			out = append(out, name+": declared here | not there")
			continue
		}
		for _, d := range regions.Differences(t.Fields(), theirs) {
			out = append(out, name+"."+d)
		}
	}
	for name := range h.TopicDigests {
		if _, ok := f.Topic(name); !ok {
			out = append(out, name+": not here | declared there")
		}
	}
	if len(out) == 0 {
		out = []string{"regions, boundaries or links"}
	}
	slices.Sort(out)
	return out
}

func certificateStates(v *View) []*pb.CertificateState {
	out := make([]*pb.CertificateState, len(v.Certificates))
	for i, c := range v.Certificates {
		out[i] = &pb.CertificateState{Name: c.Name, Kind: c.Kind, EndsUnixNano: wire.TimeToProto(c.Ends), DaysLeft: c.Ends.Sub(v.Now).Hours() / 24}
	}
	return out
}

// warnDays is when a certificate that ends becomes a warning.
const warnDays = 14

func warnings(v *View) []string {
	out := slices.Concat(drillWarnings(&v.Drill), v.Warnings)
	if !v.Seat.Open && !v.Seat.Hands {
		out = append(out, "the logs are not open here: links, lags and logs are unknown: "+v.Seat.Reason)
	}
	for _, name := range v.Silent {
		out = append(out, name+" did not answer in time: what is not shown here is unknown")
	}
	for _, c := range v.Certificates {
		if days := c.Ends.Sub(v.Now).Hours() / 24; days < warnDays {
			out = append(out, fmt.Sprintf("certificate %s (%s) ends in %.0f days", c.Name, c.Kind, max(days, 0)))
		}
	}
	if v.Policy.Problem != "" {
		out = append(out, "the policy directory was refused: "+v.Policy.Problem)
	}
	if step := v.ClockStep.Abs(); step > time.Second {
		out = append(out, "the wall clock has stepped by "+regions.Span(v.ClockStep)+"; the steady clock goes on")
	}
	out = slices.Concat(out, clocksApart(v), clockDoubt(v), overdue(v), peersRefused(v))
	if v.Gossip != nil {
		for _, hint := range v.Gossip.Hints {
			out = append(out, "hint by gossip: "+hint)
		}
	}
	if s := v.Storage; s != nil && s.Healthy && s.Limit > 0 && s.Used > s.Limit/10*9 {
		out = append(out, fmt.Sprintf("storage is %d %% full", s.Used*100/s.Limit))
	}
	return out
}

// refusedFor is how long status names a peer after its last message that was refused.
const refusedFor = 24 * time.Hour

// peersRefused names the regions that say what no correct node says, and what it was last.
func peersRefused(v *View) []string {
	var out []string
	for rest := v.Refused; len(rest) > 0; {
		last, count, n := rest[0], uint64(0), 0
		for ; n < len(rest) && rest[n].Peer == last.Peer; n++ {
			count += rest[n].Count
			if rest[n].Last.After(last.Last) {
				last = rest[n]
			}
		}
		rest = rest[n:]
		if age := max(v.Now.Sub(last.Last), 0); age < refusedFor {
			out = append(out, fmt.Sprintf("%s of %s refused here since this node started, the last %s ago (%s: %s): no correct node says that, look at its nodes",
				plural(int(count), "message"), last.Peer, regions.Span(age), last.Lane, last.Reason))
		}
	}
	return out
}

// clocksApart names the peers whose clock is so far from ours that lags towards them
// mean nothing in seconds.
func clocksApart(v *View) []string {
	var out []string
	for _, l := range v.Links {
		if l.OffsetOK && l.Offset.Abs() > time.Second {
			out = append(out, "the clock of "+l.Peer+" is "+regions.Span(l.Offset)+" away from ours: seconds towards it are not to be trusted")
		}
	}
	return out
}

// clockDoubt says that the clock is in doubt, and what stands still by that.
func clockDoubt(v *View) []string {
	if !v.Clock.Doubt {
		return nil
	}
	return []string{"the clock is in doubt: " + v.Clock.Reason + "; no record goes by age"}
}

// overdue names the logs that hold records beyond their age while the clock is in doubt.
func overdue(v *View) []string {
	if v.Storage == nil {
		return nil
	}
	var out []string
	for _, log := range slices.Sorted(maps.Keys(v.Storage.Overdue)) {
		out = append(out, log+": the oldest record is "+regions.Span(v.Storage.Overdue[log])+" past its max_age by this node's clock, and stays while that is in doubt")
	}
	return out
}

// verdict is one line, and ok, degraded or failed.
func verdict(v *View, m *pb.StatusResponse) (level, line string) {
	switch s := v.Storage; {
	case s == nil:
		return "failed", "failed: storage does not answer; nobody can say whether publishing works"
	case !s.Healthy:
		return "failed", "failed: storage: " + s.Reason + "; publishing is refused here"
	case s.Full != "":
		return "failed", "failed: storage: " + s.Full + "; publishing is refused here, reading goes on"
	case slices.Contains(v.Silent, silentPolicy):
		return "failed", "failed: the policy does not answer; nobody can say whether publishing works"
	case v.Seat.belowQuorum():
		return "failed", "failed: below quorum: " + strings.Join(missingNodes(&v.Seat), "; ") + "; publishing is refused in the whole region"
	case !v.Seat.Open && !v.Seat.Hands:
		return "failed", "failed: " + v.Seat.Reason + "; publishing and reading are refused here"
	case !v.Policy.Active:
		return "failed", "failed: no policy is active; publishing and reading are refused here"
	}
	bad := slices.Concat(clockDoubt(v), missingNodes(&v.Seat), lackingNodes(&v.Seat), filesApart(v))
	if v.Seat.Hands {
		return handsVerdict(v, bad)
	}
	if len(v.Silent) > 0 {
		bad = append(bad, strings.Join(v.Silent, ", ")+" unknown")
	}
	for _, l := range m.Links {
		if l.State == linkIsUp {
			continue
		}
		text := l.Peer + " " + map[string]string{linkIsDown: "unreachable", linkIsUnknown: "not heard yet"}[l.State]
		if l.SinceUnixNano != 0 {
			text += " for " + regions.Span(v.Now.Sub(time.Unix(0, l.SinceUnixNano)))
		}
		bad = append(bad, text)
	}
	if n := len(m.Troubles); n > 0 {
		bad = append(bad, plural(n, "log")+" in trouble")
	}
	for _, p := range m.Policies {
		if p.Known && !p.ManifestEqual {
			bad = append(bad, p.Region+" has another federation.yaml")
		}
	}
	bad = append(bad, clocksApart(v)...)
	if len(bad) > 0 {
		return "degraded", "degraded: " + strings.Join(bad, "; ") + "; records whose home is " + v.Region + " are stored as usual"
	}
	return "ok", fmt.Sprintf("ok: %s up, %s here, nothing in trouble", plural(len(m.Links), "link"), plural(len(v.Holdings), "log")) + policyNews(v, m)
}

// policyNews is what the one line adds while everything works: revisions that differ
// and a directory that waits. Both are ordinary in the course of a change.
func policyNews(v *View, m *pb.StatusResponse) string {
	var news string
	for _, p := range m.Policies {
		switch {
		case !p.Known || p.Revision == v.Policy.Revision:
		case p.Revision == "":
			news += "; " + p.Region + " has no policy"
		default:
			news += "; " + p.Region + " has policy " + p.Revision
		}
	}
	if v.Policy.Candidate != "" {
		news += "; a changed policy waits to be loaded"
	}
	return news
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
