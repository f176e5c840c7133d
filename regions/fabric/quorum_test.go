package fabric_test

import (
	"bytes"
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"domicile/api"
	"domicile/regions"
	"domicile/regions/fabric"
	"domicile/regions/fabric/fabrictest"
)

// eventually polls until ok holds.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	within(t, 90*time.Second, what, ok)
}

// within is eventually with another bound.
func within(t testing.TB, bound time.Duration, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(bound)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatalf("not within %s: %s", bound, what)
		}
		<-tick.C
	}
}

// readPatiently reads a whole log as a consumer does: NOT_READY is tried again.
func readPatiently(t testing.TB, l regions.Log) (all []regions.Item) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	var failed error
	eventually(t, "the log is read", func() bool {
		r, err := l.Reader(ctx, 0)
		if err != nil {
			failed = err
			return false
		}
		defer r.Close()
		for all = nil; ; {
			items, err := r.Next(ctx, regions.ReadLimit{Records: 500, Bytes: 1 << 20})
			if err != nil {
				t.Log(err)
				return false
			}
			if len(items) == 0 {
				return true
			}
			all = append(all, items...)
		}
	})
	if failed != nil {
		t.Log(failed)
	}
	return all
}

// checkLog reads the log and holds it against what producers were told: everything
// acknowledged is there once, in dense order, under terms that never go back.
func checkLog(t testing.TB, l regions.Log, acked []regions.Stored) {
	t.Helper()
	items := readPatiently(t, l)
	byID, term := map[string]regions.Item{}, uint64(0)
	for i, it := range items {
		if it.Sequence != uint64(i+1) || it.Gap != nil || it.Term < term {
			t.Fatalf("item %d is %d under term %d after %d, gap %v", i+1, it.Sequence, it.Term, term, it.Gap)
		}
		if _, twice := byID[it.Record.ID]; twice {
			t.Fatalf("id %s is there twice", it.Record.ID)
		}
		byID[it.Record.ID], term = it, it.Term
	}
	for i, s := range acked {
		if it := byID[record(i).ID]; s.Err == nil && it.Sequence != s.Position.Sequence {
			t.Fatalf("record %d was acknowledged at %d and is at %d", i, s.Position.Sequence, it.Sequence)
		}
	}
}

// Three nodes make one region: one holds the seat, an acknowledgement means two disks,
// and whoever holds the seat next has everything, under a higher term.
func TestRA1_QuorumAppendsAndReads(t *testing.T) {
	r := fabrictest.NewTrio(t)
	r.Start()
	d := newDesk(t, r, "orders@here")
	stored := d.append(0, 2000)
	if s := stored[0]; s.Done != api.Disk2of3 || s.Term < 2 {
		t.Fatalf("%+v", s)
	}
	checkLog(t, d.log(), stored)
	holder := r.Holder()
	old, before := r.Node(holder), d.log()
	first, _ := old.Seat()
	if err := old.StepDown(context.Background()); err != nil {
		t.Log(err)
	}
	more := d.append(1999, 2100)
	next := r.Node(r.Holder())
	second, _ := next.Seat()
	if !more[0].Duplicate || more[1].Term <= stored[0].Term || second.Term <= first.Term || next.ID() == "" || next.ID() != old.ID() {
		t.Fatalf("%+v %+v, seats %+v %+v", more[0], more[1], first, second)
	}
	checkLog(t, d.log(), append(stored, more[1:]...))
	wantCode(t, appendMany(t, before, 5000, 5001)[0].Err, api.NotReady)
	if h := next.Health(); h.Mode != "quorum" || len(h.Members) != 3 {
		t.Fatalf("%+v", h)
	}
}

// Calls from node to node: the answer, errors with all they say, bounds.
func TestRT3_CallsBetweenNodesAreBounded(t *testing.T) {
	r := fabrictest.NewTrio(t)
	r.Start()
	r.Holder()
	a, b := r.Node("a"), r.Node("b")
	hold, entered := make(chan struct{}), make(chan struct{}, fabric.MaxCalls)
	b.Serve("echo", func(_ context.Context, from string, body []byte) ([]byte, error) {
		return append([]byte(from+":"), body...), nil
	})
	b.Serve("refuse", func(context.Context, string, []byte) ([]byte, error) {
		return nil, &api.Error{Code: api.StorageFull, Op: "append", Topic: "t", Field: "f", Hint: "the way\r\nout", RetryAfter: time.Minute}
	})
	b.Serve("break", func(context.Context, string, []byte) ([]byte, error) { return nil, errors.New("secret") })
	b.Serve("wait", func(ctx context.Context, _ string, _ []byte) ([]byte, error) {
		entered <- struct{}{}
		select {
		case <-hold:
		case <-ctx.Done():
		}
		return nil, nil
	})
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	body := bytes.Repeat([]byte{7}, fabric.MaxCallBody-10)
	if got, err := a.Call(ctx, "b", "echo", body); err != nil || !bytes.Equal(got, append([]byte("a:"), body...)) {
		t.Fatalf("%d bytes, %v", len(got), err)
	}
	_, err := a.Call(ctx, "b", "refuse", nil)
	var e *api.Error
	if !errors.As(err, &e) || e.Code != api.StorageFull || e.Hint != "the way\r\nout" || e.RetryAfter != time.Minute || e.Topic != "t" || e.Field != "f" {
		t.Fatalf("%+v", e)
	}
	_, err = a.Call(ctx, "b", "break", nil)
	wantCode(t, err, api.OutcomeUnknown)
	_, err = a.Call(ctx, "b", "nothing", nil)
	wantCode(t, err, api.NotReady)
	_, err = a.Call(ctx, "x", "echo", nil)
	wantCode(t, err, api.BadRequest)

	var wg sync.WaitGroup
	big := fabric.MaxCallBytes / fabric.MaxCallBody
	for range big {
		wg.Go(func() { _, _ = a.Call(ctx, "b", "wait", make([]byte, fabric.MaxCallBody)) })
	}
	for range big {
		<-entered
	}
	_, err = a.Call(ctx, "b", "echo", []byte{1})
	wantCode(t, err, api.Overloaded)
	close(hold)
	wg.Wait()
	if _, err = a.Call(ctx, "b", "echo", []byte{1}); err != nil {
		t.Fatal(err)
	}
	b.Serve("hang", func(ctx context.Context, _ string, _ []byte) ([]byte, error) {
		entered <- struct{}{}
		<-ctx.Done()
		return nil, ctx.Err()
	})
	asked := make(chan error, 1)
	go func(c *fabric.Fabric) { _, err := c.Call(ctx, "b", "hang", nil); asked <- err }(r.Node("c"))
	<-entered
	if err := r.Close("c"); err != nil {
		t.Log(err)
	}
	wantCode(t, <-asked, api.OutcomeUnknown) // it was asked; that the asker went says nothing
	r.Cut("b")
	late, stop := context.WithTimeout(ctx, 200*time.Millisecond)
	defer stop()
	_, err = a.Call(late, "b", "echo", nil)
	wantCode(t, err, api.OutcomeUnknown)
	r.Heal("b")
	if err := r.Close("b"); err != nil {
		t.Log(err)
	}
	eventually(t, "a closed node is not asked", func() bool {
		_, err := a.Call(ctx, "b", "echo", nil)
		return api.CodeOf(err) == api.NotReady
	})
}

// What is in flight when the region falls below its quorum is unknown, what comes after is
// refused, both soon; when the nodes are back, a retry of the same id is one record.
func TestRA4_BelowQuorumRefused(t *testing.T) {
	r := fabrictest.NewTrio(t)
	r.Start()
	d := newDesk(t, r, "orders@here")
	stored := d.append(0, 500)
	l, holder := d.log(), r.Holder()
	f := r.Node(holder)
	r.Cut(holder)
	start := time.Now()
	for i, s := range appendMany(t, l, 500, 700) {
		if code := api.CodeOf(s.Err); code != api.OutcomeUnknown && code != api.NotReady {
			t.Fatalf("record %d: %v", i, s.Err)
		}
	}
	if took := time.Since(start); took > 6*time.Second {
		t.Fatalf("unknown after %v", took)
	}
	refused := appendMany(t, l, 700, 701)[0]
	wantCode(t, refused.Err, api.NotReady)
	t.Logf("unknown and refused after %v: %v", time.Since(start), refused.Err)
	if h := f.Health(); h.Quorum {
		t.Errorf("the cut node claims a quorum: %+v", h)
	}
	r.Heal(holder)
	retried := d.append(500, 701)
	checkLog(t, d.log(), append(stored, retried...))
	if n := d.log().Head().Sequence; n != 701 {
		t.Fatalf("%d records", n)
	}
}
