package admin_test

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc/metadata"

	"domicile/api"
	pb "domicile/api/domicile/v1"
	"domicile/api/wire"
	"domicile/gateway"
	"domicile/gateway/admin"
	"domicile/mirror"
	"domicile/regions"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	_        gateway.Counters      = (*admin.Admin)(nil)
	_        mirror.Metrics        = (*admin.Metrics)(nil)
	_        pb.AdminServiceServer = (*admin.Admin)(nil)
	now                            = time.Date(2026, 3, 1, 3, 0, 0, 0, time.UTC)
	resident                       = map[string]bool{"orders": true, "health.records": true}
)

func federation(t *testing.T) *regions.Federation {
	t.Helper()
	data, err := os.ReadFile("../../deploy/federation.yaml")
	if err != nil {
		t.Fatal(err)
	}
	f, err := regions.ParseManifest("federation.yaml", data)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func logID(s string) api.LogID {
	id, err := api.ParseLogID(s)
	if err != nil {
		panic(err)
	}
	return id
}

func hello(f *regions.Federation) *regions.Hello {
	h := &regions.Hello{PolicySerial: 7, PolicyRevision: "7-abcdef01", ManifestDigest: f.Digest, TopicDigests: map[string]string{}, TopicFields: map[string]map[string]string{}}
	for _, name := range f.Topics() {
		t, _ := f.Topic(name)
		h.TopicDigests[name], h.TopicFields[name] = f.TopicDigest(name), t.Fields()
	}
	return h
}

// healthy is a region with nothing wrong.
func healthy(t *testing.T, region string) admin.View {
	t.Helper()
	f := federation(t)
	v := admin.View{
		Region: region, Version: "v0", Federation: f, Placement: f, Now: now, Started: now.Add(-24 * time.Hour), Resident: resident,
		Policy:       admin.Policy{Active: true, Revision: "7-abcdef01", Serial: 7},
		Storage:      &admin.Storage{Healthy: true, Used: 1 << 20, Limit: 1 << 30, Path: "/data", Durability: string(api.Disk1)},
		Certificates: []admin.Certificate{{Name: region, Kind: "region", Ends: now.Add(60 * 24 * time.Hour)}},
		Holdings:     map[string]admin.LogFigures{},
	}
	for _, peer := range f.Peers(region) {
		v.Links = append(v.Links, regions.LinkStatus{Peer: peer, Up: true, OutProven: true, InProven: true, Since: now.Add(-time.Hour),
			LastHeard: now, OffsetOK: true, Offset: time.Millisecond, RTT: 80 * time.Millisecond, Hello: hello(f)})
	}
	for _, name := range f.Topics() {
		topic, _ := f.Topic(name)
		for _, id := range f.Logs(topic) {
			home, _, _ := f.Home(id)
			if home == region {
				v.Holdings[id.String()] = admin.LogFigures{Head: regions.Head{Sequence: 10, First: 1, Records: 10, Bytes: 4096}, Home: true}
				for _, target := range f.Targets(id) {
					v.Lags = append(v.Lags, regions.Lag{Log: id, Home: home, Target: target, State: regions.LagCaughtUp, ExposureKnown: true, RecordsKnown: true})
				}
			} else if slices.Contains(f.Targets(id), region) {
				v.Holdings[id.String()] = admin.LogFigures{Head: regions.Head{Sequence: 8, First: 1, Records: 8, Bytes: 4096}}
				v.Lags = append(v.Lags, regions.Lag{Log: id, Home: home, Target: region, State: regions.LagCaughtUp, StalenessKnown: true,
					Staleness: 400 * time.Millisecond, SafeTime: now, SecondsTrusted: true})
			}
		}
	}
	return v
}

// cut takes a peer away from a view.
func cut(v *admin.View, peer string, since time.Duration) {
	for i := range v.Links {
		if l := &v.Links[i]; l.Peer == peer {
			l.Up, l.OutProven, l.InProven, l.Since, l.Reason = false, false, false, now.Add(-since), "3 heartbeats missed"
		}
	}
	for i := range v.Lags {
		switch l := &v.Lags[i]; {
		case l.Home == peer:
			l.State, l.Staleness, l.KnowledgeAge, l.KnowledgeKnown = regions.LagLinkDown, since, since, true
		case l.Target == peer:
			l.State, l.Exposure, l.KnowledgeAge, l.KnowledgeKnown = regions.LagLinkDown, since, since, true
		}
	}
}

func find(m *pb.StatusResponse, log string) *pb.LogTrouble {
	for _, x := range m.GetTroubles() {
		if wire.LogFromProto(x.GetLog()).String() == log {
			return x
		}
	}
	return nil
}

func TestStatusHealthy(t *testing.T) {
	m := admin.Assemble(healthy(t, "us-east"))
	if m.GetLevel() != "ok" || !strings.HasPrefix(m.GetVerdict(), "ok: 2 links up") || len(m.GetTroubles()) != 0 || len(m.GetAdvice()) != 0 || len(m.GetWarnings()) != 0 {
		t.Errorf("%v", m)
	}
	if len(m.GetPolicies()) != 3 || m.GetPolicies()[0].GetRegion() != "us-east" || !m.GetPolicies()[1].GetManifestEqual() {
		t.Errorf("policies %v", m.GetPolicies())
	}
}

func TestR14h_StatusSeenFromARegionThatLostAHome(t *testing.T) {
	v := healthy(t, "us-east")
	cut(&v, "eu-west", 125*time.Second)
	m := admin.Assemble(v)
	if m.GetLevel() != "degraded" || !strings.Contains(m.GetVerdict(), "eu-west unreachable for 2m5s") {
		t.Errorf("verdict %q", m.GetVerdict())
	}
	orders, catalogue, health := find(m, "orders@eu-west"), find(m, "catalog.updates@home"), find(m, "health.records@eu-west")
	if orders == nil || catalogue == nil || health == nil || find(m, "orders@ap-south") != nil {
		t.Fatalf("troubles %v", m.GetTroubles())
	}
	if !strings.Contains(orders.GetProducers(), string(api.HomeUnreachable)) || orders.GetConsumers() != "wait until the home is back" ||
		orders.GetLag().GetStalenessSeconds() != 125 || orders.GetLag().GetKnowledgeAgeSeconds() != 125 || orders.GetOwner() == "" {
		t.Errorf("orders: %v", orders)
	}
	if !strings.Contains(catalogue.GetConsumers(), "read the copy here, which is 2m5s old") || catalogue.GetRoom() != "readable for another 57m55s" {
		t.Errorf("catalogue: %v", catalogue)
	}
	if health.GetConsumers() != "no copy here" || health.GetLag() != nil {
		t.Errorf("health: %v", health)
	}
	advice := strings.Join(m.GetAdvice(), "\n")
	if !strings.Contains(advice, "orders@eu-west: nothing: residency") || !strings.Contains(advice, "health.records@eu-west: nothing: residency") {
		t.Errorf("advice %q", advice)
	}
	for _, word := range []string{"promote", "take over", "failover to", "move"} {
		if strings.Contains(strings.ToLower(advice), word) {
			t.Errorf("advice offers what may not be: %q", advice)
		}
	}
	if len(m.GetHeals()) == 0 {
		t.Error("nothing heals by itself?")
	}
}

func TestStatusSeenFromTheRegionThatWasCutOff(t *testing.T) {
	v := healthy(t, "eu-west")
	cut(&v, "us-east", 125*time.Second)
	cut(&v, "ap-south", 125*time.Second)
	m := admin.Assemble(v)
	x := find(m, "orders@eu-west")
	if x == nil {
		t.Fatalf("troubles %v", m.GetTroubles())
	}
	if !strings.HasPrefix(x.GetProducers(), "stored and acknowledged here as usual") || !x.GetLag().GetExposureKnown() || x.GetLag().GetExposureSeconds() != 125 ||
		!strings.Contains(x.GetRoom(), "167h57m55s until retention") || !strings.Contains(x.GetRoom(), "4096 of") {
		t.Errorf("%v", x)
	}
	if !strings.Contains(m.GetVerdict(), "records whose home is eu-west are stored as usual") {
		t.Errorf("verdict %q", m.GetVerdict())
	}
}

func TestR14d_UnknownIsNeverZero(t *testing.T) {
	v := healthy(t, "us-east")
	v.Links[0].Up, v.Links[0].Since, v.Links[0].Hello, v.Links[0].OffsetOK = false, time.Time{}, nil, false
	for i := range v.Lags {
		if v.Lags[i].Home == v.Links[0].Peer {
			v.Lags[i] = regions.Lag{Log: v.Lags[i].Log, Home: v.Lags[i].Home, Target: v.Lags[i].Target, State: regions.LagUnknown}
		}
	}
	v.Storage, v.Silent = nil, []string{"storage"}
	m := admin.Assemble(v)
	if m.GetLinks()[0].GetState() != "unknown" || m.GetPolicies()[1].GetKnown() || m.GetStorage() != nil || m.GetLevel() != "failed" {
		t.Errorf("%v", m)
	}
	x := m.GetTroubles()[0]
	if x.GetLag().GetStalenessKnown() || x.GetLag().GetKnowledgeKnown() {
		t.Errorf("%v", x)
	}
}

func TestStatusSaysWhatIsWrongAndWhatMayBeDone(t *testing.T) {
	for name, c := range map[string]struct {
		change                 func(*admin.View)
		level, verdict, advice string
	}{
		"disk":          {func(v *admin.View) { v.Storage.Healthy, v.Storage.Reason = false, "sync failed" }, "failed", "sync failed", "repair the disk under /data"},
		"no policy":     {func(v *admin.View) { v.Policy = admin.Policy{Problem: "catalog.yaml is missing"} }, "failed", "no policy is active", "domicile policy check"},
		"bad candidate": {func(v *admin.View) { v.Policy.Problem = "a rule errs" }, "ok", "ok", "domicile policy check"},
		"candidate":     {func(v *admin.View) { v.Policy.Candidate = "abcd" }, "ok", "ok", "domicile policy reload"},
		"certificate":   {func(v *admin.View) { v.Certificates[0].Ends = now.Add(48 * time.Hour) }, "ok", "ok", "domicile certs request"},
		"old policy":    {func(v *admin.View) { v.Links[0].Hello.PolicySerial = 6 }, "ok", "ok", "bring the policy of ap-south up to date"},
		"manifest": {func(v *admin.View) {
			h := v.Links[0].Hello
			h.ManifestDigest, h.TopicDigests["orders"] = "other", "other"
			h.TopicFields["orders"]["retention.max_age"] = "24h0m0s"
		}, "degraded", "ap-south has another federation.yaml", "the same federation.yaml"},
		"stalled": {func(v *admin.View) { v.Lags[0].State, v.Lags[0].Cause = regions.LagStalled, "append" }, "degraded", "1 log in trouble", ""},
		"another incarnation": {func(v *admin.View) {
			for i := range v.Lags {
				if v.Lags[i].Target == "us-east" {
					v.Lags[i].State = regions.LagIncarnation
					return
				}
			}
		}, "degraded", "1 log in trouble", "a person decides"},
	} {
		v := healthy(t, "us-east")
		c.change(&v)
		m := admin.Assemble(v)
		if m.GetLevel() != c.level || !strings.Contains(m.GetVerdict(), c.verdict) || !strings.Contains(strings.Join(m.GetAdvice(), "\n"), c.advice) {
			t.Errorf("%s: %s, %q, advice %q", name, m.GetLevel(), m.GetVerdict(), m.GetAdvice())
		}
		if name == "manifest" && (len(m.GetPolicies()[1].GetDifferences()) != 1 || m.GetPolicies()[1].GetDifferences()[0] != "orders.retention.max_age: 168h0m0s | 24h0m0s") {
			t.Errorf("differences %v", m.GetPolicies()[1].GetDifferences())
		}
	}
}

// service is an Admin over a view, over HTTP and as a gRPC service.
func service(t *testing.T, v admin.View, change func(*admin.Sources)) *admin.Admin {
	t.Helper()
	s := admin.Sources{
		Links: func() []regions.LinkStatus { return v.Links }, Lags: func() []regions.Lag { return v.Lags },
		Holdings: func() []admin.Holding { return nil }, Policy: func() admin.Policy { return v.Policy },
		Storage: func() admin.Storage { return *v.Storage }, Certificates: func() []admin.Certificate { return v.Certificates },
		ClockStep: func() time.Duration { return 0 }, Warnings: func() []string { return nil },
		Combinations: func(topic string) []string {
			if topic == "catalog.updates" {
				return []string{"class=catalog,residency=global"}
			}
			return []string{"class=x,residency=eu", "class=x,residency=global"}
		},
	}
	if change != nil {
		change(&s)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	a := admin.New(admin.Config{Region: v.Region, Version: "v0", Federation: v.Federation, Placement: v.Federation, Sources: s,
		Listener: l, Clock: regions.NewManualClock(now), Logger: slog.New(slog.DiscardHandler)})
	a.Start()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		if err := a.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	return a
}

func get(t *testing.T, a *admin.Admin, path string) (int, string) {
	t.Helper()
	w := httptest.NewRecorder()
	a.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
	return w.Code, w.Body.String()
}

func TestStatusIsThereInTwoSecondsWhateverHangs(t *testing.T) {
	free := make(chan struct{})
	v := healthy(t, "us-east")
	a := service(t, v, func(s *admin.Sources) {
		s.Storage = func() admin.Storage { <-free; return *v.Storage }
		s.Warnings = func() []string { <-free; return nil }
	})
	for range 2 {
		start := time.Now()
		m, err := a.Status(context.Background(), &pb.StatusRequest{})
		if took := time.Since(start); err != nil || took > 2*time.Second {
			t.Errorf("%v after %v", err, took)
		}
		if m.GetStorage() != nil || !strings.Contains(strings.Join(m.GetWarnings(), "\n"), "storage did not answer") || len(m.GetLinks()) != 2 {
			t.Errorf("%v", m)
		}
	}
	close(free)
}

func TestR14d_MetricsShowNoSampleOfWhatIsNotKnown(t *testing.T) {
	v := healthy(t, "us-east")
	unknown := logID("orders@ap-south")
	for i := range v.Lags {
		if v.Lags[i].Log == unknown {
			v.Lags[i] = regions.Lag{Log: unknown, Home: "ap-south", Target: "us-east", State: regions.LagUnknown}
		}
	}
	a := service(t, v, nil)
	a.Published("orders", "us-east", "")
	a.Published("orders", "eu-west", api.HomeUnreachable)
	a.Published("", "", "NEWER_THAN_US")
	_, page := get(t, a, "/metrics")
	for _, want := range []string{
		`domicile_mirror_lag_seconds{home="eu-west",log="orders@eu-west",target="us-east"} 0.4`,
		`domicile_mirror_state{home="ap-south",log="orders@ap-south",state="UNKNOWN",target="us-east"} 1`,
		`domicile_mirror_exposure_seconds{home="us-east",log="orders@us-east",target="eu-west"} 0`,
		`domicile_publish_total{code="ACKED",home="us-east",topic="orders"} 1`,
		`domicile_publish_total{code="HOME_UNREACHABLE",home="eu-west",topic="orders"} 1`,
		`domicile_publish_total{code="OTHER",home="",topic=""} 1`,
		`domicile_policy_serial 7`, `domicile_link_up{peer="eu-west"} 1`, `domicile_storage_healthy 1`, `domicile_certificate_days_left{kind="region",name="us-east"} 60`,
	} {
		if !strings.Contains(page, want+"\n") {
			t.Errorf("no %s", want)
		}
	}
	for line := range strings.Lines(page) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		name, _, _ := strings.Cut(line, "{")
		if strings.Contains(name, "lag") && name != "domicile_mirror_lag_seconds" {
			t.Errorf("only staleness is called lag: %s", line)
		}
		if strings.Contains(line, "orders@ap-south") && !strings.HasPrefix(line, "domicile_mirror_state") {
			t.Errorf("a sample of what is not known: %s", line)
		}
	}
}

func TestR14a_ReadyDoesNotDependOnLinks(t *testing.T) {
	v := healthy(t, "us-east")
	cut(&v, "eu-west", time.Minute)
	cut(&v, "ap-south", time.Minute)
	a := service(t, v, nil)
	if code, _ := get(t, a, "/readyz"); code != http.StatusOK {
		t.Errorf("not ready without links: %d", code)
	}
	v.Storage.Healthy, v.Storage.Reason = false, "sync failed"
	if code, body := get(t, a, "/readyz"); code != http.StatusServiceUnavailable || !strings.Contains(body, "sync failed") {
		t.Errorf("%d %q", code, body)
	}
	if code, _ := get(t, a, "/healthz"); code != http.StatusOK {
		t.Errorf("the process lives: %d", code)
	}
}

// TestRA3_ContractsArePrinted: for each topic the boundary of each ack is written
// down.
func TestRA3_ContractsArePrinted(t *testing.T) {
	a := service(t, healthy(t, "us-east"), nil)
	m, err := a.Topics(context.Background(), &pb.TopicsRequest{})
	if err != nil || len(m.GetTopics()) != 3 {
		t.Fatal(m, err)
	}
	for _, topic := range m.GetTopics() {
		text := strings.Join(topic.GetContract(), "\n")
		for _, want := range []string{"on the disk", "OUTCOME_UNKNOWN", "at least once", "Failover: never", "Home lost"} {
			if !strings.Contains(text, want) {
				t.Errorf("%s: the contract does not say %q", topic.GetName(), want)
			}
		}
		if strings.Contains(text, "do not leave it") != resident[topic.GetName()] {
			t.Errorf("%s: residency: %s", topic.GetName(), text)
		}
	}
	if _, err := a.Topics(context.Background(), &pb.TopicsRequest{Topic: "order"}); api.CodeOf(wire.ErrorFromGRPC(err)) != api.UnknownTopic {
		t.Errorf("got %v", err)
	}
}

// lagStream collects what a watch sends.
type lagStream struct {
	ctx  context.Context
	sent chan *pb.LagResponse
}

func (s lagStream) Send(m *pb.LagResponse) error { s.sent <- m; return nil }
func (s lagStream) Context() context.Context     { return s.ctx }
func (s lagStream) SetHeader(metadata.MD) error  { return nil }
func (s lagStream) SendHeader(metadata.MD) error { return nil }
func (s lagStream) SetTrailer(metadata.MD)       {}
func (s lagStream) SendMsg(any) error            { return nil }
func (s lagStream) RecvMsg(any) error            { return nil }

func TestR14d_LagIsWatched(t *testing.T) {
	a := service(t, healthy(t, "us-east"), nil)
	ctx, cancel := context.WithCancel(context.Background())
	s := lagStream{ctx, make(chan *pb.LagResponse, 100)}
	ended := make(chan error, 1)
	go func() {
		ended <- a.Lag(&pb.LagRequest{Topic: "orders", Watch: true, IntervalNano: int64(100 * time.Millisecond)}, s)
	}()
	for range 3 {
		m := <-s.sent
		if len(m.GetLogs()) != 4 || m.GetLogs()[0].GetLog().GetSlot() != "ap-south" || !m.GetLogs()[0].GetStalenessKnown() {
			t.Errorf("%v", m)
		}
	}
	cancel()
	<-ended
	once := lagStream{context.Background(), make(chan *pb.LagResponse, 100)}
	if err := a.Lag(&pb.LagRequest{}, once); err != nil || len(once.sent) != 1 {
		t.Errorf("%v, %d answers", err, len(once.sent))
	}
}
