package admin

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"domicile/api"
	pb "domicile/api/domicile/v1"
	"domicile/api/wire"
	"domicile/regions"
	"domicile/regions/placement"
)

// PlacementConfig is what a Placements works with; all of it is required but Logs, and Lease
// without it.
type PlacementConfig struct {
	Region     string
	Federation *regions.Federation
	Clock      regions.Clock
	// Logs is what this node knows of the placement. The map is not changed. nil: it knows no
	// log by its name, and lists none.
	Logs func() map[api.LogID]placement.Log
	// Lease is how much is left of this region's lease on a log of its own; false: it has
	// none to hold.
	Lease     func(api.LogID) (left time.Duration, ok bool)
	Authority func() *pb.AuthorityState
	// Change changes who decides, Widen how far a log may go.
	Change func(context.Context, *pb.ChangeAuthorityRequest) (*pb.GovernResponse, error)
	Widen  func(context.Context, *pb.WidenTermsRequest) (*pb.GovernResponse, error)
}

// Placements is PlacementService. Safe for concurrent use.
type Placements struct {
	pb.UnimplementedPlacementServiceServer
	config PlacementConfig
}

// NewPlacements makes the service.
func NewPlacements(c PlacementConfig) *Placements { return &Placements{config: c} }

// Placements lists the logs that may move, and where they are.
func (p *Placements) Placements(_ context.Context, req *pb.PlacementsRequest) (*pb.PlacementsResponse, error) {
	f := p.config.Federation.Snapshot()
	names := slices.DeleteFunc(slices.Clone(f.Topics()), func(name string) bool { t, _ := f.Topic(name); return !t.Movable() })
	if topic := req.GetTopic(); topic != "" {
		if _, ok := f.Topic(topic); !ok {
			return nil, wire.GRPCError(unknownTopic(f, topic))
		}
		names = []string{topic}
	}
	m := &pb.PlacementsResponse{Region: p.config.Region, NowUnixNano: wire.TimeToProto(p.config.Clock.Now()), Authority: p.config.Authority()}
	if p.config.Logs == nil {
		return m, nil
	}
	placed := p.config.Logs()
	for _, name := range names {
		t, _ := f.Topic(name)
		for _, id := range f.Logs(t) {
			if req.GetSlot() == "" || req.GetSlot() == id.Slot {
				m.Logs = append(m.Logs, p.log(f, t, id, placed))
			}
		}
	}
	if len(m.Logs) == 0 && req.GetSlot() != "" {
		return nil, wire.GRPCError(&api.Error{Code: api.UnknownTopic, Op: "find log", Topic: req.GetTopic(), Field: "slot", Value: req.GetSlot(), Hint: "the topic has no such log"})
	}
	return m, nil
}

// ChangeAuthority changes who decides where logs are.
func (p *Placements) ChangeAuthority(ctx context.Context, req *pb.ChangeAuthorityRequest) (*pb.GovernResponse, error) {
	m, err := p.config.Change(ctx, req)
	return m, wire.GRPCError(err)
}

// WidenTerms lets a log go as far as its declaration says.
func (p *Placements) WidenTerms(ctx context.Context, req *pb.WidenTermsRequest) (*pb.GovernResponse, error) {
	m, err := p.config.Widen(ctx, req)
	return m, wire.GRPCError(err)
}

func (p *Placements) log(f *regions.Federation, t *regions.Topic, id api.LogID, placed map[api.LogID]placement.Log) *pb.PlacedLog {
	first, _ := f.FirstHome(id)
	m := &pb.PlacedLog{Log: wire.LogToProto(id), FirstHome: first}
	l, ok := placed[id]
	if !ok {
		m.Explain = explainUnplaced(t, first)
		return m
	}
	m.Known, m.Incarnation, m.Home, m.Epoch, m.Status = true, l.Incarnation, l.Home, wire.EpochToProto(l.Epoch), string(l.Status)
	m.Allowed, m.Targets, m.Isolation, m.FenceAfterNano = l.Terms.Allowed, l.Terms.Targets, string(l.Terms.Isolation), int64(l.Terms.FenceAfter)
	m.RpoNano, m.Approvals, m.DeclaredAlike = int64(l.Terms.RPO), uint32(l.Terms.Approvals), l.Terms.Digest == f.TopicDigest(id.Topic)
	m.Refused, m.Reason, m.Actor = string(l.Refused), l.Reason, l.Actor
	for _, e := range l.History {
		m.History = append(m.History, endedToProto(e))
	}
	if op := l.Op; op != nil {
		m.Move = &pb.PlacedMove{Id: op.ID, Kind: string(op.Kind), Target: op.Target, Step: string(op.Step), Plan: op.Plan, Actor: op.Actor, Reason: op.Reason}
	}
	for _, d := range l.Divergences {
		m.Tails = append(m.Tails, &pb.OpenTail{Epoch: wire.EpochToProto(d.Epoch), Region: d.Region, From: d.From, To: d.To, Count: d.Count, Fate: string(d.Fate)})
	}
	if left, ok := p.config.Lease(id); ok && l.Home == p.config.Region && l.Terms.Isolation == placement.FenceAfter {
		m.LeaseKnown, m.LeaseLeftNano = true, int64(max(0, left))
	}
	m.Explain = explainPlaced(p.config.Region, first, m, &l)
	return m
}

func endedToProto(e placement.Ended) *pb.PastEpoch {
	m := &pb.PastEpoch{Epoch: wire.EpochToProto(e.Epoch), Home: e.Home, How: string(e.How), EndKnown: e.EndKnown, End: e.End, Proof: string(e.Proof), Compared: e.Comparison()}
	if e.Lost != nil && e.Lost.Span != nil {
		m.SpanKnown, m.SpanNano = true, int64(*e.Lost.Span)
	}
	if e.Lost != nil && e.Lost.Records != nil {
		m.RecordsKnown, m.Records = true, *e.Lost.Records
	}
	return m
}

func explainUnplaced(t *regions.Topic, first string) []string {
	if !t.Movable() {
		return []string{"it never moves: the manifest puts it in " + first + ", and it depends on nothing but that region's disk"}
	}
	return []string{"the authority is not known to have it: it takes no record before its home, by the manifest " + first + ", has brought it there"}
}

// explainPlaced says in words why the log is where it is, who may write it, and where it
// may go. It names no region outside of what the log's own terms allow as one to go to.
func explainPlaced(self, first string, m *pb.PlacedLog, l *placement.Log) []string {
	var out []string
	switch {
	case l.Home != first && l.Status != placement.Opening:
		out = append(out, "it was moved to "+l.Home+"; the manifest began it in "+first)
	case l.Home == first:
		out = append(out, "it is in "+l.Home+", where the manifest puts it")
	}
	switch l.Status {
	case placement.Moving:
		out = append(out, fmt.Sprintf("a %s move to %s is under way, at step %s; %s is still its home", l.Op.Kind, l.Op.Target, l.Op.Step, l.Home))
	case placement.Opening:
		out = append(out, l.Home+" is its home from epoch "+l.Epoch.String()+" on and has not opened it yet: nobody may write it before")
	case placement.Contested:
		out = append(out, "two authorities gave it two homes; both refuse records until people decide which stands")
	}
	if l.Refused != "" {
		out = append(out, l.Home+" keeps it closed: its own policy does not let all of its records rest there ("+string(l.Refused)+")")
	}
	if l.Terms.Isolation == placement.FenceAfter {
		out = append(out, fmt.Sprintf("cut off from the authority for %s its home takes no more records: it gives up writing while cut off, for that nothing it acknowledged is void after a forced move", l.Terms.FenceAfter))
		if m.LeaseKnown && m.LeaseLeftNano == 0 {
			out = append(out, "the lease of "+self+" on it has run out: records are refused with FENCED until the authority answers")
		}
	} else {
		out = append(out, "cut off from the authority its home goes on and, from "+regions.Span(regions.ConfirmedFor)+" on, says authority=unconfirmed in each ack: a forced move would make void what it acknowledged since it was cut off")
	}
	if !m.DeclaredAlike {
		out = append(out, "the topic is declared otherwise here than the authority has it: it moves only once home, target and authority have the same declaration")
	}
	targets := slices.DeleteFunc(slices.Clone(l.Terms.Targets), func(r string) bool { return r == l.Home })
	if len(targets) == 0 {
		return append(out, "it may go nowhere else")
	}
	return append(out, "by its terms it may move to "+strings.Join(targets, ", "))
}
