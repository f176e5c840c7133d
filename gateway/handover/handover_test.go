package handover_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"domicile/api"
	"domicile/gateway/handover"
	"domicile/regions"
	"domicile/regions/fabric/fabrictest"
)

func TestMain(m *testing.M) { fabrictest.VerifyTestMain(m) }

var who = regions.Principal{Name: "shop", Kind: "client", Class: "app", Place: "eu-west"}

// pair is a door without the seat and the holder, with the calls between them in one
// process. Any call can be made to fail before or after it was heard.
type pair struct {
	out *handover.Out
	in  *handover.In

	unsent, unheard atomic.Bool // of calls to the holder: refused, or answered with silence
	dumb            atomic.Bool // outcomes do not get back

	mu      sync.Mutex
	taken   []string // ids in the order in which the holder's gateway got them
	retries map[string]api.Retry
	pending []func(api.Ack, error)
	hold    bool            // outcomes wait for the test
	distant map[string]bool // ids that go on to another region
}

func newPair(t interface{ Cleanup(func()) }, pace regions.Pace) *pair {
	p := &pair{distant: map[string]bool{}, retries: map[string]api.Retry{}}
	clock, logger := regions.NewSteadyClock(), slog.New(slog.DiscardHandler)
	p.in = handover.NewIn(handover.InConfig{Region: "eu-west", Term: 7, Publish: p.publish, Clock: clock, Pace: pace, Logger: logger,
		Call: func(ctx context.Context, node, kind string, body []byte) ([]byte, error) {
			if p.dumb.Load() || node != "a" || kind != handover.Outcomes {
				return nil, &api.Error{Code: api.NotReady}
			}
			return p.out.Settle(ctx, "b", body)
		}})
	p.out = handover.NewOut(handover.OutConfig{Region: "eu-west", Clock: clock, Pace: pace, Logger: logger,
		Call: func(ctx context.Context, node, kind string, body []byte) ([]byte, error) {
			if p.unsent.Load() || node != "b" || kind != handover.Records {
				return nil, &api.Error{Code: api.NotReady}
			}
			answer, err := p.in.Take(ctx, "a", body)
			if p.unheard.Load() {
				return nil, context.DeadlineExceeded
			}
			return answer, err
		}})
	p.out.SetHolder(handover.Holder{Node: "b", Term: 7})
	t.Cleanup(p.close)
	return p
}

func (p *pair) close() {
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	_ = p.out.Close(ctx)
	_ = p.in.Close(ctx)
}

func (p *pair) publish(_ context.Context, r api.Record, _ regions.Principal, away func(), done func(api.Ack, error)) {
	p.mu.Lock()
	p.taken = append(p.taken, r.ID)
	p.retries[r.ID] = r.Retry
	distant, hold := p.distant[r.ID], p.hold
	if hold || distant {
		p.pending = append(p.pending, done)
	}
	p.mu.Unlock()
	switch {
	case distant:
		away()
	case !hold:
		done(api.Ack{ID: r.ID, Sequence: 1}, nil)
	}
}

// release settles what is held.
func (p *pair) release() {
	p.mu.Lock()
	pending := p.pending
	p.pending, p.hold = nil, false
	p.mu.Unlock()
	for _, done := range pending {
		done(api.Ack{Sequence: 1}, nil)
	}
}

func (p *pair) count() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.taken)
}

type outcome struct {
	id  string
	ack api.Ack
	err error
}

// send publishes and gives the outcome to a channel.
func (p *pair) send(id string, body int, to chan<- outcome) { p.sendTo("orders", id, body, to) }

func (p *pair) sendTo(topic, id string, body int, to chan<- outcome) {
	p.out.Publish(context.Background(), api.Record{ID: id, Topic: topic, Body: make([]byte, body)}, who, nil,
		func(a api.Ack, err error) { to <- outcome{id, a, err} })
}

func receive(t *testing.T, from <-chan outcome) outcome {
	t.Helper()
	select {
	case o := <-from:
		return o
	case <-time.After(30 * time.Second):
		t.Fatal("no outcome")
		return outcome{}
	}
}

// RD3: records of one door reach the holder in the order in which they came in, however
// many batches they fill, and each has one outcome.
func TestRD3_HandOverKeepsTheOrder(t *testing.T) {
	p := newPair(t, 1)
	const n = 5_000
	got := make(chan outcome, n)
	for i := range n {
		p.send(fmt.Sprint(i), 100+i%3000, got)
	}
	seen := map[string]bool{}
	for range n {
		o := receive(t, got)
		if o.err != nil || o.ack.ID != o.id || seen[o.id] {
			t.Fatalf("%+v, seen %v", o, seen[o.id])
		}
		seen[o.id] = true
	}
	for i, id := range p.taken {
		if id != fmt.Sprint(i) {
			t.Fatalf("record %s came as number %d", id, i)
		}
	}
}

// RA5: what a retry says of its first try reaches the holder, and what the holder says of
// the log that may hold a record reaches the producer.
func TestRA5_HandOverKeepsWhatARetrySays(t *testing.T) {
	p := newPair(t, 1)
	log := api.LogID{Tenant: api.DefaultTenant, Topic: "orders", Slot: "eu-central"}
	p.hold = true
	got := make(chan outcome, 3)
	want := map[string]api.Retry{"first": {}, "again": {Again: true}, "named": {Again: true, Log: log}}
	for id, retry := range want {
		p.out.Publish(t.Context(), api.Record{ID: id, Topic: "orders", Body: []byte("x"), Retry: retry}, who, nil,
			func(a api.Ack, err error) { got <- outcome{id, a, err} })
	}
	for deadline := time.Now().Add(30 * time.Second); p.count() < len(want) && time.Now().Before(deadline); {
		runtime.Gosched()
	}
	p.mu.Lock()
	retries, pending := p.retries, p.pending
	p.mu.Unlock()
	for id := range want {
		if retries[id] != want[id] {
			t.Errorf("%s came as %+v", id, retries[id])
		}
	}
	for _, done := range pending {
		done(api.Ack{}, &api.Error{Code: api.OutcomeUnknown, Log: log})
	}
	for range want {
		var e *api.Error
		if o := receive(t, got); !errors.As(o.err, &e) || e.Log != log {
			t.Errorf("%s: told %v", o.id, o.err)
		}
	}
}

// RT3: a record that waits for a far region holds up no other, and its door is told that
// this region holds nothing of it.
func TestRT3_ARecordForAFarRegionDelaysNoOther(t *testing.T) {
	p := newPair(t, 1)
	p.distant["far"] = true
	away, far, near := make(chan struct{}), make(chan outcome, 1), make(chan outcome, 1)
	p.out.Publish(t.Context(), api.Record{ID: "far", Topic: "orders", Body: []byte("x")}, who, func() { close(away) },
		func(a api.Ack, err error) { far <- outcome{"far", a, err} })
	p.send("near", 1, near)
	if o := receive(t, near); o.err != nil {
		t.Fatal(o.err)
	}
	select {
	case <-away:
	case <-time.After(30 * time.Second):
		t.Fatal("nobody said that the record is away")
	}
	if len(far) != 0 {
		t.Error("it has an outcome")
	}
	p.release()
	if o := receive(t, far); o.err != nil {
		t.Error(o.err)
	}
}

// RA5: what was certainly not taken is a refusal that asks for a retry, what may have
// been is unknown.
func TestRA5_NeverSentIsRefusedAndUnansweredIsUnknown(t *testing.T) {
	for name, c := range map[string]struct {
		arrange func(p *pair)
		act     func(p *pair)
		want    api.Code
	}{
		"nobody holds the seat":          {arrange: func(p *pair) { p.out.SetHolder(handover.Holder{Reason: "below quorum"}) }, want: api.NotReady},
		"the holder is not reached":      {arrange: func(p *pair) { p.unsent.Store(true) }, want: api.NotReady},
		"another term":                   {arrange: func(p *pair) { p.out.SetHolder(handover.Holder{Node: "b", Term: 8}) }, want: api.NotReady},
		"heard, and no answer":           {arrange: func(p *pair) { p.unheard.Store(true); p.hold = true }, want: api.OutcomeUnknown},
		"heard, and the outcome comes":   {arrange: func(p *pair) { p.unheard.Store(true) }, want: ""},
		"taken, and the outcome is lost": {arrange: func(p *pair) { p.dumb.Store(true) }, want: api.OutcomeUnknown},
		"taken, and the holder changes": {arrange: func(p *pair) { p.hold = true },
			act: func(p *pair) { p.out.SetHolder(handover.Holder{Node: "c", Term: 8}) }, want: api.OutcomeUnknown},
		"the holder gives the seat away": {arrange: func(p *pair) { _ = p.in.Close(context.Background()) }, want: api.NotReady},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPair(t, 0.25)
			c.arrange(p)
			got := make(chan outcome, 1)
			p.send("one", 10, got)
			if c.act != nil {
				for p.count() == 0 {
					runtime.Gosched()
				}
				c.act(p)
			}
			o := receive(t, got)
			if api.CodeOf(o.err) != c.want {
				t.Fatalf("got %v, want %q", o.err, c.want)
			}
			if c.want == api.NotReady && len(p.taken) != 0 {
				t.Error("refused, and taken all the same")
			}
		})
	}
}

// RT3: what waits for the holder is bounded in records and in bytes.
func TestRT3_WhatWaitsIsBounded(t *testing.T) {
	for name, c := range map[string]struct{ records, body int }{
		"records": {handover.MaxWaiting + 2_000, 1}, "bytes": {100, 1 << 20},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPair(t, 1)
			block := make(chan struct{})
			p.mu.Lock() // the holder's gateway stands still in its first record
			go func() { <-block; p.mu.Unlock() }()
			got := make(chan outcome, c.records)
			for i := range c.records {
				p.send(fmt.Sprint(i), c.body, got)
			}
			refused := len(got)
			close(block)
			overloaded := 0
			for range c.records {
				if o := receive(t, got); api.CodeOf(o.err) == api.Overloaded {
					overloaded++
				}
			}
			if refused == 0 || overloaded != refused {
				t.Errorf("%d refused at once, %d overloaded", refused, overloaded)
			}
		})
	}
}

// RT2, B50: one topic has all the records waiting that it may. Another one's is taken all the
// same, and handed over with the next batch or the one after it.
func TestRT2_AFloodIsNoWaitForAnotherTopic(t *testing.T) {
	p := newPair(t, 1)
	block := make(chan struct{})
	p.mu.Lock() // the holder's gateway stands still in its first record
	go func() { <-block; p.mu.Unlock() }()
	const records = handover.MaxWaiting
	got := make(chan outcome, records+1)
	for i := range records {
		p.send(fmt.Sprint(i), 1, got)
	}
	refused := len(got)
	p.sendTo("catalog", "neighbour", 1, got)
	if refused == 0 || len(got) != refused {
		t.Fatalf("%d of the flood are refused, and the neighbour's record too", refused)
	}
	close(block)
	for range records + 1 {
		receive(t, got)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if at := slices.Index(p.taken, "neighbour"); at < 0 || at > 2*512 {
		t.Errorf("the neighbour's record was taken as the %dth of %d", at+1, len(p.taken))
	}
}

// A record says who published it by the door's word; only clients publish.
func TestAHandedOverRecordIsAClients(t *testing.T) {
	p := newPair(t, 1)
	got := make(chan outcome, 1)
	operator := who
	operator.Kind = "operator"
	p.out.Publish(t.Context(), api.Record{ID: "x", Topic: "orders", Body: []byte("b")}, operator, nil, func(a api.Ack, err error) { got <- outcome{"x", a, err} })
	if o := receive(t, got); api.CodeOf(o.err) != api.PermissionDenied || len(p.taken) != 0 {
		t.Errorf("%+v, taken %q", o, p.taken)
	}
	if _, err := p.in.Take(t.Context(), "a", []byte("no hand-over")); api.CodeOf(err).Stored() != api.StoredNo {
		t.Errorf("got %v", err)
	}
}

// RA5: whatever fails and whoever holds the seat, each record has exactly one outcome,
// none is acknowledged that was not taken, and none is refused that was.
func TestRA5_EachRecordHasOneTrueOutcome(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := newPair(t, 0.25)
		const most = 200
		got, sent := make(chan outcome, most), 0
		for range rapid.IntRange(1, 25).Draw(t, "steps") {
			switch rapid.SampledFrom([]string{"send", "send", "send", "unsent", "unheard", "dumb", "hold", "release", "holder", "nobody"}).Draw(t, "step") {
			case "send":
				for range min(rapid.IntRange(1, 20).Draw(t, "records"), most-sent) {
					p.send(fmt.Sprint(sent), 10, got)
					sent++
				}
			case "unsent":
				p.unsent.Store(!p.unsent.Load())
			case "unheard":
				p.unheard.Store(!p.unheard.Load())
			case "dumb":
				p.dumb.Store(!p.dumb.Load())
			case "hold":
				p.mu.Lock()
				p.hold = true
				p.mu.Unlock()
			case "release":
				p.release()
			case "holder":
				p.out.SetHolder(handover.Holder{Node: "b", Term: 7})
			case "nobody":
				p.out.SetHolder(handover.Holder{Reason: "nobody"})
			}
		}
		p.release()
		p.close()
		taken := "," + strings.Join(p.taken, ",") + ","
		seen := map[string]bool{}
		for range sent {
			o := <-got
			was := strings.Contains(taken, ","+o.id+",")
			switch {
			case seen[o.id]:
				t.Fatalf("%s has two outcomes", o.id)
			case o.err == nil && !was:
				t.Fatalf("%s was acknowledged and never taken", o.id)
			case o.err != nil && api.CodeOf(o.err).Stored() == api.StoredNo && was:
				t.Fatalf("%s was taken, and refused with %v", o.id, o.err)
			}
			seen[o.id] = true
		}
	})
}
