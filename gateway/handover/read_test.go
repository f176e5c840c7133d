package handover_test

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"time"

	"domicile/api"
	pb "domicile/api/domicile/v1"
	"domicile/api/wire"
	"domicile/gateway/handover"
	"domicile/regions"
)

// answering is a door without the seat whose calls are answered by a function.
func answering(t *testing.T, pace regions.Pace, call func(ctx context.Context, ask *wire.ReadOver) ([]byte, error)) *handover.Out {
	o := handover.NewOut(handover.OutConfig{Region: "eu-west", Clock: regions.NewSteadyClock(), Pace: pace, Logger: slog.New(slog.DiscardHandler),
		Call: func(ctx context.Context, node, kind string, body []byte) ([]byte, error) {
			ask, err := wire.DecodeReadOver(body)
			if err != nil || node != "b" || kind != handover.Reads || ask.Term != 7 || ask.Principal != who {
				t.Errorf("%s asked to %s: %+v %v", node, kind, ask, err)
			}
			return call(ctx, ask)
		}})
	t.Cleanup(func() { _ = o.Close(context.Background()) })
	o.SetHolder(handover.Holder{Node: "b", Term: 7})
	return o
}

// Each call goes on from the position of the batch before; counts run over the stream;
// a call that waits and finds too much is followed by one that fetches it.
func TestRA4_ReadGoesOnFromTheLastBatch(t *testing.T) {
	log := wire.LogToProto(api.LogID{Topic: "orders", Slot: "eu-west"})
	state := []*pb.LogState{{Log: log, WithheldFromReader: 2, Expired: 1}}
	one := []*pb.ReadRecord{{Record: &pb.Record{Id: "x"}, Log: log}}
	steps := []struct {
		position string // that is asked from
		wait     bool
		batch    *pb.ReadResponse
		ended    bool
	}{
		{"", false, &pb.ReadResponse{Position: "p1", Records: one, Logs: state}, false},
		{"p1", false, &pb.ReadResponse{Position: "p2", Logs: state}, false},
		{"p2", true, nil, false},
		{"p2", false, &pb.ReadResponse{Position: "p3", Records: one, Logs: state}, false},
		{"p3", false, &pb.ReadResponse{Position: "p4", Logs: state}, true},
	}
	step := 0
	o := answering(t, 1, func(_ context.Context, ask *wire.ReadOver) ([]byte, error) {
		s := steps[step]
		if ask.Request.GetPosition() != s.position || ask.Wait != s.wait {
			t.Errorf("step %d asks from %q, waits %v", step, ask.Request.GetPosition(), ask.Wait)
		}
		step++
		return wire.EncodeReadPart(s.batch, s.ended)
	})
	batches := uint64(0)
	if err := o.Read(t.Context(), &pb.ReadRequest{Topic: "orders", Follow: true}, who, func(b *pb.ReadResponse) error {
		batches++
		if s := b.GetLogs()[0]; s.GetWithheldFromReader() != 2*batches || s.GetExpired() != batches {
			t.Errorf("batch %d: %v", batches, s)
		}
		return nil
	}); err != nil || batches != 4 || step != len(steps) {
		t.Errorf("%d batches, %d calls, %v", batches, step, err)
	}
}

// RA5: a read that failed leaves nothing in doubt, whatever happened to its call.
func TestRA5_AReadThatFailsSaysToReadOn(t *testing.T) {
	for name, c := range map[string]struct {
		answer error
		want   api.Code
	}{
		"not reached":      {&api.Error{Code: api.NotReady, Op: "call node"}, api.NotReady},
		"not answered":     {&api.Error{Code: api.OutcomeUnknown, Op: "call node"}, api.NotReady},
		"no time":          {context.DeadlineExceeded, api.NotReady},
		"the holder's own": {&api.Error{Code: api.CursorAhead, Op: "read"}, api.CursorAhead},
	} {
		o := answering(t, 1, func(context.Context, *wire.ReadOver) ([]byte, error) { return nil, c.answer })
		err := o.Read(t.Context(), &pb.ReadRequest{Topic: "orders"}, who, func(*pb.ReadResponse) error { return nil })
		if api.CodeOf(err) != c.want {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// RA1: readers end when the holder changes, also one whose call is never answered, and
// with nobody to ask they are refused at once.
func TestRA1_ReadersEndWithTheirHolder(t *testing.T) {
	asked := make(chan struct{}, 1)
	o := answering(t, 1, func(ctx context.Context, _ *wire.ReadOver) ([]byte, error) {
		asked <- struct{}{}
		<-ctx.Done()
		return nil, ctx.Err()
	})
	ended := make(chan error, 1)
	var group sync.WaitGroup
	defer group.Wait()
	read := func() error {
		return o.Read(t.Context(), &pb.ReadRequest{Topic: "orders", Follow: true}, who, func(*pb.ReadResponse) error { return errors.New("a batch") })
	}
	group.Go(func() { ended <- read() })
	<-asked
	o.SetHolder(handover.Holder{Reason: "below quorum"})
	select {
	case err := <-ended:
		if api.CodeOf(err) != api.NotReady {
			t.Error(err)
		}
	case <-time.After(30 * time.Second):
		t.Fatal("it goes on")
	}
	if err := read(); api.CodeOf(err) != api.NotReady {
		t.Error(err)
	}
	_ = o.Close(t.Context())
	if err := read(); api.CodeOf(err) != api.ShuttingDown {
		t.Error(err)
	}
}

// RT3: readers of one node are bounded, and so are the calls that bring them much.
func TestRT3_ReadersAreBounded(t *testing.T) {
	var mu sync.Mutex
	now, most := 0, 0
	o := answering(t, 100, func(ctx context.Context, _ *wire.ReadOver) ([]byte, error) {
		mu.Lock()
		now++
		most = max(most, now)
		mu.Unlock()
		<-ctx.Done()
		mu.Lock()
		now--
		mu.Unlock()
		return nil, ctx.Err()
	})
	ctx, cancel := context.WithCancel(t.Context())
	codes := make(chan api.Code, handover.MaxReaders+1)
	var group sync.WaitGroup
	for range handover.MaxReaders + 1 {
		group.Go(func() {
			codes <- api.CodeOf(o.Read(ctx, &pb.ReadRequest{Topic: "orders"}, who, func(*pb.ReadResponse) error { return nil }))
		})
	}
	if code := <-codes; code != api.Overloaded {
		t.Errorf("the first to end: %s", code)
	}
	cancel()
	group.Wait()
	mu.Lock()
	defer mu.Unlock()
	if most == 0 || most > 8 {
		t.Errorf("%d calls at once", most)
	}
}
