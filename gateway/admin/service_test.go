package admin_test

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/metadata"

	"domicile/api"
	pb "domicile/api/domicile/v1"
	"domicile/api/wire"
	"domicile/gateway/admin"
	"domicile/regions"
)

func TestStatusIsThereInTwoSecondsWhateverHangs(t *testing.T) {
	t.Parallel()
	free := make(chan struct{})
	v := healthy(t, "us-east")
	a := service(t, v, func(s *admin.Sources) {
		s.Storage = func() admin.Storage { <-free; return *v.Storage }
		s.Warnings = func() []string { <-free; return nil }
	})
	for range 2 {
		start := time.Now()
		m, err := a.Status(context.Background(), &pb.StatusRequest{})
		if took := time.Since(start); err != nil || took > 6*time.Second {
			t.Errorf("%v after %v", err, took)
		}
		if m.GetStorage() != nil || !strings.Contains(strings.Join(m.GetWarnings(), "\n"), "storage did not answer") || len(m.GetLinks()) != 2 {
			t.Errorf("%v", m)
		}
	}
	close(free)
}

// What does not answer is unknown: never up, never caught up, never zero, never absent.
func TestR14d_SilenceIsNotGoodNews(t *testing.T) {
	t.Parallel()
	free := make(chan struct{})
	defer close(free)
	v := healthy(t, "us-east")
	a := service(t, v, func(s *admin.Sources) {
		s.Lags = func() []regions.Lag { <-free; return nil }
		s.Holdings = func() []admin.Holding { <-free; return nil }
		s.Policy = func() admin.Policy { <-free; return admin.Policy{} }
	})
	m, err := a.Status(context.Background(), &pb.StatusRequest{})
	if err != nil || m.GetLevel() != "failed" || !strings.Contains(m.GetVerdict(), "policy does not answer") {
		t.Errorf("status: %s %q %v", m.GetLevel(), m.GetVerdict(), err)
	}
	if _, page := get(t, a, "/metrics"); strings.Contains(page, "domicile_policy_active") {
		t.Error("a sample of a policy that does not answer")
	}
	once := lagStream{context.Background(), make(chan *pb.LagResponse, 1)}
	if err := a.Lag(&pb.LagRequest{}, once); api.CodeOf(wire.ErrorFromGRPC(err)) != api.NotReady {
		t.Errorf("lag: %v", err)
	}
	topics, err := a.Topics(context.Background(), &pb.TopicsRequest{Topic: "orders"})
	if err != nil || topics.GetTopics()[0].GetLogs()[0].GetRole() != "unknown" {
		t.Errorf("topics: %v %v", topics, err)
	}
	v.Silent = []string{"lags"}
	if m := admin.Assemble(v); m.GetLevel() != "degraded" || !strings.Contains(m.GetVerdict(), "lags unknown") {
		t.Errorf("%s %q", m.GetLevel(), m.GetVerdict())
	}
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

// TestR14f_TheContractOfATopicThatMoves: it names where to, what may be lost and what its
// home does while it is cut off, and never says that nothing is lost by force.
func TestR14f_TheContractOfATopicThatMoves(t *testing.T) {
	for rule, wants := range map[string][]string{
		"fence_after: 20s": {"takes no record of the topic any more 20s", "does not go on storing its own records", string(api.Fenced)},
		"accept: true":     {"did not confirm them, but for those of the first 10s", "void"},
	} {
		f, err := regions.ParseManifest("federation.yaml", []byte(`
version: 1
federation: shop
regions: {eu-west: {link: "a:1"}, us-east: {link: "b:1"}, ap-south: {link: "c:1"}}
authority: {voters: [eu-west, us-east, ap-south]}
topics:
  news:
    writes: home
    home: eu-west
    mirror: [all]
    failover: {mode: manual, targets: [us-east], rpo: 5s, rto: 1m, `+rule+`}
    on_home_loss: {producers: refuse, consumers: {mode: wait}, owner: o, text: t}
`))
		if err != nil {
			t.Fatal(err)
		}
		topic, _ := f.Topic("news")
		text := strings.Join(admin.Contract(f, topic, false), "\n")
		for _, want := range append(wants, "news@home to us-east", "refused if more than 5.0s could be lost", "A planned move loses nothing") {
			if !strings.Contains(text, want) {
				t.Errorf("%s: the contract does not say %q:\n%s", rule, want, text)
			}
		}
		if strings.Contains(text, "Failover: never") {
			t.Error("it says never too")
		}
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
