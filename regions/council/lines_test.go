package council_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"domicile/api"
	"domicile/regions"
	"domicile/regions/council"
	"domicile/regions/identity"
	"domicile/regions/placement"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	pace    = regions.Pace(0.25)
	patient = 30 * time.Second
)

// world is a few regions on loopback, with certificates and ways between them that can be
// cut.
type world struct {
	t     *testing.T
	ca    *identity.Authority
	clock *regions.SteadyClock
	names []string
	dirs  map[string]string
	seats map[string]*council.Voter
	reads map[string]byte // version of commands that a voter reads; none: the program's
	ids   map[string]*identity.Identity

	mu      sync.Mutex
	ports   map[string]string
	gone    map[string]bool       // regions that nothing reaches and that reach nothing
	open    map[*wire]bool        //
	split   map[[2]string]bool    // pairs with no way between them
	calls   map[[2]string]int     // how often a region dialed another
	refused *regions.PeerRefusals // by all voters
	lines   map[string]*testLines //
}

func newWorld(t *testing.T, names ...string) *world {
	t.TempDir() // its removal is registered first, so it comes after the voters' end
	clock := regions.NewSteadyClock()
	ca, err := identity.NewCA("shop", clock.Now(), time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	w := &world{t: t, ca: ca, clock: clock, names: names, dirs: map[string]string{}, seats: map[string]*council.Voter{}, reads: map[string]byte{}, ids: map[string]*identity.Identity{},
		ports: map[string]string{}, gone: map[string]bool{}, split: map[[2]string]bool{}, calls: map[[2]string]int{}, refused: regions.NewPeerRefusals(clock, slog.New(slog.DiscardHandler)), open: map[*wire]bool{}, lines: map[string]*testLines{}}
	t.Cleanup(func() {
		for name := range w.seats {
			w.stop(name)
		}
	})
	return w
}

// founding creates and opens voters that found an authority together.
func founding(t *testing.T, names ...string) *world {
	w := newWorld(t, names...)
	for _, name := range names {
		w.dirs[name] = filepath.Join(t.TempDir(), "council")
		if err := council.Create(council.Birth{Dir: w.dirs[name], Region: name, Authority: "A1", Voters: names, Actor: "anna", Reason: "first"}); err != nil {
			t.Fatal(err)
		}
		w.start(name)
	}
	w.until("the authority is founded everywhere", func() bool {
		for _, v := range w.seats {
			if s := v.Status(); s.Generation != 1 || s.Leader == "" {
				return false
			}
		}
		return true
	})
	return w
}

// agreed takes two people's consent, unless it is forged.
func agreed(c council.Consent) error {
	if len(c.Approvals) < 2 || c.Approvals[0].Signed == "forged" {
		return errors.New("people did not agree")
	}
	return nil
}

func (w *world) start(name string) {
	w.t.Helper()
	c := council.Config{Dir: w.dirs[name], Lines: w.line(name, true), Boot: regions.SystemBootClock, Pace: pace, Log: slog.New(slog.DiscardHandler), Identity: w.id(name), Refused: w.refused, MayFound: agreed}
	v, err := council.Open(council.AsVersion(c, w.reads[name]))
	if err != nil {
		w.t.Fatal(err)
	}
	w.seats[name] = v
}

// stop ends a voter as a crash would, seen from the others: nothing is handed over.
func (w *world) stop(name string) {
	ctx, cancel := context.WithTimeout(context.Background(), patient)
	defer cancel()
	if err := w.seats[name].Close(ctx); err != nil {
		w.t.Error(name, err)
	}
	delete(w.seats, name)
}

func (w *world) until(what string, ok func() bool) {
	w.t.Helper()
	ticker := time.NewTicker(10 * time.Millisecond)
	defer ticker.Stop()
	for deadline := time.Now().Add(patient); !ok(); <-ticker.C {
		if time.Now().After(deadline) {
			for name, v := range w.seats {
				w.t.Logf("%s: %+v", name, v.Status())
			}
			w.t.Fatal("it did not come about: ", what)
		}
	}
}

func (w *world) leader() string {
	w.t.Helper()
	var leader string
	w.until("one voter leads", func() bool {
		for name, v := range w.seats {
			if v.Status().Leading && !w.isGone(name) {
				leader = name
				return true
			}
		}
		return false
	})
	return leader
}

func (w *world) other(than string) string {
	for _, name := range w.names {
		if name != than && w.seats[name] != nil {
			return name
		}
	}
	w.t.Fatal("no other voter runs")
	return ""
}

func (w *world) submit(name string, c placement.Command) (placement.Result, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patient)
	defer cancel()
	return w.seats[name].SubmitBy(ctx, w.id(c.Region), c)
}

func (w *world) must(name string, c placement.Command) placement.Result {
	w.t.Helper()
	r, err := w.submit(name, c)
	if err != nil {
		w.t.Fatalf("%s at %s: %v", c.Verb, name, err)
	}
	return r
}

// isolate cuts a region off, or joins it again.
func (w *world) isolate(name string, gone bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.gone[name] = gone
	for c := range w.open {
		if gone && (c.from == name || c.to == name) {
			_ = c.Conn.Close()
			delete(w.open, c)
		}
	}
}

// sever cuts a region off from some others, and only from them.
func (w *world) sever(name string, from ...string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, other := range from {
		w.split[[2]string{name, other}], w.split[[2]string{other, name}] = true, true
		for c := range w.open {
			if w.split[[2]string{c.from, c.to}] {
				_ = c.Conn.Close()
				delete(w.open, c)
			}
		}
	}
}

func (w *world) dialed(from, to string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.calls[[2]string{from, to}]
}

func (w *world) isGone(name string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.gone[name]
}

// wire is one end of a connection of the world.
type wire struct {
	net.Conn
	from, to string
	world    *world
}

func (c *wire) Close() error {
	c.world.mu.Lock()
	delete(c.world.open, c)
	c.world.mu.Unlock()
	return c.Conn.Close()
}

func (w *world) hold(c net.Conn, from, to string) (net.Conn, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.gone[from] || w.gone[to] || w.split[[2]string{from, to}] {
		return nil, errors.Join(errors.New("cut"), c.Close())
	}
	h := &wire{c, from, to, w}
	w.open[h] = true
	return h, nil
}

// testLines are one region's lines.
type testLines struct {
	world    *world
	self     string
	id       *identity.Identity
	listener net.Listener
	accepted chan accepted
	closed   chan struct{}
	once     sync.Once
	wg       sync.WaitGroup
}

type accepted struct {
	conn   net.Conn
	region string
}

// id is a region's certificate. It is called by one goroutine.
func (w *world) id(name string) *identity.Identity {
	w.t.Helper()
	if id := w.ids[name]; id != nil {
		return id
	}
	cert, key, err := w.ca.Issue(identity.Region, name, w.clock.Now(), time.Hour)
	if err != nil {
		w.t.Fatal(err)
	}
	if w.ids[name], err = identity.New(cert, key, w.ca.CertPEM(), w.clock); err != nil {
		w.t.Fatal(err)
	}
	return w.ids[name]
}

func (w *world) line(name string, listens bool) *testLines {
	w.t.Helper()
	l := &testLines{world: w, self: name, id: w.id(name), accepted: make(chan accepted), closed: make(chan struct{})}
	if !listens {
		return l
	}
	var err error
	if l.listener, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		w.t.Fatal(err)
	}
	w.mu.Lock()
	w.ports[name] = l.listener.Addr().String()
	w.mu.Unlock()
	l.wg.Go(l.listen)
	return l
}

func (l *testLines) listen() {
	for {
		raw, err := l.listener.Accept()
		if err != nil {
			return
		}
		l.wg.Go(func() {
			conn := tls.Server(raw, l.id.ServerTLS(identity.Region))
			ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
			defer cancel()
			if err := conn.HandshakeContext(ctx); err != nil {
				_ = raw.Close()
				return
			}
			peer, err := identity.PeerOf(conn.ConnectionState())
			if err != nil {
				_ = raw.Close()
				return
			}
			held, err := l.world.hold(conn, peer.Name.Name, l.self)
			if err != nil {
				return
			}
			select {
			case l.accepted <- accepted{held, peer.Name.Name}:
			case <-l.closed:
				_ = held.Close()
			}
		})
	}
}

func (l *testLines) Dial(ctx context.Context, region string) (net.Conn, error) {
	l.world.mu.Lock()
	l.world.calls[[2]string{l.self, region}]++
	port, cut := l.world.ports[region], l.world.gone[region] || l.world.gone[l.self] || l.world.split[[2]string{l.self, region}]
	l.world.mu.Unlock()
	if port == "" || cut {
		return nil, fmt.Errorf("no way to %s", region)
	}
	d := tls.Dialer{Config: l.id.ClientTLS(identity.Region, region)}
	conn, err := d.DialContext(ctx, "tcp", port)
	if err != nil {
		return nil, err
	}
	return l.world.hold(conn, l.self, region)
}

func (l *testLines) Accept() (net.Conn, string, error) {
	select {
	case a := <-l.accepted:
		return a.conn, a.region, nil
	case <-l.closed:
		return nil, "", net.ErrClosed
	}
}

func (l *testLines) Close() error {
	var err error
	l.once.Do(func() {
		close(l.closed)
		if l.listener != nil {
			err = l.listener.Close()
		}
		l.wg.Wait()
	})
	return err
}

// declared is a log that may move between the world's first two regions.
func declared(log, home string, terms placement.Terms) placement.Command {
	return placement.Command{Verb: placement.Declare, ID: "declare/" + log, Log: log, Region: home, Actor: "anna", Reason: "test", Home: home, Expect: api.StaticEpoch(home), Terms: &terms}
}

func movable(isolation placement.Isolation) placement.Terms {
	t := placement.Terms{Allowed: []string{"ap-south", "eu-west", "us-east"}, Targets: []string{"ap-south", "eu-west", "us-east"}, Mode: placement.Manual,
		Isolation: isolation, RPO: time.Minute, Digest: "d"}
	if isolation == placement.FenceAfter {
		t.FenceAfter = placement.MinFenceAfter
	}
	return t
}

func forced(log, op, target string, e api.Epoch, divergent bool) placement.Command {
	span := time.Second
	return placement.Command{Verb: placement.Begin, ID: op, Log: log, Expect: e, Region: target, Actor: "anna", Reason: "test", Plan: "p",
		Move: &placement.Move{Kind: placement.Forced, Target: target, TargetDigest: "d", Accepted: placement.Loss{Span: &span}, Divergent: divergent}}
}

func step(verb placement.Verb, log, op, region string, e api.Epoch) placement.Command {
	return placement.Command{Verb: verb, ID: op + "/" + string(verb), Log: log, Op: op, Expect: e, Region: region, Actor: "worker", Reason: "test"}
}
