package admin_test

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"testing"
	"time"

	"domicile/api"
	pb "domicile/api/domicile/v1"
	"domicile/api/wire"
	"domicile/gateway"
	"domicile/gateway/admin"
	"domicile/mirror"
	"domicile/regions"
	"domicile/regions/fabric/fabrictest"
)

func TestMain(m *testing.M) { fabrictest.VerifyTestMain(m) }

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
	h := &regions.Hello{PolicySerial: 7, PolicyRevision: "7-abcdef01", ManifestDigest: f.Digest(), TopicDigests: map[string]string{}, TopicFields: map[string]map[string]string{}}
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
		Seat:         admin.Seat{Open: true},
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

// service is an Admin over a view, over HTTP and as a gRPC service.
func service(t *testing.T, v admin.View, change func(*admin.Sources)) *admin.Admin {
	t.Helper()
	return serve(t, config(t, v, change))
}

func config(t *testing.T, v admin.View, change func(*admin.Sources)) admin.Config {
	t.Helper()
	s := admin.Sources{
		Seat:  func() admin.Seat { return v.Seat },
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
	return admin.Config{Region: v.Region, Version: "v0", Federation: v.Federation, Placement: v.Federation, Sources: s,
		Listener: l, Clock: regions.NewManualClock(now), Logger: slog.New(slog.DiscardHandler)}
}

func serve(t *testing.T, c admin.Config) *admin.Admin {
	t.Helper()
	a := admin.New(c)
	a.Start()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
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
