package mirror_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	"domicile/api"
	"domicile/deploy"
	"domicile/mirror"
	"domicile/policy"
	"domicile/policy/opa"
	"domicile/regions"
	"domicile/regions/fabric"
	"domicile/regions/fabric/fabrictest"
)

// site is one region with a real fabric and the example policy.
type site struct {
	name   string
	dir    string
	fabric *fabric.Fabric
	gate   *policy.Gate
	copies map[api.LogID]regions.CopyLog // opened
}

// copy opens a copy once.
func (s *site) copy(ctx context.Context, log api.LogID, epoch api.Epoch) (regions.CopyLog, error) {
	if c := s.copies[log]; c != nil {
		return c, nil
	}
	c, err := s.fabric.Copy(ctx, fabric.LogConfig{ID: log, Epoch: epoch, MaxBytes: 64 << 20})
	if err == nil {
		s.copies[log] = c
	}
	return c, err
}

func (s *site) enter() mirror.Pass { return s.gate.Enter() }

func (s *site) start(t testing.TB) {
	t.Helper()
	f, err := fabric.Open(t.Context(), fabric.Config{Region: s.name, Federation: "example", Dir: s.dir, MaxStore: 1 << 30})
	if err != nil {
		t.Fatal(err)
	}
	s.fabric, s.copies = f, map[api.LogID]regions.CopyLog{}
}

func (s *site) stop(t testing.TB) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := s.fabric.Close(ctx); err != nil {
		t.Error(err)
	}
}

// pair is eu-west and us-east over an in-process link.
type pair struct {
	t      testing.TB
	fed    *regions.Federation
	clock  regions.Clock
	eu, us *site
	wire   *wire
	homes  []regions.HomeLog
	source *mirror.Source
	target *mirror.Target
	hooks  mirror.SourceHooks
}

// example is the example policy under a serial.
func example(t testing.TB, fed *regions.Federation, serial int) *policy.Generation {
	t.Helper()
	dir := t.TempDir()
	if err := deploy.WritePolicies(dir); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "catalog.yaml")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	text = regexp.MustCompile(`(?m)^serial: \d+`).ReplaceAll(text, fmt.Appendf(nil, "serial: %d", serial))
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	loaded, err := opa.Load(t.Context(), dir, fed)
	if err != nil {
		t.Fatal(err)
	}
	return loaded.Generation
}

func newPair(t testing.TB, change ...func(*pair)) *pair {
	t.Helper()
	fed, err := regions.LoadManifest("../deploy/federation.yaml")
	if err != nil {
		t.Fatal(err)
	}
	generation := example(t, fed, 1)
	p := &pair{t: t, fed: fed, clock: regions.NewSteadyClock(), wire: &wire{up: true, streams: map[*pipe]bool{}}}
	for _, c := range change {
		c(p)
	}
	site := func(name string) *site {
		s := &site{name: name, dir: t.TempDir(), gate: policy.NewGate(fed, name, policy.Hooks{})}
		if err := s.gate.Activate(t.Context(), generation); err != nil {
			t.Fatal(err)
		}
		s.start(t)
		return s
	}
	p.eu, p.us = site("eu-west"), site("us-east")
	p.startTarget()
	p.startSource()
	t.Cleanup(func() { p.stopSource(); p.eu.stop(t); p.us.stop(t) })
	return p
}

// logger writes to the test's output, for the day it fails.
func (p *pair) logger(region string) *slog.Logger {
	return slog.New(slog.NewTextHandler(p.t.Output(), &slog.HandlerOptions{Level: slog.LevelDebug})).With("region", region)
}

func (p *pair) startTarget() {
	target, err := mirror.NewTarget(mirror.TargetConfig{
		Self: "us-east", Federation: p.fed, Link: p.wire.status, Enter: p.us.enter, Clock: p.clock, Logger: p.logger("us-east"),
		Copy: p.us.copy,
	})
	if err != nil {
		p.t.Fatal(err)
	}
	p.target = target
	target.Start(p.t.Context())
	p.wire.mu.Lock()
	p.wire.target = target
	p.wire.mu.Unlock()
}

func (p *pair) startSource() {
	p.homes = nil
	for _, name := range []string{"orders@eu-west", "catalog.updates@home"} {
		id, _ := api.ParseLogID(name)
		_, epoch, _ := p.fed.Home(id)
		log, err := p.eu.fabric.Home(p.t.Context(), fabric.LogConfig{ID: id, Epoch: epoch, MaxBytes: 256 << 20})
		if err != nil {
			p.t.Fatal(err)
		}
		p.homes = append(p.homes, log)
	}
	p.runSource()
}

// runSource mirrors the home logs that are set.
func (p *pair) runSource() {
	source, err := mirror.NewSource(mirror.SourceConfig{
		Self: "eu-west", Federation: p.fed, Link: p.wire.status, Enter: p.eu.enter, Clock: p.clock, Logger: p.logger("eu-west"), Hooks: p.hooks,
		OpenMirror: p.wire.open, HomeLogs: func() []regions.HomeLog { return p.homes },
		Targets: func(api.LogID) []string { return []string{"us-east"} },
	})
	if err != nil {
		p.t.Fatal(err)
	}
	p.source = source
	source.Start()
}

func (p *pair) stopSource() {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := p.source.Close(ctx); err != nil {
		p.t.Error(err)
	}
}

func (p *pair) setLink(up bool) {
	p.wire.cut()
	p.wire.mu.Lock()
	p.wire.up = up
	p.wire.mu.Unlock()
	status, _ := p.wire.status("us-east")
	p.source.LinkChanged(status)
	if up {
		p.target.Watermarks("eu-west", p.source.Marks("us-east", true))
	}
}

// publish appends n records to a home log and waits for their acks.
func (p *pair) publish(log regions.HomeLog, prefix string, n, size int, tags ...api.Tag) {
	p.t.Helper()
	acks := make(chan regions.Stored, n)
	for i := range n {
		r := api.Record{ID: fmt.Sprintf("%s-%d", prefix, i), Topic: log.ID().Topic, Key: "k", Body: make([]byte, size), Tags: tags}
		log.Append(regions.Draft{Record: r, Revision: "1-x"}, func(s regions.Stored) { acks <- s })
	}
	for range n {
		select {
		case s := <-acks:
			if s.Err != nil {
				p.t.Fatal(s.Err)
			}
		case <-time.After(20 * time.Second):
			p.t.Fatal("no ack")
		}
	}
}

func (p *pair) caughtUp(log regions.HomeLog) {
	p.t.Helper()
	var l regions.Lag
	defer func() {
		if p.t.Failed() {
			p.t.Logf("%+v", l)
		}
	}()
	eventually(p.t, "caught up: "+log.ID().String(), func() bool {
		var ok bool
		l, ok = p.source.Lag(log.ID(), "us-east")
		return ok && l.State == regions.LagCaughtUp && l.Cursor == log.Head().Sequence
	})
}

// contents is what the copy in us-east holds, and checks that it is dense.
func (p *pair) contents(id api.LogID) (ids []string, ledger regions.Ledger) {
	p.t.Helper()
	log := p.us.copies[id]
	seen := map[string]bool{}
	next := uint64(1)
	for _, i := range fabrictest.ReadAll(p.t, log, 0) {
		from := i.Sequence
		if i.Gap != nil {
			from = i.Gap.From
		} else {
			ids = append(ids, i.Record.ID)
			if seen[i.Record.ID] {
				p.t.Errorf("%s is stored twice", i.Record.ID)
			}
			seen[i.Record.ID] = true
		}
		if from != next {
			p.t.Fatalf("the copy has %d where %d belongs", from, next)
		}
		next = i.Sequence + 1
	}
	c := log.Cursor()
	if c.Ledger.Sum() != c.Sequence {
		p.t.Errorf("ledger %+v, cursor %d", c.Ledger, c.Sequence)
	}
	return ids, c.Ledger
}

func tags(residency, class string) []api.Tag {
	return []api.Tag{{Name: "class", Value: class}, {Name: "residency", Value: residency}}
}

// The whole way on real parts: real fabrics and the example policy in Rego.
func TestR14b_R14c_RealFabricsAndPolicy(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	log, catalog := p.homes[0], p.homes[1]
	for round := range 3 {
		p.publish(log, fmt.Sprintf("eu%d", round), 50, 200, tags("eu", "order")...)
		p.publish(log, fmt.Sprintf("gl%d", round), 30, 200, tags("global", "order")...)
		p.publish(catalog, fmt.Sprintf("ca%d", round), 20, 200, tags("global", "catalog")...)
	}
	p.caughtUp(log)
	p.caughtUp(catalog)
	if ids, ledger := p.contents(log.ID()); len(ids) != 90 || ledger.Withheld != 150 {
		t.Errorf("orders: %d mirrored, ledger %+v", len(ids), ledger)
	}
	if ids, ledger := p.contents(catalog.ID()); len(ids) != 60 || ledger.Withheld != 0 {
		t.Errorf("catalog: %d mirrored, ledger %+v", len(ids), ledger)
	}
	for id, n := range p.target.IngressWithheld() {
		if n != 0 {
			t.Errorf("ingress withheld %d of %s", n, id)
		}
	}
	p.target.Watermarks("eu-west", p.source.Marks("us-east", true))
	for _, l := range p.target.Lags() {
		if l.Home == "eu-west" && l.Log.Topic != "health.records" && (l.State != regions.LagCaughtUp || l.Staleness > 2*time.Second) {
			t.Errorf("%+v", l)
		}
	}
}

// Both sides restart in turn, with the link cut in mid-stream each time.
func TestB13_RealFabricsRestartWithoutDuplicates(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	sent := 0
	for round := range 2 {
		log := p.homes[0]
		p.publish(log, fmt.Sprintf("a%d", round), 300, 500, tags("global", "order")...)
		sent += 300
		p.setLink(false)
		if round%2 == 0 {
			p.us.stop(t)
			p.us.start(t)
			p.startTarget()
			id := log.ID()
			l, _ := p.target.Lag(id)
			if at := p.us.copies[id].Cursor().Time; l.StalenessKnown != !at.IsZero() || !l.SafeTime.Equal(at) {
				t.Errorf("after a restart: safe time %v, the copy's last record is of %v", l.SafeTime, at)
			}
		} else {
			p.stopSource()
			p.eu.stop(t)
			p.eu.start(t)
			p.startSource()
		}
		p.setLink(true)
	}
	p.caughtUp(p.homes[0])
	if ids, _ := p.contents(p.homes[0].ID()); len(ids) != sent {
		t.Errorf("%d records in the copy, want %d", len(ids), sent)
	}
}

// Past egress, ingress refuses: the second decision does not lean on the first.
func TestR14b_IngressRefusesWhatEgressLetGo(t *testing.T) {
	t.Parallel()
	p := newPair(t, func(p *pair) {
		p.hooks.SkipEgress = func(log api.LogID, _ string) bool { return log.Topic == "orders" }
	})
	log := p.homes[0]
	p.publish(log, "eu", 10, 100, tags("eu", "order")...)
	p.caughtUp(log)
	if ids, ledger := p.contents(log.ID()); len(ids) != 0 || ledger.Withheld != 10 {
		t.Errorf("%d stored, ledger %+v", len(ids), ledger)
	}
	if n := p.target.IngressWithheld()[log.ID()]; n != 10 {
		t.Errorf("ingress withheld %d", n)
	}
}

// gatedCopy is a copy whose disk takes its time.
type gatedCopy struct {
	regions.CopyLog
	entered, proceed chan struct{}
}

func (g *gatedCopy) Apply(ctx context.Context, incarnation string, items []regions.Item) (regions.Cursor, error) {
	close(g.entered)
	<-g.proceed
	return g.CopyLog.Apply(ctx, incarnation, items)
}

// An activation that has returned has nothing of an older policy behind it: what
// ingress let in under that policy is on disk by then.
func TestR14b_ActivationWaitsForBatchesOnTheirWayToDisk(t *testing.T) {
	t.Parallel()
	fed, err := regions.LoadManifest("../deploy/federation.yaml")
	if err != nil {
		t.Fatal(err)
	}
	gate := policy.NewGate(fed, "us-east", policy.Hooks{})
	if err := gate.Activate(t.Context(), example(t, fed, 1)); err != nil {
		t.Fatal(err)
	}
	clock := regions.NewManualClock(start)
	home := newMemoryLog(orders, "inc", clock)
	home.append("global", 10)
	home.items[0].Record.Tags = tags("global", "order")
	slow := &gatedCopy{newMemoryLog(orders, "", clock), make(chan struct{}), make(chan struct{})}
	target, err := mirror.NewTarget(mirror.TargetConfig{
		Self: "us-east", Federation: fed, Enter: func() mirror.Pass { return gate.Enter() }, Clock: clock, Logger: quiet(),
		Link: func(peer string) (regions.LinkStatus, bool) { return regions.LinkStatus{Peer: peer, Up: true}, true },
		Copy: func(context.Context, api.LogID, api.Epoch) (regions.CopyLog, error) { return slow, nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	sink, _ := target.OpenMirror(t.Context(), "eu-west", regions.MirrorOpen{Log: orders, Incarnation: "inc", Epoch: home.epoch(), Head: 1, Digest: fed.TopicDigest("orders")})
	replies, activated := make(chan regions.MirrorReply, 1), make(chan error, 1)
	go func() {
		replies <- sink.Apply(t.Context(), regions.MirrorBatch{Incarnation: "inc", Serial: 1, Revision: "1-x", Items: home.items})
	}()
	<-slow.entered
	next := example(t, fed, 2)
	go func() { activated <- gate.Activate(t.Context(), next) }()
	eventually(t, "the new policy is active", func() bool { return gate.Current() == next })
	select {
	case err := <-activated:
		t.Fatalf("activation returned (%v) with a batch of the older policy on its way", err)
	default:
	}
	close(slow.proceed)
	if reply := <-replies; reply.Refused != "" {
		t.Errorf("%+v", reply)
	}
	if err := <-activated; err != nil {
		t.Error(err)
	}
}

// BenchmarkCatchUp is the time to mirror a backlog of 1 KiB records, all on one
// machine: real fabrics, real policy, no network.
func BenchmarkCatchUp(b *testing.B) {
	p := newPair(b, func(p *pair) { p.wire.up = false })
	log := p.homes[1]
	for i := range max(1, b.N/1000) {
		p.publish(log, fmt.Sprint(i), 1000, 1024, tags("global", "catalog")...)
	}
	b.ResetTimer()
	p.setLink(true)
	p.caughtUp(log)
	b.ReportMetric(float64(log.Head().Sequence)/b.Elapsed().Seconds(), "records/s")
}
