package link_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"domicile/api"
	"domicile/regions"
	"domicile/regions/link"
)

var mirrored = api.LogID{Tenant: "default", Topic: "catalog.updates", Slot: "home"}

// copySink is a target's copy in memory.
type copySink struct {
	cursor uint64
	gate   chan struct{} // one receive per batch; nil: apply at once
	closed atomic.Bool
	mu     sync.Mutex
	seen   []uint64
}

func (c *copySink) Apply(ctx context.Context, b regions.MirrorBatch) regions.MirrorReply {
	if c.gate != nil {
		select {
		case <-c.gate:
		case <-ctx.Done():
			return regions.MirrorReply{Refused: api.ShuttingDown}
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, it := range b.Items {
		c.seen = append(c.seen, it.Sequence)
	}
	c.cursor = b.Items[len(b.Items)-1].Sequence
	return regions.MirrorReply{Cursor: regions.Cursor{Incarnation: b.Incarnation, Sequence: c.cursor, Ledger: regions.Ledger{Mirrored: c.cursor}}}
}

func (c *copySink) Close() { c.closed.Store(true) }

func (c *copySink) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.seen)
}

func batch(first uint64, n, size int) regions.MirrorBatch {
	b := regions.MirrorBatch{Incarnation: "inc", Serial: 1, Revision: "1-a"}
	for i := range uint64(n) {
		b.Items = append(b.Items, regions.Item{
			Sequence: first + i, Epoch: api.StaticEpoch("us-east"), Term: 1, Time: time.Now(), Revision: "1-a",
			Record: api.Record{ID: fmt.Sprint(first + i), Topic: mirrored.Topic, Body: make([]byte, size)},
		})
	}
	return b
}

func openFlow(t *testing.T, l *lab, from, to string) (regions.MirrorStream, regions.MirrorReply) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	s, err := l.regions[from].Mesh.OpenMirror(ctx, to, regions.MirrorOpen{Log: mirrored, Incarnation: "inc", Epoch: api.StaticEpoch("us-east"), Head: 9})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	r, err := s.Recv(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return s, r
}

func recv(t *testing.T, s regions.MirrorStream) regions.MirrorReply {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	r, err := s.Recv(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func send(t *testing.T, s regions.MirrorStream, b regions.MirrorBatch) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if err := s.Send(ctx, b); err != nil {
		t.Fatal(err)
	}
}

func TestR14c_FlowArrivesInOrder(t *testing.T) {
	t.Parallel()
	l := started(t, 1, "eu-west", "us-east")
	sink := &copySink{}
	l.regions["eu-west"].mirror = func(peer string, o regions.MirrorOpen) (link.MirrorSink, regions.MirrorReply) {
		if peer != "us-east" || o.Log != mirrored || o.Incarnation != "inc" || o.Head != 9 || o.Epoch != api.StaticEpoch("us-east") {
			t.Errorf("opened by %s with %+v", peer, o)
		}
		return sink, regions.MirrorReply{Cursor: regions.Cursor{Incarnation: "inc", Sequence: 0}}
	}
	s, first := openFlow(t, l, "us-east", "eu-west")
	if first.Refused != "" || first.Cursor.Incarnation != "inc" {
		t.Fatalf("the open was answered %+v", first)
	}
	go func() {
		for i := range uint64(100) {
			send(t, s, batch(1+i*50, 50, 1000))
		}
	}()
	for last := uint64(0); last < 100*50; { // a batch may go in pieces, and each has a reply
		r := recv(t, s)
		if r.Cursor.Sequence <= last || r.Cursor.Ledger.Mirrored != r.Cursor.Sequence {
			t.Fatalf("after %d: %+v", last, r)
		}
		last = r.Cursor.Sequence
	}
	for i, seq := range sink.seen {
		if seq != uint64(i+1) {
			t.Fatalf("item %d has sequence %d", i, seq)
		}
	}
	s.Close()
	eventually(t, 5*time.Second, func() string {
		if !sink.closed.Load() {
			return "the sink is open after its flow has ended"
		}
		return ""
	})
	if left := l.regions["us-east"].link("eu-west").BytesOut; left != 0 {
		t.Errorf("%d bytes in flight after the end", left)
	}
}

func TestR14c_RefusedOpenEndsTheFlow(t *testing.T) {
	t.Parallel()
	l := started(t, 1, "eu-west", "us-east")
	l.regions["eu-west"].mirror = func(string, regions.MirrorOpen) (link.MirrorSink, regions.MirrorReply) {
		return nil, regions.MirrorReply{Refused: api.ManifestMismatch, Field: "retention.max_age", Hint: "make both manifests equal", RetryAfter: time.Second}
	}
	s, r := openFlow(t, l, "us-east", "eu-west")
	if r.Refused != api.ManifestMismatch || r.Field != "retention.max_age" || r.RetryAfter != time.Second {
		t.Errorf("%+v", r)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if _, err := s.Recv(ctx); err == nil || errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("after the refusal: %v", err)
	}
}

// B29: a target that takes its time for one flow delays no other flow and no forward,
// and what it keeps in flight is bounded.
func TestB29_SlowFlowDelaysNoOther(t *testing.T) {
	t.Parallel()
	l := started(t, 1, "eu-west", "us-east")
	slow, fast := &copySink{gate: make(chan struct{})}, &copySink{}
	opened := 0
	l.regions["eu-west"].mirror = func(string, regions.MirrorOpen) (link.MirrorSink, regions.MirrorReply) {
		if opened++; opened == 1 {
			return slow, regions.MirrorReply{}
		}
		return fast, regions.MirrorReply{}
	}
	stuck, _ := openFlow(t, l, "us-east", "eu-west")
	ctx, stop := context.WithCancel(context.Background())
	var blocked sync.WaitGroup
	sent := atomic.Int64{}
	blocked.Go(func() {
		for i := uint64(0); ; i++ {
			if stuck.Send(ctx, batch(1+i*64, 64, 1000)) != nil {
				return
			}
			sent.Add(64 * 1000)
		}
	})
	quick, _ := openFlow(t, l, "us-east", "eu-west")
	o := newOutcomes(t)
	for i := range uint64(60) {
		began := time.Now()
		send(t, quick, batch(1+i*64, 64, 1000))
		for recv(t, quick).Cursor.Sequence < (i+1)*64 {
		}
		id := fmt.Sprint(i)
		l.regions["us-east"].Forward("eu-west", record(id, 100), o.done(id))
		if r := o.await(int(i) + 1)[id]; r.err != nil {
			t.Fatal(r.err)
		}
		if took := time.Since(began); took > 10*time.Second {
			t.Fatalf("round %d took %s beside a flow that is stuck", i, took)
		}
	}
	if n := sent.Load(); n > 23<<20 {
		t.Errorf("the stuck flow has %d bytes in flight", n)
	}
	if n := l.regions["us-east"].link("eu-west").BytesOut; n > 32<<20 {
		t.Errorf("%d bytes in flight", n)
	}
	stop()
	blocked.Wait()
	stuck.Close()
}

func TestR14c_CutEndsTheFlow(t *testing.T) {
	t.Parallel()
	l := started(t, halfPace, "eu-west", "us-east")
	sink := &copySink{gate: make(chan struct{})}
	l.regions["eu-west"].mirror = func(string, regions.MirrorOpen) (link.MirrorSink, regions.MirrorReply) {
		return sink, regions.MirrorReply{}
	}
	s, _ := openFlow(t, l, "us-east", "eu-west")
	send(t, s, batch(1, 10, 100))
	l.cut("eu-west", "us-east", bothPlanes, bothWays, link.BlackHole)
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if _, err := s.Recv(ctx); api.CodeOf(err) != api.HomeUnreachable {
		t.Errorf("a flow over a lost link: %v", err)
	}
	if err := s.Send(ctx, batch(11, 1, 1)); api.CodeOf(err) != api.HomeUnreachable {
		t.Errorf("a batch after that: %v", err)
	}
	if _, err := l.regions["us-east"].Mesh.OpenMirror(ctx, "eu-west", regions.MirrorOpen{Log: mirrored}); api.CodeOf(err) != api.HomeUnreachable {
		t.Errorf("an open while down: %v", err)
	}
}

// narrow is a connection that writes at most rate bytes per second.
type narrow struct {
	net.Conn
	rate int
	mu   sync.Mutex
	free time.Time
	over chan struct{}
	once sync.Once
}

func (n *narrow) Write(p []byte) (int, error) {
	for done := 0; done < len(p); {
		chunk := p[done:min(len(p), done+4096)]
		n.mu.Lock()
		if now := time.Now(); n.free.Before(now) {
			n.free = now
		}
		n.free = n.free.Add(time.Duration(len(chunk)) * time.Second / time.Duration(n.rate))
		wait := time.NewTimer(time.Until(n.free))
		n.mu.Unlock()
		select {
		case <-wait.C:
		case <-n.over:
			wait.Stop()
			return done, io.ErrClosedPipe
		}
		m, err := n.Conn.Write(chunk)
		if done += m; err != nil {
			return done, err
		}
	}
	return len(p), nil
}

func (n *narrow) Close() error {
	n.once.Do(func() { close(n.over) })
	return n.Conn.Close()
}

// A full data lane on a slow line costs no heartbeat: every connection is held to
// 400 kB/s, megabytes wait, and the link stays up.
func TestR14d_HeartbeatsAreNotStarvedByAFullDataLane(t *testing.T) {
	t.Parallel()
	l := newLab(t, halfPace, "eu-west", "us-east")
	l.regions["us-east"].Close(context.Background())
	eventually(t, 5*time.Second, func() string { return l.relisten("us-east") })
	l.prepare("us-east", func(r *region) {
		r.config.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
			c, err := (&net.Dialer{}).DialContext(ctx, network, address)
			if err != nil {
				return nil, err
			}
			return &narrow{Conn: c, rate: 400_000, over: make(chan struct{})}, nil
		}
	})
	l.start("eu-west")
	l.start("us-east")
	l.await("us-east", "eu-west", "up", isUp)
	l.await("eu-west", "us-east", "up", isUp)
	sink := &copySink{}
	l.regions["eu-west"].mirror = func(string, regions.MirrorOpen) (link.MirrorSink, regions.MirrorReply) {
		return sink, regions.MirrorReply{}
	}
	s, _ := openFlow(t, l, "us-east", "eu-west")
	ctx, stop := context.WithCancel(context.Background())
	var sender sync.WaitGroup
	sender.Go(func() {
		for i := uint64(0); s.Send(ctx, batch(1+i*100, 100, 1000)) == nil; i++ {
		}
	})
	since := l.regions["us-east"].link("eu-west").Since
	never(t, 12*beat, "the link went down under load", func() bool {
		return !l.regions["us-east"].link("eu-west").Up || !l.regions["eu-west"].link("us-east").Up
	})
	if now := l.regions["us-east"].link("eu-west").Since; !now.Equal(since) {
		t.Error("the link was down for a moment under load")
	}
	stop()
	sender.Wait()
	s.Close()
	if sink.count() == 0 {
		t.Error("nothing arrived")
	}
}
