package link_test

import (
	"context"
	"net"
	"strings"
	"sync"
	"sync/atomic"
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
	l := newLab(t, 1, "us-east", "eu-west", "ap-south")
	dead := must(net.Listen("tcp", "127.0.0.1:0"))
	dead.Close()
	mute := must(net.Listen("tcp", "127.0.0.1:0"))
	var hangs sync.WaitGroup
	hangs.Go(func() {
		for {
			c, err := mute.Accept()
			if err != nil {
				return
			}
			c.Close() // in the middle of a handshake
		}
	})
	defer hangs.Wait()
	defer mute.Close()
	l.start("ap-south")
	addresses := []string{dead.Addr().String(), mute.Addr().String(), l.addr["ap-south"]}
	var rounds atomic.Int64
	us := l.remake("us-east", func(r *region) {
		r.config.Peers = map[string][]string{"eu-west": addresses}
		r.config.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
			if address == addresses[0] {
				rounds.Add(1)
			}
			return (&net.Dialer{}).DialContext(ctx, network, address)
		}
	})
	us.Start(t.Context())
	eventually(t, 30*time.Second, func() string {
		if rounds.Load() < 7 {
			return "not asked often enough"
		}
		return ""
	})
	us.mu.Lock()
	defer us.mu.Unlock()
	last := us.statuses[len(us.statuses)-1]
	for _, address := range addresses {
		if strings.Count(last.Reason, address) != 1 {
			t.Errorf("%s is not there once: %s", address, last.Reason)
		}
	}
	if last.Code != api.PermissionDenied { // of the one that has a code
		t.Errorf("the link has the code %q", last.Code)
	}
	said := map[string]bool{}
	for _, s := range us.statuses {
		said[s.Reason] = true
	}
	if delete(said, "not tried yet"); len(said) != 1 {
		t.Errorf("%d reasons in %d rounds: %v", len(said), rounds.Load(), said)
	}
}

// holds watches for six beats that the link does not change hands.
func (d *duo) holds(t *testing.T, gateway string) {
	t.Helper()
	since := d.us.link("eu-west").Since
	never(t, 6*time.Second, "the link went to and fro", func() bool {
		s := d.us.link("eu-west")
		return !s.Up || s.Hello.Gateway != gateway || !s.Since.Equal(since)
	})
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
