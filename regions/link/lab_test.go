package link_test

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"testing"
	"time"

	"domicile/api"
	"domicile/regions"
	"domicile/regions/fabric/fabrictest"
	"domicile/regions/identity"
	"domicile/regions/link"
)

// Tests that wait for heartbeats to be missed run at a half of real pace; beat is one
// heartbeat there. All others run at real pace, so that a busy machine costs them no
// link.
const (
	halfPace = regions.Pace(0.5)
	beat     = 500 * time.Millisecond
)

// TestMain lets more tests run at a time than there are cores: they wait for heartbeats.
func TestMain(m *testing.M) {
	flag.Parse()
	if err := flag.Set("test.parallel", "8"); err != nil {
		panic(err)
	}
	fabrictest.VerifyTestMain(m)
}

// region is one real mesh on a real socket, and a node behind it that a test fills in.
type region struct {
	*link.Mesh
	name    string
	config  link.Config
	changes chan struct{} // a status may have changed

	mu        sync.Mutex
	hello     regions.Hello
	forwarded func(ctx context.Context, peer string, f regions.Forward, done func(api.Ack, error))
	mirror    func(peer string, o regions.MirrorOpen) (link.MirrorSink, regions.MirrorReply)
	marks     func(peer string, all bool) regions.Watermarks
	rounds    []regions.Watermarks
	statuses  []regions.LinkStatus
}

func (r *region) Forwarded(ctx context.Context, peer string, f regions.Forward, done func(api.Ack, error)) {
	r.mu.Lock()
	forwarded := r.forwarded
	r.mu.Unlock()
	if forwarded == nil {
		done(api.Ack{ID: f.Record.ID, Log: f.Log, Region: r.name, Durability: api.Disk1}, nil)
		return
	}
	forwarded(ctx, peer, f, done)
}

func (r *region) OpenMirror(_ context.Context, peer string, o regions.MirrorOpen) (link.MirrorSink, regions.MirrorReply) {
	r.mu.Lock()
	open := r.mirror
	r.mu.Unlock()
	if open == nil {
		return nil, regions.MirrorReply{Refused: api.UnknownTopic}
	}
	return open(peer, o)
}

func (r *region) Marks(peer string, all bool) regions.Watermarks {
	r.mu.Lock()
	marks := r.marks
	r.mu.Unlock()
	if marks == nil {
		return regions.Watermarks{Issued: r.config.Clock.Now(), All: all}
	}
	return marks(peer, all)
}

func (r *region) Watermarks(_ string, w regions.Watermarks) {
	r.mu.Lock()
	r.rounds = append(r.rounds, w)
	r.mu.Unlock()
	r.poke()
}

func (r *region) LinkChanged(s regions.LinkStatus) {
	r.mu.Lock()
	r.statuses = append(r.statuses, s)
	r.mu.Unlock()
	r.poke()
}

func (r *region) poke() {
	select {
	case r.changes <- struct{}{}:
	default:
	}
}

func (r *region) setHello(change func(*regions.Hello)) {
	r.mu.Lock()
	change(&r.hello)
	r.mu.Unlock()
}

func (r *region) link(peer string) regions.LinkStatus {
	s, ok := r.Status(peer)
	if !ok {
		panic("no link with " + peer)
	}
	return s
}

// lab is a set of regions with one authority.
type lab struct {
	t       *testing.T
	pace    regions.Pace
	ca      *identity.Authority
	regions map[string]*region
	addr    map[string]string
	listen  map[string]net.Listener
}

func newLab(t *testing.T, pace regions.Pace, names ...string) *lab {
	t.Helper()
	l := &lab{t: t, pace: pace, regions: map[string]*region{}, addr: map[string]string{}, listen: map[string]net.Listener{}}
	l.ca = must(identity.NewCA("shop", time.Now(), time.Hour))
	for _, n := range names {
		l.listen[n] = must(net.Listen("tcp", "127.0.0.1:0"))
		l.addr[n] = l.listen[n].Addr().String()
	}
	for _, n := range names {
		l.prepare(n, nil)
	}
	return l
}

// started is a lab whose regions all run and whose links are all up.
func started(t *testing.T, pace regions.Pace, names ...string) *lab {
	t.Helper()
	l := newLab(t, pace, names...)
	for _, n := range names {
		l.start(n)
	}
	for _, a := range names {
		for _, b := range names {
			if a != b {
				l.await(a, b, "up", func(s regions.LinkStatus) bool { return s.Up })
			}
		}
	}
	return l
}

// prepare makes a region's mesh; change may alter its configuration.
func (l *lab) prepare(name string, change func(*region)) *region {
	l.t.Helper()
	peers := map[string][]string{}
	for n, a := range l.addr {
		if n != name {
			peers[n] = []string{a}
		}
	}
	r := &region{name: name, changes: make(chan struct{}, 1)}
	r.hello = regions.Hello{Federation: "shop", FabricID: "fabric-" + name, BootID: fmt.Sprint("boot-", name, "-", time.Now().UnixNano()), Version: "test"}
	r.config = link.Config{
		Refused: regions.NewPeerRefusals(regions.NewSteadyClock(), slog.New(slog.DiscardHandler)),
		Self:    name, Peers: peers, Identity: l.identity(l.ca, identity.Region, name, time.Hour), Listener: l.listen[name],
		Handler: r, Clock: regions.NewSteadyClock(), Pace: l.pace, Logger: slog.New(slog.NewTextHandler(l.t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn})),
		Hello: func() regions.Hello {
			r.mu.Lock()
			defer r.mu.Unlock()
			return r.hello
		},
	}
	if change != nil {
		change(r)
	}
	r.Mesh = must(link.New(r.config))
	l.regions[name] = r
	l.t.Cleanup(func() { closeNow(r) })
	return r
}

func (l *lab) start(name string) *region {
	r := l.regions[name]
	r.Start(context.Background())
	return r
}

// closeNow ends a region without waiting for what is under way.
func closeNow(r *region) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	r.Close(ctx)
}

func (l *lab) identity(ca *identity.Authority, kind identity.Kind, name string, validity time.Duration) *identity.Identity {
	l.t.Helper()
	cert, key, err := ca.Issue(kind, name, time.Now().Add(-time.Minute), validity+time.Minute)
	if err != nil {
		l.t.Fatal(err)
	}
	return must(identity.New(cert, key, ca.CertPEM(), regions.NewSteadyClock()))
}

// await waits until the link of a with b is as wanted, and says how long it took.
func (l *lab) await(a, b, what string, want func(regions.LinkStatus) bool) time.Duration {
	l.t.Helper()
	return l.awaitFor(30*time.Second, a, b, what, want)
}

func (l *lab) awaitFor(limit time.Duration, a, b, what string, want func(regions.LinkStatus) bool) time.Duration {
	l.t.Helper()
	r, began := l.regions[a], time.Now()
	eventually(l.t, limit, func() string {
		s := r.link(b)
		if want(s) {
			return ""
		}
		return fmt.Sprintf("the link of %s with %s is not %s: %+v", a, b, what, s)
	})
	return time.Since(began)
}

// eventually polls until check has nothing to complain about.
func eventually(t *testing.T, limit time.Duration, check func() string) {
	t.Helper()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(limit)
	for {
		complaint := check()
		if complaint == "" {
			return
		}
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("after %s: %s", limit, complaint)
		}
	}
}

// never watches for a while that something does not happen.
func never(t *testing.T, while time.Duration, what string, happened func() bool) {
	t.Helper()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for end := time.After(while); ; {
		if happened() {
			t.Fatal(what)
		}
		select {
		case <-tick.C:
		case <-end:
			return
		}
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func isUp(s regions.LinkStatus) bool   { return s.Up }
func isDown(s regions.LinkStatus) bool { return !s.Up }

var (
	bothPlanes = []link.Plane{link.Control, link.Data}
	bothWays   = []regions.Direction{regions.In, regions.Out}
)

func (l *lab) cut(at, peer string, planes []link.Plane, dirs []regions.Direction, mode link.Mode) uint64 {
	l.t.Helper()
	return must(l.regions[at].Gates().Cut(peer, planes, dirs, mode, time.Minute))
}

// relisten takes a region's address again, or says why it can't yet.
func (l *lab) relisten(name string) string {
	ln, err := net.Listen("tcp", l.addr[name])
	if err != nil {
		return err.Error()
	}
	l.listen[name] = ln
	return ""
}
