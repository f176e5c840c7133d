package link_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"domicile/api"
	"domicile/regions"
	"domicile/regions/link"
)

type outcome struct {
	ack api.Ack
	err error
	at  time.Time
}

// outcomes collects what Forward tells; a second answer for one id fails the test.
type outcomes struct {
	t  *testing.T
	mu sync.Mutex
	of map[string]outcome
}

func newOutcomes(t *testing.T) *outcomes { return &outcomes{t: t, of: map[string]outcome{}} }

func (o *outcomes) done(id string) func(api.Ack, error) {
	return func(ack api.Ack, err error) {
		o.mu.Lock()
		defer o.mu.Unlock()
		if _, twice := o.of[id]; twice {
			o.t.Errorf("%s was answered twice", id)
		}
		o.of[id] = outcome{ack, err, time.Now()}
	}
}

func (o *outcomes) await(n int) map[string]outcome {
	o.t.Helper()
	eventually(o.t, 10*time.Second, func() string {
		o.mu.Lock()
		defer o.mu.Unlock()
		if len(o.of) < n {
			return fmt.Sprintf("%d of %d outcomes", len(o.of), n)
		}
		return ""
	})
	return o.of
}

func record(id string, size int) regions.Forward {
	return regions.Forward{
		Record:    api.Record{ID: id, Topic: "orders", Key: "k", Tags: []api.Tag{{Name: "residency", Value: "eu"}}, Body: []byte(strings.Repeat("x", size))},
		Log:       api.LogID{Tenant: "default", Topic: "orders", Slot: "eu-west"},
		Principal: regions.Principal{Name: "shop-1", Kind: "client", Class: "producer", Place: "us-east"},
		Serial:    7, Revision: "7-abc",
	}
}

func TestR14b_ForwardedRecordIsAckedByItsHome(t *testing.T) {
	t.Parallel()
	l := started(t, 1, "eu-west", "us-east")
	var mu sync.Mutex
	got := map[string]regions.Forward{}
	l.regions["eu-west"].forwarded = func(_ context.Context, peer string, f regions.Forward, done func(api.Ack, error)) {
		mu.Lock()
		got[f.Record.ID] = f
		mu.Unlock()
		if peer != "us-east" {
			t.Errorf("forwarded by %q", peer)
		}
		if strings.HasPrefix(f.Record.ID, "refuse") {
			go done(api.Ack{}, &api.Error{Code: api.ResidencyDenied, Op: "admit", Topic: "orders", Hint: "go elsewhere", Revision: "9-x"})
			return
		}
		go done(api.Ack{ID: f.Record.ID, Log: f.Log, Region: "eu-west", Sequence: 5, Durability: api.Disk1}, nil)
	}
	o := newOutcomes(t)
	const n = 500
	for i := range n {
		id := fmt.Sprint("id-", i)
		if i%50 == 0 {
			id = fmt.Sprint("refuse-", i)
		}
		l.regions["us-east"].Forward("eu-west", record(id, 100), o.done(id))
	}
	big := record("big", api.MaxBody)
	big.Record.Headers = []api.Header{{Name: "h", Value: strings.Repeat("v", api.MaxHeaderBytes)}}
	l.regions["us-east"].Forward("eu-west", big, o.done("big"))
	for id, r := range o.await(n + 1) {
		switch {
		case strings.HasPrefix(id, "refuse"):
			if api.CodeOf(r.err) != api.ResidencyDenied || r.err.(*api.Error).Revision != "9-x" {
				t.Errorf("%s: %v", id, r.err)
			}
		case r.err != nil || r.ack.ID != id || r.ack.Region != "eu-west" || r.ack.Sequence != 5 || r.ack.Durability != api.Disk1:
			t.Errorf("%s: %+v %v", id, r.ack, r.err)
		}
	}
	f := got["id-1"]
	want := record("id-1", 100)
	if !slices.Equal(f.Record.Body, want.Record.Body) || f.Principal != want.Principal || f.Log != want.Log || f.Serial != 7 || f.Revision != "7-abc" {
		t.Errorf("it arrived as %+v", f)
	}
	if left := time.Until(f.Deadline); left > 10*time.Second {
		t.Errorf("its deadline is %s away", left)
	}
	if s := l.regions["us-east"].link("eu-west"); s.BytesOut != 0 {
		t.Errorf("%d bytes are in flight when all is answered", s.BytesOut)
	}
}

func TestRA5_ForwardIsRefusedAtOnceWhileTheLinkIsDown(t *testing.T) {
	t.Parallel()
	l := started(t, 1, "eu-west", "us-east")
	l.cut("us-east", "eu-west", bothPlanes, bothWays, link.Reject)
	l.await("us-east", "eu-west", "down", isDown)
	o := newOutcomes(t)
	began := time.Now()
	l.regions["us-east"].Forward("eu-west", record("a", 1), o.done("a"))
	l.regions["us-east"].Forward("nowhere", record("b", 1), o.done("b"))
	got := o.await(2)
	e, _ := got["a"].err.(*api.Error)
	if took := got["a"].at.Sub(began); took > 3*time.Second || e == nil || e.Code != api.HomeUnreachable || e.Region != "eu-west" || e.For <= 0 || e.RetryAfter <= 0 {
		t.Errorf("after %s: %#v", took, got["a"].err)
	}
	if api.CodeOf(got["b"].err) != api.UnknownRegion {
		t.Errorf("a region without a link: %v", got["b"].err)
	}
}

// What may have left and was not answered is unknown, not lost and not stored.
func TestRA5_CutInMidFlightIsOutcomeUnknown(t *testing.T) {
	t.Parallel()
	for _, mode := range []link.Mode{link.Reject, link.BlackHole} {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			l := started(t, halfPace, "eu-west", "us-east")
			arrived := make(chan func(api.Ack, error), 10)
			l.regions["eu-west"].forwarded = func(_ context.Context, _ string, _ regions.Forward, done func(api.Ack, error)) { arrived <- done }
			o := newOutcomes(t)
			for i := range 10 {
				id := fmt.Sprint(i)
				f := record(id, 10)
				f.Deadline = time.Now().Add(time.Minute)
				l.regions["us-east"].Forward("eu-west", f, o.done(id))
			}
			answers := make([]func(api.Ack, error), 10)
			for i := range answers {
				answers[i] = <-arrived
			}
			l.cut("us-east", "eu-west", bothPlanes, bothWays, mode)
			for id, r := range o.await(10) {
				if api.CodeOf(r.err) != api.OutcomeUnknown {
					t.Errorf("%s: %v", id, r.err)
				}
			}
			for _, done := range answers { // too late, and harmless
				done(api.Ack{}, nil)
			}
		})
	}
}

func TestRA5_PassedDeadlineIsOutcomeUnknown(t *testing.T) {
	t.Parallel()
	l := started(t, halfPace, "eu-west", "us-east")
	held := make(chan func(api.Ack, error), 1)
	l.regions["eu-west"].forwarded = func(_ context.Context, _ string, _ regions.Forward, done func(api.Ack, error)) { held <- done }
	o := newOutcomes(t)
	f := record("a", 1)
	f.Deadline = time.Now().Add(2 * beat)
	l.regions["us-east"].Forward("eu-west", f, o.done("a"))
	got := o.await(1)["a"]
	if late := got.at.Sub(f.Deadline); api.CodeOf(got.err) != api.OutcomeUnknown || late < 0 || late > 2*beat {
		t.Errorf("%s after the deadline: %v", late, got.err)
	}
	(<-held)(api.Ack{}, nil)
	if !l.regions["us-east"].link("eu-west").Up {
		t.Error("a slow home is no reason to call the link down")
	}
}

// RT3, RT2: each destination has bounds of its own: one that takes records and never answers
// fills its own and delays nobody else. One topic takes two thirds of them at most, so that
// another's records go out to the same region all the same.
func TestRT3_SilentHomeFillsOnlyItsOwnBounds(t *testing.T) {
	t.Parallel()
	l := started(t, 1, "eu-west", "us-east", "ap-south")
	arrived := make(chan struct{}, 1)
	l.regions["eu-west"].forwarded = func(_ context.Context, _ string, f regions.Forward, _ func(api.Ack, error)) {
		if f.Record.Topic == "catalog" {
			arrived <- struct{}{}
		}
	}
	full := newOutcomes(t)
	far := time.Now().Add(time.Minute)
	const over = 10
	for i := range 4096*2/3 + over {
		id := fmt.Sprint(i)
		f := record(id, 10)
		f.Deadline = far
		l.regions["us-east"].Forward("eu-west", f, full.done(id))
	}
	for id, r := range full.await(over) {
		if api.CodeOf(r.err) != api.Overloaded {
			t.Errorf("%s: %v", id, r.err)
		}
	}
	neighbour := record("neighbour", 10)
	neighbour.Record.Topic, neighbour.Deadline = "catalog", far
	l.regions["us-east"].Forward("eu-west", neighbour, func(_ api.Ack, err error) {
		if api.CodeOf(err) == api.Overloaded {
			t.Errorf("another topic's record has no room: %v", err)
		}
	})
	select {
	case <-arrived:
	case <-time.After(time.Minute):
		t.Error("another topic's record does not arrive")
	}
	l.cut("us-east", "eu-west", []link.Plane{link.Data}, bothWays, link.BlackHole)
	o := newOutcomes(t)
	for i := range 200 {
		id := fmt.Sprint(i)
		began := time.Now()
		l.regions["us-east"].Forward("ap-south", record(id, 1000), o.done(id))
		if r := o.await(i + 1)[id]; r.err != nil || r.at.Sub(began) > 10*time.Second {
			t.Fatalf("%s after %s: %v", id, r.at.Sub(began), r.err)
		}
	}
}

func TestRT3_BytesInFlightAreBounded(t *testing.T) {
	t.Parallel()
	l := started(t, 1, "eu-west", "us-east")
	l.regions["eu-west"].forwarded = func(context.Context, string, regions.Forward, func(api.Ack, error)) {}
	o := newOutcomes(t)
	for i := range 40 {
		id := fmt.Sprint(i)
		f := record(id, 1<<20)
		f.Deadline = time.Now().Add(time.Minute)
		l.regions["us-east"].Forward("eu-west", f, o.done(id))
	}
	if n := len(o.await(19)); n != 19 {
		t.Errorf("%d of 40 MiB refused, want what is above two thirds of 32 MiB", n)
	}
	if s := l.regions["us-east"].link("eu-west"); s.BytesOut > 22<<20 || s.BytesOut < 20<<20 {
		t.Errorf("%d bytes in flight", s.BytesOut)
	}
}

func TestCloseLetsForwardsFinish(t *testing.T) {
	t.Parallel()
	l := started(t, 1, "eu-west", "us-east")
	held := make(chan func(api.Ack, error), 1)
	l.regions["eu-west"].forwarded = func(_ context.Context, _ string, f regions.Forward, done func(api.Ack, error)) {
		if f.Record.ID == "a" {
			held <- done
			return
		}
		done(api.Ack{}, nil)
	}
	o := newOutcomes(t)
	f := record("a", 1)
	f.Deadline = time.Now().Add(time.Minute)
	l.regions["us-east"].Forward("eu-west", f, o.done("a"))
	done := <-held
	closed := make(chan struct{})
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		l.regions["us-east"].Close(ctx)
		close(closed)
	}()
	eventually(t, 5*time.Second, func() string {
		code := make(chan api.Code, 1)
		l.regions["us-east"].Forward("eu-west", record("late", 1), func(_ api.Ack, err error) { code <- api.CodeOf(err) })
		if c := <-code; c != api.ShuttingDown {
			return "a forward during the close: " + string(c)
		}
		return ""
	})
	done(api.Ack{ID: "a"}, nil)
	if r := o.await(1)["a"]; r.err != nil {
		t.Errorf("it was under way when the close began: %v", r.err)
	}
	<-closed
}
