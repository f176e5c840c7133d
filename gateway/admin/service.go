package admin

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"

	"domicile/api"
	pb "domicile/api/domicile/v1"
	"domicile/api/wire"
	"domicile/regions"
)

// Status answers within two seconds, from this node and what the region's others say by
// then.
func (a *Admin) Status(ctx context.Context, _ *pb.StatusRequest) (*pb.StatusResponse, error) {
	seat := a.config.Sources.Seat()
	var v View
	var group sync.WaitGroup
	group.Go(func() { v = a.viewFrom(ctx, seat) })
	holder, files := a.askSisters(ctx, &seat)
	group.Wait()
	v.Holder, v.Files = holder, files
	return Assemble(v), nil
}

// Topics prints declarations, holdings and contracts. Holdings that only the holder of
// the region's seat knows come from there, where it declares the topic as this node does.
func (a *Admin) Topics(ctx context.Context, req *pb.TopicsRequest) (*pb.TopicsResponse, error) {
	m, err := a.topics(ctx, req.GetTopic())
	if err != nil {
		return nil, wire.GRPCError(err)
	}
	seat := a.config.Sources.Seat()
	if seat.Open || !seat.Hands {
		return m, nil
	}
	answer, err := a.atHolder(ctx, &seat, &pb.AskOver{Question: &pb.AskOver_Topics{Topics: req}})
	if err != nil {
		return m, nil // they stay unknown
	}
	m.From = seat.Holder
	for _, t := range m.Topics {
		for _, h := range answer.GetTopics().GetTopics() {
			if h.GetName() == t.GetName() && h.GetDigest() == t.GetDigest() {
				t.Logs = h.GetLogs()
			}
		}
	}
	return m, nil
}

// topics is what this node knows of one topic, or of all.
func (a *Admin) topics(ctx context.Context, topic string) (*pb.TopicsResponse, error) {
	f := a.config.Federation.Snapshot()
	names := f.Topics()
	if topic != "" {
		if _, ok := f.Topic(topic); !ok {
			return nil, unknownTopic(f, topic)
		}
		names = []string{topic}
	}
	v := a.view(ctx)
	out := &pb.TopicsResponse{}
	for _, name := range names {
		t, _ := f.Topic(name)
		out.Topics = append(out.Topics, &pb.TopicState{
			Name: name, Declaration: t.Fields(), Digest: f.TopicDigest(name), Logs: holdings(&v, t),
			Combinations: a.config.Sources.Combinations(name), Contract: Contract(f, t, v.Resident[name]),
		})
	}
	return out, nil
}

func unknownTopic(f *regions.Federation, name string) error {
	if err := regions.CheckName(name); err != nil {
		return &api.Error{Code: api.BadName, Op: "find topic", Field: "topic", Hint: err.Error()}
	}
	return &api.Error{Code: api.UnknownTopic, Op: "find topic", Field: "topic", Value: name, Hint: "known: " + strings.Join(f.Topics(), ", ")}
}

// absent is the state of a copy that is declared and not there, as after its deletion: it
// is made anew with its log's next record, or when the link comes up again.
const absent = "ABSENT"

func holdings(v *View, t *regions.Topic) []*pb.LogHolding {
	var out []*pb.LogHolding
	for _, id := range v.Federation.Logs(t) {
		home, epoch, _ := v.Placement.Home(id)
		h := &pb.LogHolding{Log: wire.LogToProto(id), Home: home, Role: "elsewhere", Epoch: wire.EpochToProto(epoch)}
		if v.Holdings == nil {
			h.Role = "unknown"
		}
		f, here := v.Holdings[id.String()]
		if !here && v.Holdings != nil && v.Federation.Role(id, v.Region) == regions.RoleCopy {
			h.Role, h.State = "copy", absent
		}
		if here {
			h.Role, h.State = "copy", string(regions.LagUnknown)
			if f.Home {
				h.Role, h.State = "home", string(regions.LagHome)
			}
			h.Known, h.Incarnation, h.Head, h.First, h.Records, h.Bytes = true, f.Incarnation, f.Sequence, f.First, f.Records, f.Bytes
			h.Sync = f.Sync
		}
		for _, l := range v.Lags {
			if h.State != absent && l.Log == id && l.Target == v.Region {
				h.State = string(l.State)
			}
		}
		out = append(out, h)
	}
	return out
}

// minWatch is the shortest interval of a watched lag.
const minWatch = 100 * time.Millisecond

// Lag answers once, or again every interval until the caller leaves.
func (a *Admin) Lag(req *pb.LagRequest, out grpc.ServerStreamingServer[pb.LagResponse]) error {
	interval := time.Duration(req.GetIntervalNano())
	if interval == 0 {
		interval = time.Second
	}
	tick := time.NewTicker(max(interval, minWatch))
	defer tick.Stop()
	for {
		m, err := a.lagNow(out.Context(), req.GetTopic())
		if err != nil {
			return wire.GRPCError(err)
		}
		if err := out.Send(m); err != nil || !req.GetWatch() {
			return err
		}
		select {
		case <-tick.C:
		case <-out.Context().Done():
			return wire.GRPCError(context.Cause(out.Context()))
		}
	}
}

// lagNow is what this node knows of lags, or, if it leaves the region's logs to the
// holder of the seat, what that knows.
func (a *Admin) lagNow(ctx context.Context, topic string) (*pb.LagResponse, error) {
	seat := a.config.Sources.Seat()
	if seat.Open {
		return a.lagHere(ctx, topic)
	}
	if !seat.Hands {
		return nil, a.notOpen("lag", &seat)
	}
	answer, err := a.atHolder(ctx, &seat, &pb.AskOver{Question: &pb.AskOver_Lag{Lag: &pb.LagRequest{Topic: topic}}})
	if err != nil {
		return nil, err
	}
	m := answer.GetLag()
	if m == nil {
		return nil, a.notOpen("lag", &seat)
	}
	m.From = seat.Holder
	return m, nil
}

func (a *Admin) lagHere(ctx context.Context, topic string) (*pb.LagResponse, error) {
	if _, ok := a.config.Federation.Topic(topic); !ok && topic != "" {
		return nil, unknownTopic(a.config.Federation, topic)
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	lags, ok := a.lags.get(ctx)
	if !ok { // no answer is not "no lag"
		return nil, &api.Error{Code: api.NotReady, Op: "lag", Region: a.config.Region, Hint: "the mirror did not answer in time; ask again"}
	}
	m := &pb.LagResponse{NowUnixNano: wire.TimeToProto(a.config.Clock.Now()), Region: a.config.Region}
	for _, l := range sortedLags(lags) {
		if topic == "" || l.Log.Topic == topic {
			m.Logs = append(m.Logs, lagToProto(&l))
		}
	}
	return m, nil
}

func sortedLags(lags []regions.Lag) []regions.Lag {
	lags = slices.Clone(lags)
	slices.SortFunc(lags, func(a, b regions.Lag) int {
		if c := strings.Compare(a.Log.String(), b.Log.String()); c != 0 {
			return c
		}
		return strings.Compare(a.Target, b.Target)
	})
	return lags
}

// lagToProto carries a figure only while it is known.
func lagToProto(l *regions.Lag) *pb.LogLag {
	m := &pb.LogLag{
		Log: wire.LogToProto(l.Log), Home: l.Home, Target: l.Target, State: string(l.State), Cause: l.Cause,
		SafeTimeUnixNano: wire.TimeToProto(l.SafeTime), SecondsTrusted: l.SecondsTrusted, Head: l.Head, Cursor: l.Cursor,
		StalenessKnown: l.StalenessKnown, ExposureKnown: l.ExposureKnown, RecordsKnown: l.RecordsKnown, BytesKnown: l.BytesKnown, KnowledgeKnown: l.KnowledgeKnown,
		Ledger: wire.LedgerToProto(l.Ledger),
	}
	if l.StalenessKnown {
		m.StalenessSeconds, m.StalenessErrorSeconds = l.Staleness.Seconds(), l.StalenessError.Seconds()
	}
	if l.ExposureKnown {
		m.ExposureSeconds = l.Exposure.Seconds()
	}
	if l.RecordsKnown {
		m.Records = l.Records
	}
	if l.BytesKnown {
		m.Bytes = l.Bytes
	}
	m.LossState, m.LossSoon = string(l.Loss.State), l.Loss.Soon
	if l.Loss.State == regions.LossAhead || l.Loss.State == regions.LossRefusal {
		m.LossSeconds = l.Loss.In.Seconds()
	}
	for _, g := range l.Lost {
		m.Lost = append(m.Lost, lostText(g))
	}
	if l.KnowledgeKnown {
		m.KnowledgeAgeSeconds = l.KnowledgeAge.Seconds()
	}
	return m
}

// Explain hands the question to the policy's room.
func (a *Admin) Explain(ctx context.Context, req *pb.ExplainRequest) (*pb.ExplainResponse, error) {
	m, err := a.config.Explain(ctx, req)
	return m, wire.GRPCError(err)
}

// Reload hands the order to the policy's room.
func (a *Admin) Reload(ctx context.Context, _ *pb.ReloadRequest) (*pb.ReloadResponse, error) {
	m, err := a.config.Reload(ctx)
	return m, wire.GRPCError(err)
}
