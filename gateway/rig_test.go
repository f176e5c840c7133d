package gateway_test

import (
	"context"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"domicile/api"
	"domicile/deploy"
	"domicile/gateway"
	"domicile/policy"
	"domicile/policy/opa"
	"domicile/regions"
	"domicile/regions/fabric"
	"domicile/regions/fabric/fabrictest"
)

func TestMain(m *testing.M) { fabrictest.VerifyTestMain(m) }

const wait = 30 * time.Second

// examples loads the example federation and policy once: judging it takes a while.
var examples = sync.OnceValues(func() (loaded, error) {
	manifest, err := os.ReadFile("../deploy/federation.yaml")
	if err != nil {
		return loaded{}, err
	}
	f, err := regions.ParseManifest("federation.yaml", manifest)
	if err != nil {
		return loaded{}, err
	}
	dir, err := os.MkdirTemp("", "policies")
	if err != nil {
		return loaded{}, err
	}
	defer os.RemoveAll(dir)
	if err := deploy.WritePolicies(dir); err != nil {
		return loaded{}, err
	}
	p, err := opa.Load(context.Background(), dir, f)
	if err != nil {
		return loaded{}, err
	}
	// The same rules under a higher serial, and rules that permit nothing.
	next, err := build(f, 2, func(q policy.Question) policy.Verdict { return verdictOf(p.Generation, q) })
	if err != nil {
		return loaded{}, err
	}
	open, err := build(f, 4, func(q policy.Question) policy.Verdict { return permitAll(f, q) })
	if err != nil {
		return loaded{}, err
	}
	none, err := build(f, 3, func(policy.Question) policy.Verdict {
		return policy.Verdict{Reasons: []policy.Reason{{Code: policy.ReasonNoPermit}}}
	})
	return loaded{f, p.Generation, next, none, open}, err
})

type loaded struct {
	federation              *regions.Federation
	first, next, none, open *policy.Generation
}

// permitAll permits what the map permits, and every transit.
func permitAll(f *regions.Federation, q policy.Question) policy.Verdict {
	v := policy.Verdict{Allow: true, Regions: f.Regions(), Reasons: []policy.Reason{{Code: policy.ReasonPermitted}}}
	for _, t := range q.Tags {
		if floor := f.Floor(t.Value); t.Name == "residency" && q.Point == policy.Admit && len(floor) == 1 {
			v.Destination = floor[0]
		}
	}
	return v
}

func build(f *regions.Federation, serial int64, judge func(policy.Question) policy.Verdict) (*policy.Generation, error) {
	catalog := &policy.Catalog{
		Serial: serial, Classes: []string{"app", "operator"},
		Dimensions: map[string][]string{"residency": {"eu", "us", "in", "global"}, "class": {"order", "catalog", "health"}},
		Topics: map[string]policy.CatalogTopic{
			"orders":          {Allow: []map[string][]string{{"residency": {"eu", "us", "in", "global"}, "class": {"order"}}}, Packages: []string{"x"}},
			"catalog.updates": {Allow: []map[string][]string{{"residency": {"global"}, "class": {"catalog"}}}, Packages: []string{"x"}},
			"health.records":  {Allow: []map[string][]string{{"residency": {"eu", "us", "in"}, "class": {"health"}}}, Packages: []string{"x"}},
		},
	}
	digest := strings.Repeat(string(rune('a'+serial)), 16)
	return policy.Build(context.Background(), catalog, f, digest, func(_ context.Context, q policy.Question) (policy.Verdict, error) { return judge(q), nil })
}

func verdictOf(g *policy.Generation, q policy.Question) policy.Verdict {
	d, err := g.Ask(q)
	if err != nil {
		return policy.Verdict{Reasons: []policy.Reason{{Code: policy.ReasonUnknown}}}
	}
	return policy.Verdict{Allow: d.Allow, Regions: d.Regions, Destination: d.Destination, Reasons: d.Reasons}
}

// rig is the example federation in one process: a real store, policy and gateway per
// region, and links that tests cut.
type rig struct {
	t          testing.TB
	federation *regions.Federation
	policies   loaded
	region     map[string]*region
}

// region is one region of a rig.
type region struct {
	*gateway.Gateway
	name   string
	gate   *policy.Gate
	store  *fabric.Fabric
	links  *links
	counts *counts
	homes  map[api.LogID]regions.HomeLog
	copies map[api.LogID]regions.CopyLog
	lags   map[api.LogID]regions.Lag // what Lags says of copies; set before use
}

func newRig(t testing.TB, change ...func(*gateway.Config)) *rig {
	t.Helper()
	l, err := examples()
	if err != nil {
		t.Fatal(err)
	}
	return newRigOn(t, l, change...)
}

func newRigOn(t testing.TB, l loaded, change ...func(*gateway.Config)) *rig {
	t.Helper()
	r := &rig{t: t, federation: l.federation, policies: l, region: map[string]*region{}}
	for _, name := range l.federation.Regions() {
		r.region[name] = r.start(name, change)
	}
	return r
}

func (r *rig) start(name string, change []func(*gateway.Config)) *region {
	g := &region{name: name, gate: policy.NewGate(r.federation, name, policy.Hooks{}), counts: &counts{},
		homes: map[api.LogID]regions.HomeLog{}, copies: map[api.LogID]regions.CopyLog{}, lags: map[api.LogID]regions.Lag{}}
	if err := g.gate.Activate(context.Background(), r.policies.first); err != nil {
		r.t.Fatal(err)
	}
	// What is on disk when is proved by the store's own tests; here the disk's pace
	// would only make the tests wait.
	g.store = fabrictest.Open(r.t, func(c *fabric.Config) { c.Region = name; c.Hooks.Sync = func(*os.File) error { return nil } })
	g.openLogs(r)
	g.links = &links{rig: r, self: name, mode: map[string]mode{}, hello: r.hello(r.federation)}
	c := gateway.Config{
		Self: name, Federation: r.federation, Placement: r.federation, Gate: g.gate, Links: g.links, Lags: lagsOf(g.lags),
		Homes: func(id api.LogID) (regions.HomeLog, bool) { l, ok := g.homes[id]; return l, ok },
		Logs:  g.logsOf, Clock: regions.NewSteadyClock(), Pace: 0.25, Counters: g.counts,
	}
	for _, f := range change {
		f(&c)
	}
	var err error
	if g.Gateway, err = gateway.New(c); err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), wait)
		defer cancel()
		if err := g.Close(ctx); err != nil {
			r.t.Error(err)
		}
	})
	return g
}

func (g *region) openLogs(r *rig) {
	ctx, cancel := context.WithTimeout(context.Background(), wait)
	defer cancel()
	for _, name := range r.federation.Topics() {
		topic, _ := r.federation.Topic(name)
		for _, id := range r.federation.Logs(topic) {
			home, epoch, _ := r.federation.Home(id)
			var err error
			switch {
			case home == g.name:
				g.homes[id], err = g.store.Home(ctx, fabric.LogConfig{ID: id, Epoch: epoch, MaxBytes: 64 << 20})
			case slices.Contains(r.federation.Targets(id), g.name):
				g.copies[id], err = g.store.Copy(ctx, fabric.LogConfig{ID: id, Epoch: epoch, MaxBytes: 64 << 20})
			}
			if err != nil {
				r.t.Fatal(err)
			}
		}
	}
}

func (g *region) logsOf(topic string) []regions.Log {
	var logs []regions.Log
	for id, l := range g.homes {
		if id.Topic == topic {
			logs = append(logs, l)
		}
	}
	for id, l := range g.copies {
		if id.Topic == topic {
			logs = append(logs, l)
		}
	}
	slices.SortFunc(logs, func(a, b regions.Log) int { return strings.Compare(a.ID().String(), b.ID().String()) })
	return logs
}

func (r *rig) hello(f *regions.Federation) *regions.Hello {
	h := &regions.Hello{ManifestDigest: f.Digest(), TopicDigests: map[string]string{}, TopicFields: map[string]map[string]string{}}
	for _, name := range f.Topics() {
		t, _ := f.Topic(name)
		h.TopicDigests[name], h.TopicFields[name] = f.TopicDigest(name), t.Fields()
	}
	return h
}

type lagsOf map[api.LogID]regions.Lag

func (l lagsOf) Lag(id api.LogID) regions.Lag {
	if lag, ok := l[id]; ok {
		return lag
	}
	return regions.Lag{Log: id, State: regions.LagUnknown}
}

// mode is what a link does to records.
type mode int

const (
	up mode = iota
	down
	hole // up as far as anyone knows; nothing is ever answered
)

// holeRoom is how many records one peer may hold, as a link bounds them.
const holeRoom = 16

// links carries records between the gateways of a rig by a call.
type links struct {
	rig   *rig
	self  string
	mu    sync.Mutex
	mode  map[string]mode
	hello *regions.Hello
	held  int
	lie   func(*api.Ack) // what a home does to its acks; nil: nothing
}

func (l *links) set(peer string, m mode) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mode[peer] = m
}

func (l *links) Status(peer string) (regions.LinkStatus, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if peer == l.self {
		return regions.LinkStatus{}, false
	}
	s := regions.LinkStatus{Peer: peer, Up: true, Since: time.Now().Add(-time.Minute), Hello: l.hello}
	if l.mode[peer] == down {
		s.Up, s.Reason = false, "cut"
	}
	return s, true
}

func (l *links) Forward(peer string, f regions.Forward, done func(api.Ack, error)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch l.mode[peer] {
	case down:
		go done(api.Ack{}, &api.Error{Code: api.HomeUnreachable})
	case hole:
		if l.held == holeRoom {
			done(api.Ack{}, &api.Error{Code: api.Overloaded, Region: peer})
			return
		}
		l.held++
		time.AfterFunc(time.Until(f.Deadline), func() {
			l.mu.Lock()
			l.held--
			l.mu.Unlock()
			done(api.Ack{}, &api.Error{Code: api.OutcomeUnknown, Region: peer})
		})
	default:
		if lie := l.lie; lie != nil {
			honest := done
			done = func(a api.Ack, err error) { lie(&a); honest(a, err) }
		}
		go l.rig.region[peer].Forwarded(context.Background(), l.self, f, done)
	}
}

// counts remembers what the counters heard.
type counts struct {
	mu        sync.Mutex
	published map[api.Code]int
	withheld  int
}

func (c *counts) Published(_, _ string, code api.Code) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.published == nil {
		c.published = map[api.Code]int{}
	}
	c.published[code]++
}
func (c *counts) Took(string, string, api.Code) {}
func (c *counts) Read(_ string, _, withheld int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.withheld += withheld
}

// permitTransit gives every region a policy that permits every transit.
func (r *rig) permitTransit() {
	r.t.Helper()
	for _, g := range r.region {
		if err := g.gate.Activate(context.Background(), r.policies.open); err != nil {
			r.t.Fatal(err)
		}
	}
}

type outcome struct {
	ack api.Ack
	err error
}

// client is the principal of an application in a region.
func client(place string) regions.Principal {
	return regions.Principal{Name: "app", Kind: "client", Class: "app", Place: place}
}

// publish publishes in a region as one of its own clients, and waits.
func (r *rig) publish(region string, rec api.Record) (api.Ack, error) {
	r.t.Helper()
	out := make(chan outcome, 1)
	r.region[region].Publish(context.Background(), rec, client(region), nil, func(a api.Ack, err error) { out <- outcome{a, err} })
	select {
	case o := <-out:
		return o.ack, o.err
	case <-time.After(wait):
		r.t.Fatal("no outcome")
		return api.Ack{}, nil
	}
}

// must publishes and expects an ack.
func (r *rig) must(region string, rec api.Record) api.Ack {
	r.t.Helper()
	a, err := r.publish(region, rec)
	if err != nil {
		r.t.Fatalf("publish in %s: %v", region, err)
	}
	return a
}

func order(residency string) api.Record {
	return api.Record{Topic: "orders", Tags: []api.Tag{{Name: "class", Value: "order"}, {Name: "residency", Value: residency}}, Body: []byte("a book")}
}

func catalogue() api.Record {
	return api.Record{Topic: "catalog.updates", Tags: []api.Tag{{Name: "class", Value: "catalog"}, {Name: "residency", Value: "global"}}, Body: []byte("a price")}
}

func health(residency string) api.Record {
	return api.Record{Topic: "health.records", Tags: []api.Tag{{Name: "class", Value: "health"}, {Name: "residency", Value: residency}}, Body: []byte("a pulse")}
}

func logID(t testing.TB, s string) api.LogID {
	t.Helper()
	id, err := api.ParseLogID(s)
	if err != nil {
		t.Fatal(err)
	}
	return id
}
