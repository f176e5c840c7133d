package door_test

import (
	"bytes"
	"context"
	"log/slog"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"domicile/api"
	"domicile/api/client"
	"domicile/gateway"
	"domicile/gateway/door"
	"domicile/policy"
	"domicile/regions"
	"domicile/regions/fabric"
	"domicile/regions/fabric/fabrictest"
)

func TestMain(m *testing.M) { fabrictest.VerifyTestMain(m) }

const wait = 60 * time.Second

const manifest = `
version: 1
federation: test
regions:
  eu-west: {link: "127.0.0.1:1"}
  us-east: {link: "127.0.0.1:2"}
boundaries: {eu: [eu-west], us: [us-east]}
topics:
  orders: {writes: local, mirror: [all], on_home_loss: {producers: refuse, consumers: {mode: wait}, owner: o, text: t}}
`

// rig is one region, us-east, with a real store, gateway and door. Its link to
// eu-west is up and never answers.
type rig struct {
	t       testing.TB
	fed     *regions.Federation
	gate    *policy.Gate
	home    regions.HomeLog
	gateway *gateway.Gateway
	hole    *hole
	log     *safeBuffer // every log line
	logger  *slog.Logger
	clock   regions.Clock
}

type safeBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *safeBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *safeBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

func newRig(t testing.TB) *rig {
	t.Helper()
	r := &rig{t: t, log: &safeBuffer{}, clock: regions.NewSteadyClock()}
	r.logger = slog.New(slog.NewTextHandler(r.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	var err error
	if r.fed, err = regions.ParseManifest("federation.yaml", []byte(manifest)); err != nil {
		t.Fatal(err)
	}
	r.gate = policy.NewGate(r.fed, "us-east", policy.Hooks{})
	if err := r.gate.Activate(context.Background(), r.generation()); err != nil {
		t.Fatal(err)
	}
	store := fabrictest.Open(t, func(c *fabric.Config) {
		c.Region, c.Logger, c.Hooks.Sync = "us-east", r.logger, func(*os.File) error { return nil }
	})
	id := api.LogID{Tenant: api.DefaultTenant, Topic: "orders", Slot: "us-east"}
	if r.home, err = store.Home(context.Background(), fabric.LogConfig{ID: id, Epoch: api.StaticEpoch("us-east"), MaxBytes: 256 << 20}); err != nil {
		t.Fatal(err)
	}
	r.hole = &hole{hello: &regions.Hello{TopicDigests: map[string]string{"orders": r.fed.TopicDigest("orders")}}}
	r.gateway, err = gateway.New(gateway.Config{
		Self: "us-east", Federation: r.fed, Placement: r.fed, Gate: r.gate, Links: r.hole, Lags: noLags{},
		Homes: func(l api.LogID) (regions.HomeLog, bool) { return r.home, l == id },
		Logs:  func(string) []regions.Log { return []regions.Log{r.home} },
		Clock: r.clock, Pace: 0.25,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		r.hole.release()
		ctx, cancel := context.WithTimeout(context.Background(), wait)
		defer cancel()
		if err := r.gateway.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	return r
}

func (r *rig) generation() *policy.Generation {
	r.t.Helper()
	catalog := &policy.Catalog{Serial: 1, Classes: []string{"app"}, Dimensions: map[string][]string{"residency": {"eu", "us", "global"}},
		Topics: map[string]policy.CatalogTopic{"orders": {Allow: []map[string][]string{{"residency": {"eu", "us", "global"}}}, Packages: []string{"x"}}}}
	g, err := policy.Build(context.Background(), catalog, r.fed, strings.Repeat("a", 16), func(_ context.Context, q policy.Question) (policy.Verdict, error) {
		v := policy.Verdict{Allow: true, Regions: r.fed.Regions(), Reasons: []policy.Reason{{Code: policy.ReasonPermitted}}}
		if floor := r.fed.Floor(q.Tags[0].Value); q.Point == policy.Admit && len(floor) == 1 {
			v.Destination = floor[0]
		}
		return v, nil
	})
	if err != nil {
		r.t.Fatal(err)
	}
	return g
}

type noLags struct{}

func (noLags) Lag(id api.LogID) regions.Lag { return regions.Lag{Log: id, State: regions.LagUnknown} }

// hole is a link that takes up to 4,096 records and answers when it is told to.
type hole struct {
	hello *regions.Hello
	mu    sync.Mutex
	held  []func()
	open  bool // answers at once
}

func (h *hole) Status(peer string) (regions.LinkStatus, bool) {
	return regions.LinkStatus{Peer: peer, Up: true, Hello: h.hello, Since: time.Now()}, peer == "eu-west"
}

func (h *hole) Forward(peer string, f regions.Forward, done func(api.Ack, error)) {
	answer := func() {
		done(api.Ack{ID: f.Record.ID, Topic: f.Log.Topic, Log: f.Log, Region: peer, Incarnation: "i", Sequence: 1, Durability: api.Disk1}, nil)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.open:
		go answer()
	case len(h.held) == 4096:
		go done(api.Ack{}, &api.Error{Code: api.Overloaded, Region: peer, Hint: "later"})
	default:
		h.held = append(h.held, answer)
	}
}

// release answers everything that is held, and from now on at once.
func (h *hole) release() {
	h.mu.Lock()
	held := h.held
	h.held, h.open = nil, true
	h.mu.Unlock()
	for _, answer := range held {
		answer()
	}
}

func (h *hole) holds() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.held)
}

func listen(t testing.TB) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// open starts a door; by default one for development.
func (r *rig) open(change ...func(*door.Config)) *door.Server {
	r.t.Helper()
	c := door.Config{Listener: listen(r.t), DevClass: "app", Region: "us-east", Federation: r.fed, Gateway: r.gateway, Clock: r.clock, Logger: r.logger}
	for _, f := range change {
		f(&c)
	}
	s, err := door.New(c)
	if err != nil {
		r.t.Fatal(err)
	}
	s.Start()
	r.t.Cleanup(func() { r.close(s) })
	return s
}

func (r *rig) close(s *door.Server) {
	ctx, cancel := context.WithTimeout(context.Background(), wait)
	defer cancel()
	_ = s.Close(ctx)
}

func (r *rig) client(change func(*client.Config), doors ...*door.Server) *client.Client {
	r.t.Helper()
	c := client.Config{}
	for _, d := range doors {
		c.Addresses = append(c.Addresses, d.Addr().String())
	}
	if change != nil {
		change(&c)
	}
	cl, err := client.New(c)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = cl.Close() })
	return cl
}

func order(residency, body string) api.Record {
	return api.Record{Topic: "orders", Tags: []api.Tag{{Name: "residency", Value: residency}}, Body: []byte(body)}
}

func deadline(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), wait)
	t.Cleanup(cancel)
	return ctx
}

func eventually(t testing.TB, what string, is func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(wait); time.Now().Before(end); <-tick.C {
		if is() {
			return
		}
	}
	t.Fatalf("never: %s", what)
}
