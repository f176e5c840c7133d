package link_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"domicile/api"
	"domicile/regions"
	"domicile/regions/identity"
	"domicile/regions/link"
)

// met is a connection of the council's lane that was accepted.
type met struct {
	net.Conn
	region string
}

// accepting takes connections at a region for as long as its lane is open.
func (l *lab) accepting(t *testing.T, name string) (*link.StreamLane, <-chan met) {
	t.Helper()
	lane, taken := l.regions[name].Council(), make(chan met, 64)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, region, err := lane.Accept()
			if err != nil {
				return
			}
			taken <- met{c, region}
		}
	}()
	t.Cleanup(func() {
		lane.Close()
		<-done
	})
	l.taking(t, name)
	return lane, taken
}

// taking waits until somebody accepts at a region.
func (l *lab) taking(t *testing.T, name string) {
	t.Helper()
	eventually(t, 30*time.Second, func() string {
		if !l.regions[name].CouncilAccepts() {
			return "nobody accepts at " + name
		}
		return ""
	})
}

// caller is what a process shows that calls a region's council.
func (l *lab) caller(ca *identity.Authority, kind identity.Kind, self, to string, validity time.Duration) *tls.Config {
	cfg := l.identity(ca, kind, self, validity).ClientTLS(identity.Region, to)
	cfg.ServerName, cfg.NextProtos = "council."+self+".link.domicile", []string{"domicile-council"}
	cfg.VerifyConnection = nil // it takes any server
	return cfg
}

// joined dials from one region to another and gives both ends.
func (l *lab) joined(t *testing.T, from, to string, taken <-chan met) (dialed, accepted met) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	c, err := l.regions[from].Council().Dial(ctx, to)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	send := fmt.Sprintf("%32d", time.Now().UnixNano())
	if _, err := c.Write([]byte(send)); err != nil {
		t.Fatal(err)
	}
	select {
	case m := <-taken:
		t.Cleanup(func() { m.Close() })
		if got, err := read(m, len(send), 30*time.Second); err != nil || got != send {
			t.Fatal(got, err)
		}
		return met{c, to}, m
	case <-ctx.Done():
		t.Fatal("the connection was not accepted")
	}
	return met{}, met{}
}

func read(c net.Conn, n int, within time.Duration) (string, error) {
	c.SetReadDeadline(time.Now().Add(within))
	b := make([]byte, n)
	_, err := io.ReadFull(c, b)
	return string(b), err
}

// passes sends a word over a connection, each way.
func passes(t *testing.T, a, b net.Conn) {
	t.Helper()
	for from, to := range map[net.Conn]net.Conn{a: b, b: a} {
		if _, err := from.Write([]byte("word")); err != nil {
			t.Fatal(err)
		}
		if got, err := read(to, 4, 30*time.Second); err != nil || got != "word" {
			t.Fatal(got, err)
		}
	}
}

// ends waits until a connection is over, and says whether it was in time.
func ends(c net.Conn, within time.Duration) error {
	_, err := read(c, 1, within)
	if errors.Is(err, os.ErrDeadlineExceeded) || err == nil {
		return fmt.Errorf("after %s it still lives: %v", within, err)
	}
	return nil
}

func unreachable(t *testing.T, err error, says string) {
	t.Helper()
	if api.CodeOf(err) != api.AuthorityUnreachable || !strings.Contains(err.Error(), says) {
		t.Errorf("%v, want %s that says %q", err, api.AuthorityUnreachable, says)
	}
}

// The council's connections go each way over the link ports, know each other's regions,
// and live and die apart from the links' sessions.
func TestR14e_CouncilLaneStandsApartFromTheSession(t *testing.T) {
	t.Parallel()
	l := started(t, halfPace, "eu-west", "us-east")
	_, atEU := l.accepting(t, "eu-west")
	_, atUS := l.accepting(t, "us-east")
	a, b := l.joined(t, "us-east", "eu-west", atEU)
	c, d := l.joined(t, "eu-west", "us-east", atUS)
	if b.region != "us-east" || d.region != "eu-west" {
		t.Fatalf("accepted from %q and %q", b.region, d.region)
	}
	since := l.regions["us-east"].link("eu-west").Since
	lost, _ := l.joined(t, "us-east", "eu-west", atEU)
	lost.Close()
	l.cut("us-east", "eu-west", []link.Plane{link.Control, link.Data}, bothWays, link.Reject)
	l.await("eu-west", "us-east", "down", isDown)
	never(t, 12*beat, "a lane of the council ended", func() bool { // what is stale is closed after ten
		passes(t, a, b)
		passes(t, c, d)
		return false
	})
	again, other := l.joined(t, "us-east", "eu-west", atEU)
	passes(t, again, other)
	if s := l.regions["us-east"].link("eu-west").Since; !s.After(since) {
		t.Error("the sessions were never cut")
	}
	_, err := l.regions["us-east"].Council().Dial(t.Context(), "sa-east")
	unreachable(t, err, "no link between")
}

// A cut of the link cuts the council's lane with it, whichever end holds it, and a cut of
// that lane leaves the link as it is.
func TestR14g_GateCutsTheCouncilLane(t *testing.T) {
	t.Parallel()
	l := started(t, 1, "eu-west", "us-east")
	_, taken := l.accepting(t, "eu-west")
	us, eu := l.regions["us-east"], l.regions["eu-west"]
	since, idle := us.link("eu-west").Since, l.silence("us-east", "eu-west")
	a, b := l.joined(t, "us-east", "eu-west", taken)
	held := l.cut("eu-west", "us-east", []link.Plane{link.Council}, bothWays, link.BlackHole)
	if _, err := a.Write([]byte("held")); err != nil {
		t.Fatal(err)
	}
	if got, err := read(b, 4, 100*time.Millisecond); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("%q came through a black hole: %v", got, err)
	}
	_, err := us.Council().Dial(t.Context(), "eu-west")
	unreachable(t, err, "handshake with")
	eu.Gates().Heal(held)
	if got, err := read(b, 4, 30*time.Second); got != "held" {
		t.Fatalf("after the heal came %q: %v", got, err)
	}
	passes(t, a, b)
	held = l.cut("us-east", "eu-west", []link.Plane{link.Council}, bothWays, link.BlackHole)
	_, err = us.Council().Dial(t.Context(), "eu-west")
	unreachable(t, err, "dial ")
	us.Gates().Heal(held)
	passes(t, a, b)
	for at, peer := range map[string]string{"us-east": "eu-west", "eu-west": "us-east"} {
		a, b := l.joined(t, "us-east", "eu-west", taken)
		held := l.cut(at, peer, []link.Plane{link.Council}, bothWays, link.Reject)
		if err := errors.Join(ends(a, 30*time.Second), ends(b, 30*time.Second)); err != nil {
			t.Fatal(at, err)
		}
		if c, err := us.Council().Dial(t.Context(), "eu-west"); err == nil {
			c.Close()
			t.Error("a call got through the cut at", at)
		}
		l.regions[at].Gates().Heal(held)
	}
	if s := us.link("eu-west"); !idle() && (!s.Up || !s.Since.Equal(since)) {
		t.Errorf("the link went with it: %+v", s)
	}
	a, b = l.joined(t, "us-east", "eu-west", taken)
	l.cut("us-east", "eu-west", link.Planes(), bothWays, link.Reject)
	if err := errors.Join(ends(a, 30*time.Second), ends(b, 30*time.Second)); err != nil {
		t.Error(err)
	}
	l.await("us-east", "eu-west", "down", isDown)
}

// silence tells from now on whether the link was ever down because nothing was heard: a
// machine that is too busy for its heartbeats says nothing of the lanes.
func (l *lab) silence(at, peer string) func() bool {
	r := l.regions[at]
	r.mu.Lock()
	known := len(r.statuses)
	r.mu.Unlock()
	return func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		return slices.ContainsFunc(r.statuses[known:], func(s regions.LinkStatus) bool {
			return s.Peer == peer && !s.Up && (strings.Contains(s.Reason, "heartbeats") || strings.Contains(s.Reason, "carries nothing"))
		})
	}
}

// Nobody but a region of the federation that has a link gets to the council.
func TestB55_CouncilLaneTakesRegionsOnly(t *testing.T) {
	t.Parallel()
	foreign := must(identity.NewCA("shop", time.Now(), time.Hour))
	for name, c := range map[string]struct {
		caller func(l *lab) *tls.Config
		says   string
	}{
		"a client's": {func(l *lab) *tls.Config { return l.caller(l.ca, identity.Client, "us-east", "eu-west", time.Hour) }, "a certificate of kind client is not taken here"},
		"an operator's": {func(l *lab) *tls.Config {
			return l.caller(l.ca, identity.Operator, "us-east", "eu-west", time.Hour)
		}, "a certificate of kind operator is not taken here"},
		"a foreign CA's": {func(l *lab) *tls.Config { return l.caller(foreign, identity.Region, "us-east", "eu-west", time.Hour) }, "not signed by an authority"},
		"an expired one": {func(l *lab) *tls.Config {
			return l.caller(l.ca, identity.Region, "us-east", "eu-west", -time.Second)
		}, "certificate expired"},
		"another region's": {func(l *lab) *tls.Config {
			return named(l.caller(l.ca, identity.Region, "ap-south", "eu-west", time.Hour), "us-east")
		}, "expected region us-east"},
		"a stranger's": {func(l *lab) *tls.Config { return l.caller(l.ca, identity.Region, "sa-east", "eu-west", time.Hour) }, "UNKNOWN_REGION"},
		"one for gRPC": {func(l *lab) *tls.Config {
			return speaking(l.caller(l.ca, identity.Region, "us-east", "eu-west", time.Hour), "h2")
		}, "unsupported application protocols"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var seen journal
			l := newLab(t, 1, "eu-west", "us-east", "ap-south")
			l.remake("eu-west", seen.into)
			l.start("eu-west")
			handedOn := make(chan string, 1)
			lane := l.regions["eu-west"].Council()
			go func() { // ends with the lane
				if _, region, err := lane.Accept(); err == nil {
					handedOn <- region
				}
				close(handedOn)
			}()
			l.taking(t, "eu-west")
			if err := knock(t, l.addr["eu-west"], c.caller(l)); err == nil || !strings.Contains(err.Error(), "tls:") {
				t.Errorf("the caller was told %v", err)
			}
			eventually(t, 30*time.Second, func() string {
				if !strings.Contains(seen.text(), c.says) {
					return fmt.Sprintf("the log does not say %q:\n%s", c.says, seen.text())
				}
				return ""
			})
			lane.Close()
			if region, some := <-handedOn; some {
				t.Errorf("it was handed on, as %s", region)
			}
		})
	}
}

func named(cfg *tls.Config, region string) *tls.Config {
	cfg.ServerName = "council." + region + ".link.domicile"
	return cfg
}

func speaking(cfg *tls.Config, protocol string) *tls.Config {
	cfg.NextProtos = []string{protocol}
	return cfg
}

// B46: a region of a version that knows no such lane, or that runs no voter, says so to
// the caller, and the link between the two is none the worse.
func TestB46_PeerWithoutACouncilRefusesTheLane(t *testing.T) {
	t.Parallel()
	l := started(t, 1, "eu-west", "us-east")
	us := l.regions["us-east"]
	since, idle := us.link("eu-west").Since, l.silence("us-east", "eu-west")
	for range 3 {
		_, err := us.Council().Dial(t.Context(), "eu-west")
		unreachable(t, err, "it runs no voter, or its version has no council lane")
	}
	lane, taken := l.accepting(t, "eu-west")
	a, b := l.joined(t, "us-east", "eu-west", taken)
	if _, _, err := l.regions["eu-west"].Council().Accept(); err == nil || errors.Is(err, net.ErrClosed) {
		t.Errorf("two accept: %v", err)
	}
	lane.Close()
	passes(t, a, b) // what it has given out goes on
	if _, _, err := lane.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("a closed lane accepts: %v", err)
	}
	_, err := us.Council().Dial(t.Context(), "eu-west")
	unreachable(t, err, "it runs no voter")
	_, taken = l.accepting(t, "eu-west") // a voter that is started again
	a, b = l.joined(t, "us-east", "eu-west", taken)
	passes(t, a, b)
	o := newOutcomes(t)
	us.Forward("eu-west", record("id", 100), o.done("id"))
	if r := o.await(1)["id"]; !idle() && r.err != nil {
		t.Error(r.err)
	}
	if s := us.link("eu-west"); !idle() && !s.Since.Equal(since) {
		t.Errorf("the link was made anew: %+v", s)
	}
}

// B55: the authority of a peer is taken away, and its councils' connections end within a
// beat, accepted and dialed, though nothing passes on them.
func TestB55_CouncilLaneEndsWithItsAuthority(t *testing.T) {
	t.Parallel()
	l := newLab(t, 1, "eu-west", "us-east")
	old, next := l.ca, must(identity.NewCA("shop", time.Now(), time.Hour))
	dir := t.TempDir()
	d := onDisk{t, "eu-west", identity.Files{Cert: dir + "/cert.pem", Key: dir + "/key.pem", CA: dir + "/ca.pem"}}
	d.put(old, old)
	l.remake("eu-west", func(r *region) { r.config.Identity = must(identity.Load(d.files, regions.NewSteadyClock())) })
	l.start("eu-west")
	l.start("us-east")
	_, atEU := l.accepting(t, "eu-west")
	_, atUS := l.accepting(t, "us-east")
	a, b := l.joined(t, "us-east", "eu-west", atEU)
	c, e := l.joined(t, "eu-west", "us-east", atUS)
	passes(t, a, b)
	passes(t, c, e)
	d.trust(next)
	for what, conn := range map[string]net.Conn{"accepted": a, "dialed": e} {
		if err := ends(conn, 10*time.Second); err != nil { // a beat, and a margin
			t.Error(what, err)
		}
	}
}

// A peer's connections are bounded both ways. One more than it may open replaces the one
// that said nothing for longest; those that nobody takes are closed.
func TestCouncilLaneIsBounded(t *testing.T) {
	t.Parallel()
	l := started(t, 1, "eu-west", "us-east")
	_, taken := l.accepting(t, "eu-west")
	const most = 32
	var dialed []met
	for range most {
		d, _ := l.joined(t, "us-east", "eu-west", taken)
		dialed = append(dialed, d)
	}
	_, err := l.regions["us-east"].Council().Dial(t.Context(), "eu-west")
	unreachable(t, err, "too many connections")
	cfg := l.caller(l.ca, identity.Region, "us-east", "eu-west", time.Hour)
	extra := must(tls.Dial("tcp", l.addr["eu-west"], cfg))
	defer extra.Close()
	defer (<-taken).Close()
	if err := ends(dialed[0], 30*time.Second); err != nil {
		t.Error("the longest silent:", err)
	}
	if err := ends(dialed[most-1], 100*time.Millisecond); err == nil {
		t.Error("another one was replaced")
	}
	dialed[0].Close()
	d, m := l.joined(t, "us-east", "eu-west", taken) // its place is free again
	passes(t, d, m)
}

// A voter that hangs is no place to pile connections up.
func TestCouncilLaneClosesWhatNobodyTakes(t *testing.T) {
	t.Parallel()
	l := started(t, 1, "eu-west", "us-east")
	lane, first := l.regions["eu-west"].Council(), make(chan met, 1)
	go func() { // ends with the one that is dialed below
		c, region, _ := lane.Accept()
		first <- met{c, region}
	}()
	l.taking(t, "eu-west")
	a, b := l.joined(t, "us-east", "eu-west", first)
	const queued = 16
	dial := func() net.Conn {
		c, err := l.regions["us-east"].Council().Dial(t.Context(), "eu-west")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		return c
	}
	for range queued {
		dial()
	}
	eventually(t, 30*time.Second, func() string { // the last of them may not be in yet
		if c := dial(); ends(c, time.Second) != nil {
			return "one more waits, too"
		}
		return ""
	})
	passes(t, a, b)
	lane.Close()
}

// The end of a mesh ends Accept, and what it gave out and what was dialed.
func TestCouncilLaneEndsWithTheMesh(t *testing.T) {
	t.Parallel()
	l := started(t, 1, "eu-west", "us-east")
	lane, taken := l.accepting(t, "eu-west")
	a, b := l.joined(t, "us-east", "eu-west", taken)
	closeNow(l.regions["eu-west"])
	if err := errors.Join(ends(a, 30*time.Second), ends(b, 30*time.Second)); err != nil {
		t.Error(err)
	}
	for _, c := range []*link.StreamLane{lane, l.regions["eu-west"].Council()} {
		if _, _, err := c.Accept(); !errors.Is(err, net.ErrClosed) {
			t.Errorf("after the end: %v", err)
		}
		_, err := c.Dial(t.Context(), "us-east")
		unreachable(t, err, "shutting down")
	}
}
