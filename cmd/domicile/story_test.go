package main

import (
	"bytes"
	"encoding/json"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"domicile/api"
	pb "domicile/api/domicile/v1"
	"domicile/deploy"
	"domicile/gateway/admin"
	"domicile/regions"
)

// TestR14d_StatusStories shows what a person reads at three in the morning. Each
// file of testdata/status is one story; -rewrite writes the texts anew.
func TestR14d_StatusStories(t *testing.T) {
	datadriven.Walk(t, "testdata/status", func(t *testing.T, path string) {
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			story := newStory(t, d)
			s := admin.Assemble(story.view())
			switch d.Cmd {
			case "status":
				return renderStatus(s, story.now)
			case "json":
				return indented(t, viewStatus(s))
			case "lag":
				return renderLag(story.lagAnswer(s))
			}
			d.Fatalf(t, "unknown command")
			return ""
		})
	})
}

func indented(t *testing.T, v any) string {
	t.Helper()
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(v); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// story is the example federation at one moment: seen from a region, with another
// one cut off for a while, or none.
type story struct {
	federation *regions.Federation
	now        time.Time
	self, cut  string
	seat       string // "", or where a region of three has it: held | hands | below
	mute       bool   // the holder does not answer
	lasted     time.Duration
}

func newStory(t *testing.T, d *datadriven.TestData) story {
	t.Helper()
	f, err := regions.ParseManifest("federation.yaml", deploy.FederationYAML)
	if err != nil {
		t.Fatal(err)
	}
	s := story{federation: f, now: time.Date(2026, 11, 29, 3, 0, 0, 0, time.UTC), lasted: 12*time.Minute + 5*time.Second}
	d.ScanArgs(t, "seen-from", &s.self)
	if d.HasArg("cut-off") {
		d.ScanArgs(t, "cut-off", &s.cut)
	}
	if d.HasArg("seat") {
		d.ScanArgs(t, "seat", &s.seat)
	}
	s.mute = d.HasArg("mute")
	return s
}

func (s story) unreachable(peer string) bool {
	return s.cut != "" && (s.cut == peer || s.cut == s.self)
}

func (s story) view() admin.View {
	start := s.now.Add(-76 * time.Hour)
	v := admin.View{
		Region: s.self, Version: "v0.1.0", Federation: s.federation, Placement: s.federation, Now: s.now, Started: start,
		Seat:     admin.Seat{Open: true},
		Holdings: map[string]admin.LogFigures{}, Policy: admin.Policy{Active: true, Revision: "7-1c0ffee1", Serial: 7},
		Storage:      &admin.Storage{Healthy: true, Used: 3 << 30, Limit: 16 << 30, Path: "/var/lib/domicile", Durability: string(api.Disk1)},
		Certificates: []admin.Certificate{{Name: s.self, Kind: "region", Ends: s.now.Add(89 * 24 * time.Hour)}},
		Resident:     map[string]bool{"orders": true, "health.records": true},
	}
	for _, peer := range s.federation.Peers(s.self) {
		v.Links = append(v.Links, s.link(peer, start))
	}
	for _, topic := range s.federation.Topics() {
		t, _ := s.federation.Topic(topic)
		for _, id := range s.federation.Logs(t) {
			s.addLog(&v, id)
		}
	}
	s.addSeat(&v)
	return v
}

// addSeat makes the region one of three nodes, seen from node a.
func (s story) addSeat(v *admin.View) {
	if s.seat == "" {
		return
	}
	v.Storage.Durability = string(api.Disk2of3)
	v.Seat = admin.Seat{Open: s.seat == "held", Quorum: true, Node: "a", Holder: "a", Term: 7, Since: s.now.Add(-3 * time.Minute), Nodes: []admin.Sibling{
		{Name: "a", Self: true, Up: true, Heard: s.now}, {Name: "b", Up: true, Heard: s.now}, {Name: "c", Heard: s.now.Add(-40 * time.Second)}}}
	if v.Seat.Open {
		return
	}
	v.Lags, v.Holdings = nil, nil
	for i := range v.Links {
		v.Links[i] = regions.LinkStatus{Peer: v.Links[i].Peer}
	}
	switch s.seat {
	case "fills":
		v.Seat.Hands, v.Seat.Holder, v.Seat.Reason = true, "b", "another node of the region holds the seat"
		v.Seat.Nodes[0].Lacks = "2 of its 5 replicas are not filled yet"
		v.Seat.Nodes[2].Up, v.Seat.Nodes[2].Heard = true, s.now
	case "hands":
		v.Seat.Hands, v.Seat.Holder, v.Seat.Reason = true, "b", "another node of the region holds the seat"
		if !s.mute {
			v.Holder = s.holder()
			v.Files = map[string]*pb.FilesResponse{"a": s.files(), "b": s.files()}
		}
	case "below":
		v.Seat.Quorum, v.Seat.Holder, v.Seat.Term, v.Seat.Nodes[1].Up, v.Seat.Nodes[1].Heard = false, "", 0, false, time.Time{}
		v.Seat.Reason = "below quorum: 1 of 3 nodes is heard"
	}
}

// holder is what node b, which holds the seat, says of itself.
func (s story) holder() *pb.StatusResponse {
	s.seat = "held"
	v := s.view()
	v.Seat.Node, v.Seat.Holder = "b", "b"
	v.Seat.Nodes[0].Self, v.Seat.Nodes[1].Self = false, true
	v.Warnings = []string{"orders@us-east: full; appends are refused with STORAGE_FULL until retention makes room"}
	return admin.Assemble(v)
}

func (s story) files() *pb.FilesResponse {
	return &pb.FilesResponse{ManifestDigest: s.federation.Digest(), PolicyRevision: "7-1c0ffee1"}
}

func (s story) link(peer string, start time.Time) regions.LinkStatus {
	l := regions.LinkStatus{
		Peer: peer, Up: true, OutProven: true, InProven: true, Since: start.Add(time.Minute), LastHeard: s.now.Add(-400 * time.Millisecond),
		RTT: 81 * time.Millisecond, Offset: 3 * time.Millisecond, OffsetErr: 41 * time.Millisecond, OffsetOK: true,
		Hello: &regions.Hello{Federation: s.federation.Name(), Region: peer, PolicySerial: 7, PolicyRevision: "7-1c0ffee1", ManifestDigest: s.federation.Digest()},
	}
	if s.unreachable(peer) {
		l.Up, l.OutProven, l.InProven = false, false, false
		l.Since, l.LastHeard = s.now.Add(-s.lasted), s.now.Add(-s.lasted-3*time.Second)
		l.Reason, l.Code = "3 heartbeats missed", api.HomeUnreachable
	}
	return l
}

// addLog adds what this region holds of a log, and its lags as this region knows
// them: at a copy its age, at the home what each copy lacks.
func (s story) addLog(v *admin.View, id api.LogID) {
	home, _, _ := s.federation.Home(id)
	targets := s.federation.Targets(id)
	if home == s.self {
		v.Holdings[id.String()] = admin.LogFigures{Head: regions.Head{Sequence: 1200, First: 1, Records: 1200, Bytes: 4 << 20}, Home: true}
		v.Lags = append(v.Lags, regions.Lag{Log: id, Home: home, Target: s.self, State: regions.LagHome})
		for _, target := range targets {
			v.Lags = append(v.Lags, s.lag(id, home, target))
		}
		return
	}
	for _, target := range targets {
		if target == s.self {
			v.Holdings[id.String()] = admin.LogFigures{Head: regions.Head{Sequence: 1100, First: 1, Records: 900, Bytes: 3 << 20}}
			v.Lags = append(v.Lags, s.lag(id, home, target))
		}
	}
}

func (s story) lag(id api.LogID, home, target string) regions.Lag {
	other := home
	if home == s.self {
		other = target
	}
	l := regions.Lag{
		Log: id, Home: home, Target: target, State: regions.LagCaughtUp, SecondsTrusted: true, Head: 1200, Cursor: 1200,
		StalenessKnown: home != s.self, Staleness: 900 * time.Millisecond, StalenessError: 41 * time.Millisecond, SafeTime: s.now.Add(-900 * time.Millisecond),
		ExposureKnown: home == s.self, RecordsKnown: true, BytesKnown: home == s.self,
		KnowledgeAge: 400 * time.Millisecond, KnowledgeKnown: true,
	}
	if s.unreachable(other) {
		l.State, l.Cursor, l.KnowledgeAge = regions.LagLinkDown, 1100, s.lasted+3*time.Second
		l.Staleness, l.SafeTime = s.lasted+4*time.Second, s.now.Add(-s.lasted-4*time.Second)
		l.RecordsKnown = home == s.self
		if home == s.self {
			l.Exposure, l.Records, l.Bytes = s.lasted-2*time.Second, 100, 300<<10
		}
	}
	return l
}

func (s story) lagAnswer(st *pb.StatusResponse) *pb.LagResponse {
	answer := &pb.LagResponse{NowUnixNano: st.GetNowUnixNano(), Region: s.self}
	for _, x := range st.GetTroubles() {
		if x.GetLag() != nil {
			answer.Logs = append(answer.Logs, x.GetLag())
		}
	}
	return answer
}
