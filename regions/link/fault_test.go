package link_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"domicile/api"
	"domicile/regions"
	"domicile/regions/link"
	"domicile/regions/link/linktest"
	"domicile/regions/testenv"
)

// long says whether the matrices run in full, as `.ci/run --long` does.
func long() bool { return os.Getenv("DOMICILE_LONG") != "" }

// ups is how often a region was told that its link came up.
func (r *region) ups() (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i, s := range r.statuses {
		if s.Up && (i == 0 || !r.statuses[i-1].Up) {
			n++
		}
	}
	return n
}

// Bytes that go one way only: both ends see the link down within three beats, with a
// margin of three, it does not flap while that lasts, and it comes back by itself.
func TestR14a_OneWayLineIsDownAtBothEnds(t *testing.T) {
	t.Parallel()
	for _, way := range []linktest.Way{linktest.There, linktest.Back} {
		t.Run(fmt.Sprint(way), func(t *testing.T) {
			t.Parallel()
			line := linktest.NewLine(0, 20*time.Millisecond, 0)
			l := over(t, 1, line)
			us, eu := l.regions["us-east"], l.regions["eu-west"]
			line.Hold(way)
			took := max(l.awaitFor(30*time.Second, "us-east", "eu-west", "down", isDown), l.awaitFor(30*time.Second, "eu-west", "us-east", "down", isDown))
			if took > 9*time.Second {
				t.Errorf("both ends saw it after %s", took)
			}
			before := us.ups() + eu.ups()
			never(t, 6*time.Second, "a one-way link came up", func() bool { return us.link("eu-west").Up || eu.link("us-east").Up })
			if n := us.ups() + eu.ups() - before; n > 0 {
				t.Errorf("it flapped %d times", n)
			}
			line.Release(way)
			took = max(l.awaitFor(30*time.Second, "us-east", "eu-west", "up", isUp), l.awaitFor(30*time.Second, "eu-west", "us-east", "up", isUp))
			if took > 9*time.Second {
				t.Errorf("up again after %s", took)
			}
		})
	}
}

// A stall that is shorter than three beats ends nothing: the same connections go on,
// and a flow has neither a hole nor anything twice.
func TestR14c_StallAndResumeOnTheSameConnection(t *testing.T) {
	t.Parallel()
	line := linktest.NewLine(0, 5*time.Millisecond, 0)
	l := over(t, 1, line)
	sink := &copySink{}
	l.regions["eu-west"].mirror = func(string, regions.MirrorOpen) (link.MirrorSink, regions.MirrorReply) {
		return sink, regions.MirrorReply{}
	}
	since := l.regions["us-east"].link("eu-west").Since
	s, _ := openFlow(t, l, "us-east", "eu-west")
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	wait := pour(ctx, s, 10, 1000)
	for range 3 {
		line.Hold(linktest.There, linktest.Back)
		<-time.After(1200 * time.Millisecond)
		at := sink.count()
		line.Release(linktest.There, linktest.Back)
		eventually(t, 30*time.Second, func() string {
			if sink.count() <= at {
				return "nothing arrives after the stall"
			}
			return ""
		})
	}
	stop()
	wait()
	if st := l.regions["us-east"].link("eu-west"); !st.Up || !st.Since.Equal(since) {
		t.Errorf("the link was down for a moment: %+v", st)
	}
	sink.mu.Lock()
	defer sink.mu.Unlock()
	for i, seq := range sink.seen {
		if seq != uint64(i+1) {
			t.Fatalf("item %d has sequence %d", i, seq)
		}
	}
}

// B32: five seconds of silence under load. What was under way is unknown, what comes
// meanwhile is refused, nothing hangs, and after the heal records are acknowledged
// again within three seconds, with a margin of three.
func TestB32_BlackHoleUnderLoadHealsSoon(t *testing.T) {
	t.Parallel()
	line := linktest.NewLine(0, 20*time.Millisecond, 0)
	l := over(t, 1, line)
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	var load sync.WaitGroup
	var acked atomic.Int64
	load.Go(func() { l.publish(ctx, "us-east", "eu-west", &acked) })
	eventually(t, 30*time.Second, func() string {
		if acked.Load() < 10 {
			return "no load"
		}
		return ""
	})
	line.Hold(linktest.There, linktest.Back)
	<-time.After(5 * time.Second)
	if s := l.regions["us-east"].link("eu-west"); s.Up {
		t.Errorf("five seconds of silence, and the link is up: %+v", s)
	}
	at, began := acked.Load(), time.Now()
	line.Release(linktest.There, linktest.Back)
	eventually(t, 30*time.Second, func() string {
		if acked.Load() == at {
			return "nothing is acknowledged after the heal"
		}
		return ""
	})
	took := time.Since(began)
	t.Logf("acknowledged again %s after the heal", took)
	if took > 9*time.Second {
		t.Errorf("acknowledged again only after %s", took)
	}
	stop()
	load.Wait()
}

// A peer that takes connections and then reads nothing costs a bounded heap, and every
// forward its outcome.
func TestRT3_PeerThatStopsReadingCostsBoundedMemory(t *testing.T) {
	l := started(t, 1, "eu-west", "us-east")
	l.regions["eu-west"].mirror = func(string, regions.MirrorOpen) (link.MirrorSink, regions.MirrorReply) {
		return &copySink{}, regions.MirrorReply{}
	}
	base := heap()
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	for range 4 {
		s, _ := openFlow(t, l, "us-east", "eu-west")
		defer pour(ctx, s, 200, 5000)()
	}
	l.cut("eu-west", "us-east", []link.Plane{link.Data}, []regions.Direction{regions.In}, link.BlackHole)
	o := newOutcomes(t)
	most := int64(0)
	const forwards = 60
	for i := range forwards {
		id := fmt.Sprint(i)
		l.regions["us-east"].Forward("eu-west", record(id, 1<<20), o.done(id))
		most = max(most, heap()-base)
	}
	l.awaitFor(30*time.Second, "us-east", "eu-west", "down", isDown)
	most = max(most, heap()-base)
	if most > 160<<20 { // 32 MiB of forwards, as much of mirror at most, and what encodes them
		t.Errorf("the heap has grown by %d MiB", most>>20)
	}
	for id, r := range o.await(forwards) {
		switch code := api.CodeOf(r.err); code {
		case "", api.Overloaded, api.OutcomeUnknown, api.HomeUnreachable:
		default:
			t.Errorf("%s: %v", id, r.err)
		}
	}
}

// B31: a link that flaps is not stormed, comes back each time, and leaves no goroutine
// and no descriptor behind.
func TestB31_FlappingLineIsNotStormed(t *testing.T) {
	flaps, pace := 3, halfPace
	if long() {
		flaps, pace = 20, 1
	}
	up, down := pace.Of(5*time.Second), pace.Of(5*time.Second)
	if !long() {
		up, down = time.Second/2, 2*time.Second
	}
	line := linktest.NewLine(0, 5*time.Millisecond, 0)
	l := newLab(t, pace, "eu-west", "us-east")
	var dials atomic.Int64
	for name, way := range map[string]linktest.Way{"us-east": linktest.There, "eu-west": linktest.Back} {
		l.remake(name, func(r *region) {
			r.config.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
				dials.Add(1)
				return line.Dial(way)(ctx, network, address)
			}
		})
		l.start(name)
	}
	both := func(what string, want func(regions.LinkStatus) bool) {
		t.Helper()
		l.awaitFor(30*time.Second, "us-east", "eu-west", what, want)
		l.awaitFor(30*time.Second, "eu-west", "us-east", what, want)
	}
	both("up", isUp)
	goroutines, descriptors, began := runtime.NumGoroutine(), openFiles(t), time.Now()
	for range flaps {
		line.Hold(linktest.There, linktest.Back)
		<-time.After(down)
		both("down", isDown)
		line.Release(linktest.There, linktest.Back)
		both("up", isUp)
		<-time.After(up)
	}
	// Two ends, two lanes, and two attempts a second at most where the other is not heard.
	if n, most := dials.Load(), int64(time.Since(began)/pace.Of(time.Second)+2)*8; n > most {
		t.Errorf("%d dials in %s", n, time.Since(began))
	}
	eventually(t, 30*time.Second, func() string {
		if g, d := runtime.NumGoroutine(), openFiles(t); g > goroutines+4 || d > descriptors+2 {
			return fmt.Sprintf("%d goroutines and %d descriptors, %d and %d before", g, d, goroutines, descriptors)
		}
		return ""
	})
}

func openFiles(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		testenv.Missing(t, "no /proc/self/fd: ", err)
	}
	return len(entries)
}
