package link_test

import (
	"context"
	"io"
	"maps"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"domicile/api"
	"domicile/regions"
	"domicile/regions/link"
	"domicile/regions/link/linktest"
)

// duo is a region with two gateways, of which one at a time should speak for it, and a
// peer that knows both addresses. The path of each gateway is a line of its own.
type duo struct {
	*lab
	us   *region
	eu   map[string]*region
	path map[string]*linktest.Line
}

func newDuo(t *testing.T) *duo {
	t.Helper()
	d := &duo{lab: newLab(t, 1, "us-east", "eu-west"), eu: map[string]*region{}, path: map[string]*linktest.Line{}}
	byAddress := map[string]*linktest.Line{}
	var addresses []string
	closeNow(d.regions["eu-west"])
	for _, name := range []string{"a", "b"} {
		d.listen["eu-west"] = must(net.Listen("tcp", "127.0.0.1:0"))
		address := d.listen["eu-west"].Addr().String()
		line := linktest.NewLine(0, 0, 0)
		d.path[name], byAddress[address] = line, line
		addresses = append(addresses, address)
		d.eu[name] = d.prepare("eu-west", func(r *region) {
			r.hello.Gateway = name
			r.config.Dial = line.Dial(linktest.Back)
		})
	}
	d.us = d.remake("us-east", func(r *region) {
		r.config.Peers = map[string][]string{"eu-west": addresses}
		r.config.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
			return byAddress[address].Dial(linktest.There)(ctx, network, address)
		}
	})
	return d
}

// speaks waits until the link is up with one gateway, and says how long it took.
func (d *duo) speaks(name string) time.Duration {
	d.t.Helper()
	return d.awaitFor(30*time.Second, "us-east", "eu-west", "up with gateway "+name, func(s regions.LinkStatus) bool {
		return s.Up && s.Hello.Gateway == name
	})
}

// The seat moves in good order: the peer finds the other gateway at once, by its
// second address or because that one calls.
func TestR14a_PeerFollowsTheSeatToAnotherGateway(t *testing.T) {
	t.Parallel()
	d := newDuo(t)
	d.us.Start(context.Background())
	d.eu["b"].Start(context.Background())
	d.speaks("b") // its address is the second
	closeNow(d.eu["b"])
	d.await("us-east", "eu-west", "down", isDown)
	d.eu["a"].Start(context.Background())
	if took := d.speaks("a"); took > 9*time.Second { // three, and a margin of three
		t.Errorf("the next gateway was taken after %s", took)
	}
	d.us.Forward("eu-west", record("id", 10), newOutcomes(t).done("id"))
}

// A gateway that crashed is silent: the next one is taken when three beats have passed,
// and the first, should it live, is refused from then on.
func TestR14a_GatewayTakesOverFromOneThatWentSilent(t *testing.T) {
	t.Parallel()
	d := newDuo(t)
	d.us.Start(context.Background())
	d.eu["a"].Start(context.Background())
	d.speaks("a")
	d.path["a"].Hold(linktest.There, linktest.Back)
	d.eu["b"].Start(context.Background())
	began := time.Now()
	d.speaks("b")
	if took := time.Since(began); took < 2*time.Second || took > 9*time.Second { // three beats, and a margin of three
		t.Errorf("taken over after %s", took)
	}
	d.path["a"].Release(linktest.There, linktest.Back)
	eventually(t, 30*time.Second, func() string {
		if s := must2(d.eu["a"].Status("us-east")); !refusedWith(api.PermissionDenied, "another run", "gateway b")(s) {
			return "gateway a is not refused: " + s.Reason
		}
		return ""
	})
	d.holds(t, "b")
}

// The seat moves from a holder that went silent in the middle of a batch, and that wakes
// up when the next one has the link: what it had on the way is not mirrored a second
// time, and its marks close nothing any more.
func TestB42_OverlappingSeatsMirrorNothingTwice(t *testing.T) {
	t.Parallel()
	d := newDuo(t)
	sink := &copySink{}
	d.us.mirror = func(string, regions.MirrorOpen) (link.MirrorSink, regions.MirrorReply) {
		return sink, regions.MirrorReply{Cursor: regions.Cursor{Incarnation: "inc", Sequence: uint64(sink.count())}}
	}
	for n, name := range []string{"a", "b"} {
		d.eu[name].marks = func(_ string, all bool) regions.Watermarks {
			return regions.Watermarks{Issued: time.Now(), All: all, Refused: n} // whose they are
		}
	}
	flow := func(name string) (regions.MirrorStream, uint64) {
		d.regions["eu-west"] = d.eu[name]
		d.await("eu-west", "us-east", "up", isUp) // us-east knew it first
		s, opened := openFlow(t, d.lab, "eu-west", "us-east")
		return s, opened.Cursor.Sequence
	}
	d.us.Start(context.Background())
	d.eu["a"].Start(context.Background())
	d.speaks("a")
	former, _ := flow("a")
	send(t, former, batch(1, 10, 100))
	for recv(t, former).Cursor.Sequence < 10 {
	}
	d.path["a"].Hold(linktest.There, linktest.Back)
	send(t, former, batch(11, 10, 100))
	d.eu["b"].Start(context.Background())
	d.speaks("b")
	next, at := flow("b")
	send(t, next, batch(at+1, 10, 100))
	for recv(t, next).Cursor.Sequence < at+10 {
	}
	d.us.mu.Lock()
	d.us.rounds = nil
	d.us.mu.Unlock()
	idle := d.silence()
	d.path["a"].Release(linktest.There, linktest.Back)
	never(t, 3*time.Second, "the former holder was listened to", func() bool {
		d.us.mu.Lock()
		rounds := d.us.rounds
		d.us.mu.Unlock()
		return sink.count() != 20 || slices.ContainsFunc(rounds, func(w regions.Watermarks) bool { return w.Refused == 0 }) && !idle()
	})
	sink.mu.Lock()
	defer sink.mu.Unlock()
	for n, sequence := range sink.seen {
		if sequence != uint64(n+1) {
			t.Fatalf("the copy holds %v", sink.seen)
		}
	}
}

// Two gateways of one fabric claim the link in the same moment: one has it, the other
// is told why not, and it stays so.
func TestB42_TwoGatewaysAtOnceDoNotTakeTheLinkFromEachOther(t *testing.T) {
	t.Parallel()
	d := newDuo(t)
	d.us.Start(context.Background())
	d.eu["a"].Start(context.Background())
	d.eu["b"].Start(context.Background())
	d.awaitFor(30*time.Second, "us-east", "eu-west", "up", isUp)
	winner := d.us.link("eu-west").Hello.Gateway
	loser := strings.Trim("ab", winner)
	eventually(t, 30*time.Second, func() string {
		if s := must2(d.eu[loser].Status("us-east")); s.Up || !strings.Contains(s.Reason, "gateway "+winner) {
			return "the other gateway is not told: " + s.Reason
		}
		return ""
	})
	d.holds(t, winner)
}

// Every gateway of a peer says something else, and each is asked again and again: status
// gives the reason of each address once, and does not change with whichever came last.
func TestR14a_ReasonsOfSeveralGatewaysStandStill(t *testing.T) {
	t.Parallel()
	l := newLab(t, 1, "us-east", "eu-west")
	var rounds atomic.Int64
	us := l.remake("us-east", func(r *region) {
		r.config.Peers = map[string][]string{"eu-west": {"a:1", "b:1", "c:1"}}
		r.config.Dial = func(_ context.Context, _, address string) (net.Conn, error) {
			local := &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: int(rounds.Add(1))}
			switch address {
			case "a:1":
				return nil, &net.OpError{Op: "dial", Net: "tcp", Source: local, Err: syscall.ECONNREFUSED}
			case "b:1":
				return nil, &api.Error{Code: api.PermissionDenied, Op: "dial", Hint: "not from here"}
			}
			return nil, &net.OpError{Op: "read", Net: "tcp", Source: local, Err: []error{io.EOF, syscall.ECONNRESET}[rounds.Load()%2]}
		}
	})
	us.Start(t.Context())
	eventually(t, 30*time.Second, func() string {
		if rounds.Load() < 20 {
			return "not asked often enough"
		}
		return ""
	})
	us.mu.Lock()
	defer us.mu.Unlock()
	said := map[string]bool{}
	for _, s := range us.statuses {
		said[s.Reason] = true
	}
	delete(said, "not tried yet")
	const want = "dial a:1: connection refused; dial b:1: dial: PERMISSION_DENIED (not from here); dial c:1: the peer closed the connection"
	if last := us.statuses[len(us.statuses)-1]; len(said) != 1 || last.Reason != want || last.Code != api.PermissionDenied {
		t.Errorf("%q, the last with code %q, want only %q", slices.Collect(maps.Keys(said)), last.Code, want)
	}
}

// holds watches for six beats that the link does not change hands. A machine that is too
// busy for its heartbeats sets the link free; what happens after that says nothing.
func (d *duo) holds(t *testing.T, gateway string) {
	t.Helper()
	idle := d.silence()
	since := d.us.link("eu-west").Since
	never(t, 6*time.Second, "the link went to and fro", func() bool {
		s := d.us.link("eu-west")
		return (!s.Up || s.Hello.Gateway != gateway || !s.Since.Equal(since)) && !idle()
	})
}

// silence tells from now on whether the link was ever down because nothing was heard.
func (d *duo) silence() func() bool {
	known := len(d.told())
	return func() bool {
		return slices.ContainsFunc(append(d.told()[known:], d.us.link("eu-west")), func(s regions.LinkStatus) bool {
			return !s.Up && (strings.Contains(s.Reason, "heartbeats") || strings.Contains(s.Reason, "carries nothing"))
		})
	}
}

func (d *duo) told() []regions.LinkStatus {
	d.us.mu.Lock()
	defer d.us.mu.Unlock()
	return slices.Clone(d.us.statuses)
}

func must2[T any](v T, ok bool) T {
	if !ok {
		panic("not there")
	}
	return v
}

// Close does not outlast its context by what a sink may still take.
func TestCloseIsBoundedWhateverASinkDoes(t *testing.T) {
	t.Parallel()
	l := started(t, 1, "eu-west", "us-east")
	stuck, begun := make(chan struct{}), make(chan struct{})
	l.regions["eu-west"].mirror = func(string, regions.MirrorOpen) (link.MirrorSink, regions.MirrorReply) {
		return deafSink{begun, stuck}, regions.MirrorReply{}
	}
	s, _ := openFlow(t, l, "us-east", "eu-west")
	send(t, s, batch(1, 1, 1))
	<-begun
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	began := time.Now()
	err := l.regions["eu-west"].Close(ctx)
	if took := time.Since(began); api.CodeOf(err) != api.ShuttingDown || took > 10*time.Second {
		t.Errorf("after %s: %v", took, err)
	}
	close(stuck)
	eventually(t, 10*time.Second, func() string {
		if err := l.regions["eu-west"].Close(ctx); err != nil {
			return err.Error()
		}
		return ""
	})
}

// deafSink appends for as long as it likes, whatever its context says.
type deafSink struct{ begun, stuck chan struct{} }

func (d deafSink) Apply(context.Context, regions.MirrorBatch) regions.MirrorReply {
	close(d.begun)
	<-d.stuck
	return regions.MirrorReply{}
}

func (d deafSink) Close() {}
