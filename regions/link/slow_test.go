package link_test

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"

	"domicile/regions"
	"domicile/regions/link"
	"domicile/regions/link/linktest"
)

const narrowLine = 50_000 / 8 // bytes per second

func heap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// over is a lab of two regions whose links run over one line.
func over(t *testing.T, pace regions.Pace, line *linktest.Line) *lab {
	t.Helper()
	l := newLab(t, pace, "eu-west", "us-east")
	l.remake("us-east", func(r *region) { r.config.Dial, r.config.Tails = line.Dial(linktest.There), &talker{} })
	l.remake("eu-west", func(r *region) { r.config.Dial, r.config.Tails = line.Dial(linktest.Back), &talker{} })
	l.start("eu-west")
	l.start("us-east")
	l.awaitFor(30*time.Second, "us-east", "eu-west", "up", isUp)
	l.awaitFor(30*time.Second, "eu-west", "us-east", "up", isUp)
	return l
}

// pour keeps a flow full until ctx ends. What it returns ends the flow.
func pour(ctx context.Context, s regions.MirrorStream, records, size int) (wait func()) {
	var work sync.WaitGroup
	work.Go(func() {
		for i := uint64(0); s.Send(ctx, batch(1+i*uint64(records), records, size)) == nil; i++ {
		}
	})
	work.Go(func() {
		for {
			if _, err := s.Recv(ctx); err != nil {
				return
			}
		}
	})
	return func() { s.Close(); work.Wait() }
}

// gaps watches how long the signs of life of a link stay away at most.
type gaps struct {
	mu      sync.Mutex
	longest time.Duration
}

func (g *gaps) max() time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.longest
}

func (g *gaps) watch(ctx context.Context, r *region, peer string) {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		quiet := r.config.Clock.Now().Sub(r.link(peer).LastHeard)
		g.mu.Lock()
		g.longest = max(g.longest, quiet)
		g.mu.Unlock()
	}
}

// A line of 50 kbit/s with a round trip of 300 ms, one rate under both lanes and both
// directions, and a router that would queue a megabyte; filled both ways with batches
// that would take it a minute each, and with tail lists without an end. The link stays up,
// heartbeats pass, every forward is acknowledged, the mirror goes on, and little is in
// flight.
func TestR14d_HeartbeatsPassASaturatedNarrowLine(t *testing.T) {
	t.Parallel()
	line := linktest.NewLine(narrowLine, 150*time.Millisecond, 1<<20)
	l := over(t, 1, line)
	pairs := map[string]string{"eu-west": "us-east", "us-east": "eu-west"}
	sinks, since := map[string]*copySink{}, map[string]time.Time{}
	for name, peer := range pairs {
		r, sink := l.regions[name], &copySink{}
		sinks[name], since[name] = sink, r.link(peer).Since
		r.mirror = func(string, regions.MirrorOpen) (link.MirrorSink, regions.MirrorReply) {
			return sink, regions.MirrorReply{}
		}
	}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	var g gaps
	var watchers sync.WaitGroup
	for name, peer := range pairs {
		s, _ := openFlow(t, l, name, peer)
		defer pour(ctx, s, 200, 1000)()
		watchers.Go(func() { g.watch(ctx, l.regions[name], peer) })
	}
	o := newOutcomes(t)
	tick := time.NewTicker(2 * time.Second)
	defer tick.Stop()
	const forwards = 6
	for i := range forwards {
		id := fmt.Sprint(i)
		l.regions["us-east"].Forward("eu-west", record(id, 100), o.done(id))
		<-tick.C
		for name, peer := range pairs { // the heap itself is weighed where a peer does not read at all
			if n := l.regions[name].link(peer).BytesOut; n > 128<<10 {
				t.Errorf("%s has %d bytes in flight", name, n)
			}
		}

	}
	for id, r := range o.await(forwards) {
		if r.err != nil {
			t.Errorf("forward %s: %v", id, r.err)
		}

	}
	for name, peer := range pairs {
		if s := l.regions[name].link(peer); !s.Up || !s.Since.Equal(since[name]) {
			t.Errorf("%s: the link with %s was down for a moment: %+v", name, peer, s)
		}
		if sinks[name].count() == 0 {
			t.Errorf("the mirror to %s has stood still", name)
		}
		checkTailShare(t, name, l.regions[name].config.Tails.(*talker))
	}
	stop()
	watchers.Wait()
	if g.max() > 3*time.Second {
		t.Errorf("no sign of life for %s", g.max())
	}
}

// A record that a slow line carries for longer than the watchdog of a mirror waits
// ends neither the session nor the flow's patience: bytes that move are progress.
func TestB32_LargeRecordOnANarrowLineIsNoStall(t *testing.T) {
	t.Parallel()
	l := over(t, 1, linktest.NewLine(narrowLine, 20*time.Millisecond, 1<<20))
	us, eu := l.regions["us-east"], l.regions["eu-west"]
	sink := &copySink{gate: make(chan struct{})}
	eu.mirror = func(string, regions.MirrorOpen) (link.MirrorSink, regions.MirrorReply) {
		return sink, regions.MirrorReply{}
	}
	since := us.link("eu-west").Since
	s, _ := openFlow(t, l, "us-east", "eu-west")
	if s.Moving() {
		t.Error("nothing was sent, and something moves")
	}
	send(t, s, batch(1, 1, 72<<10))
	began := time.Now()
	arrived := make(chan struct{})
	go func() { sink.gate <- struct{}{}; close(arrived) }()
	for tick := time.NewTicker(2 * time.Second); ; {
		select {
		case <-tick.C:
			if !s.Moving() && time.Since(began) < 10*time.Second {
				t.Error("it does not move")
			}
			continue
		case <-arrived:
			tick.Stop()
		case <-time.After(time.Minute):
			t.Fatal("it has not arrived within a minute")
		}
		break
	}
	if took := time.Since(began); took < 10*time.Second {
		t.Errorf("it took %s: too short to show anything", took)
	}
	if r := recv(t, s); r.Cursor.Sequence != 1 {
		t.Errorf("%+v", r)
	}
	// A target that has got it and does not answer is another matter.
	send(t, s, batch(2, 1, 1))
	eventually(t, 30*time.Second, func() string {
		if s.Moving() {
			return "patience with a target that does not answer"
		}
		return ""
	})
	if st := us.link("eu-west"); !st.Up || !st.Since.Equal(since) {
		t.Errorf("the link was down for a moment: %+v", st)
	}
}
