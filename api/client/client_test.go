package client_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"domicile/api"
	"domicile/api/client"
	pb "domicile/api/domicile/v1"
	"domicile/api/wire"
)

func TestRA5_OneRecordIsSentAgainByCode(t *testing.T) {
	for name, c := range map[string]struct {
		attempts int
		steps    []script
		code     api.Code
		sent     int
	}{
		"acked":                               {0, []script{acks}, "", 1},
		"states that pass":                    {0, []script{refuses(api.Overloaded), refuses(api.HomeUnreachable), acks}, "", 3},
		"unknown, then acked":                 {0, []script{breaks, acks}, "", 2},
		"refused by a rule":                   {0, []script{refuses(api.ResidencyDenied)}, api.ResidencyDenied, 1},
		"one attempt":                         {1, []script{refuses(api.Overloaded)}, api.Overloaded, 1},
		"two attempts":                        {2, []script{refuses(api.Overloaded)}, api.Overloaded, 2},
		"unknown, then a rule":                {0, []script{breaks, refuses(api.ResidencyDenied)}, api.OutcomeUnknown, 2},
		"unknown, then a state":               {2, []script{breaks, refuses(api.HomeUnreachable)}, api.OutcomeUnknown, 2},
		"a code from a newer version":         {1, []script{refuses("NEWER")}, api.OutcomeUnknown, 1},
		"a newer code says nothing, then one": {2, []script{refuses("NEWER"), refuses(api.Overloaded)}, api.OutcomeUnknown, 2},
	} {
		for _, way := range []string{"call", "stream"} {
			s := serve(t, inTurn(c.steps...))
			cl := open(t, c.attempts, s.addr)
			err := publishOne(t, cl, way)
			if api.CodeOf(err) != c.code {
				t.Errorf("%s by %s: got %v, want %s", name, way, err, c.code)
			}
			ids := s.ids()
			if len(ids) != c.sent || ids[0] == "" || slices.ContainsFunc(ids, func(id string) bool { return id != ids[0] }) {
				t.Errorf("%s by %s: sent %v, want %d times the same id", name, way, ids, c.sent)
			}
		}
	}
}

// TestRA5_ARetryNamesTheLogOfItsFirstTry: what an error says of the log that may hold a
// record goes with its next try, from the first such error on.
func TestRA5_ARetryNamesTheLogOfItsFirstTry(t *testing.T) {
	log := func(slot string) api.LogID {
		return api.LogID{Tenant: api.DefaultTenant, Topic: "orders", Slot: slot}
	}
	unknownIn := func(slot string) script {
		return func(string) (*pb.Outcome, error) {
			return &pb.Outcome{Result: &pb.Outcome_Error{Error: wire.StatusFromError(&api.Error{Code: api.OutcomeUnknown, Log: log(slot)})}}, nil
		}
	}
	for _, way := range []string{"call", "stream"} {
		s := serve(t, inTurn(refuses(api.Overloaded), breaks, unknownIn("eu-west"), unknownIn("eu-central"), refuses(api.ResidencyDenied)))
		err := publishOne(t, open(t, 0, s.addr), way)
		var e *api.Error
		if !errors.As(err, &e) || e.Code != api.OutcomeUnknown || e.Log != log("eu-west") {
			t.Errorf("by %s: told %v", way, err)
		}
		want := []api.Retry{{}, {}, {Again: true}, {Again: true, Log: log("eu-west")}, {Again: true, Log: log("eu-west")}}
		var got []api.Retry
		for _, r := range s.tries {
			got = append(got, wire.RetryFromProto(r))
		}
		if !slices.Equal(got, want) {
			t.Errorf("by %s: tries said %+v, want %+v", way, got, want)
		}
	}
	s := serve(t, inTurn(unknownIn("eu-west"), acks))
	c, rec := open(t, 1, s.addr), record()
	if _, err := c.Publish(within(t, wait), &rec); api.CodeOf(err) != api.OutcomeUnknown || rec.Retry.Log != log("eu-west") {
		t.Errorf("after %v the record says %+v", err, rec.Retry)
	}
	if _, err := c.Publish(within(t, wait), &rec); err != nil || !s.tries[1].ProtoReflect().IsValid() {
		t.Errorf("published again as it is: %v", err)
	}
}

func publishOne(t *testing.T, c *client.Client, way string) error {
	t.Helper()
	if way == "call" {
		rec := record()
		_, err := c.Publish(within(t, wait), &rec)
		return err
	}
	p := c.NewPublisher(client.Window{})
	out := make(chan error, 2)
	p.Publish(within(t, wait), record(), func(_ api.Ack, err error) { out <- err })
	if err := p.Close(within(t, wait)); err != nil {
		t.Error(err)
	}
	if len(out) != 1 {
		t.Fatalf("%d outcomes", len(out))
	}
	return <-out
}

func TestRT3_NothingWaitsForEver(t *testing.T) {
	s := serve(t, inTurn(silent))
	c := open(t, 0, s.addr)
	p := c.NewPublisher(client.Window{Records: 2})
	out := make(chan error, 3)
	done := func(_ api.Ack, err error) { out <- err }
	short := 300 * time.Millisecond
	p.Publish(within(t, short), record(), done)
	p.Publish(within(t, short), record(), done)
	start := time.Now()
	p.Publish(within(t, 50*time.Millisecond), record(), done) // the window is full
	if err := <-out; api.CodeOf(err) != api.Overloaded || time.Since(start) > wait/2 {
		t.Errorf("a full window: %v", err)
	}
	for range 2 {
		if err := <-out; api.CodeOf(err) != api.OutcomeUnknown {
			t.Errorf("no answer: %v", err)
		}
	}
	if err := p.Close(within(t, wait)); err != nil {
		t.Error(err)
	}
	p.Publish(within(t, short), record(), done)
	if err := <-out; api.CodeOf(err) != api.ShuttingDown {
		t.Errorf("after close: %v", err)
	}
	rec := record()
	if _, err := c.Publish(within(t, short), &rec); api.CodeOf(err) != api.OutcomeUnknown {
		t.Errorf("a call without an answer: %v", err)
	}
}

// TestRA2_NotSentIsNotUnknown: a record that never left is told so.
func TestRA2_NotSentIsNotUnknown(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	_ = l.Close() // nobody is there
	p := open(t, 0, address).NewPublisher(client.Window{})
	out := make(chan error, 2)
	p.Publish(within(t, 200*time.Millisecond), record(), func(_ api.Ack, err error) { out <- err })
	if err := <-out; api.CodeOf(err) != api.NotReady || api.CodeOf(err).Stored() != api.StoredNo {
		t.Errorf("got %v", err)
	}
	p.Publish(within(t, wait), record(), func(_ api.Ack, err error) { out <- err })
	if err := p.Close(within(t, 10*time.Millisecond)); err == nil {
		t.Error("close says that all is well")
	}
	if err := <-out; api.CodeOf(err) != api.NotReady {
		t.Errorf("at close: %v", err)
	}
}

func TestRD3_ABrokenStreamKeepsTheOrder(t *testing.T) {
	n := 0
	s := serve(t, func(string) script {
		if n++; n == 50 {
			return breaks
		}
		return acks
	})
	p := open(t, 0, s.addr).NewPublisher(client.Window{})
	for i := range 100 {
		rec := record()
		rec.ID = fmt.Sprintf("%03d", i)
		p.Publish(within(t, wait), rec, func(_ api.Ack, err error) {
			if err != nil {
				t.Errorf("%s: %v", rec.ID, err)
			}
		})
	}
	if err := p.Close(within(t, wait)); err != nil {
		t.Fatal(err)
	}
	var order []string // by the last time each was seen
	ids := s.ids()
	for i, id := range ids {
		if !slices.Contains(ids[i+1:], id) {
			order = append(order, id)
		}
	}
	if len(order) != 100 || !slices.IsSorted(order) {
		t.Errorf("%d, %v", len(order), order)
	}
}

// TestRA5_EveryRecordHasOneOutcome: whatever the server does, each record gets one
// outcome, an ack only if the server acked that id, and a refusal only if no try of
// it may have been stored.
func TestRA5_EveryRecordHasOneOutcome(t *testing.T) {
	for seed := range uint64(20) {
		random := rand.New(rand.NewPCG(seed, 0))
		attempts := random.IntN(4)
		broke := map[string]bool{}
		s := serve(t, func(id string) script {
			switch random.IntN(10) {
			case 0:
				broke[id] = true
				return breaks
			case 1:
				return refuses(api.Overloaded)
			case 2:
				return refuses(api.ResidencyDenied)
			case 3:
				broke[id] = true
				return silent
			}
			return acks
		})
		p := open(t, attempts, s.addr).NewPublisher(client.Window{Records: 8})
		var mu sync.Mutex
		outcomes := map[string][]error{}
		for i := range 30 {
			rec := record()
			rec.ID = fmt.Sprint(i)
			p.Publish(within(t, 400*time.Millisecond), rec, func(_ api.Ack, err error) {
				mu.Lock()
				defer mu.Unlock()
				outcomes[rec.ID] = append(outcomes[rec.ID], err)
			})
		}
		if err := p.Close(within(t, wait)); err != nil {
			t.Fatal(err)
		}
		s.mu.Lock()
		for i := range 30 {
			id := fmt.Sprint(i)
			o := outcomes[id]
			switch {
			case len(o) != 1:
				t.Fatalf("%s has %d outcomes", id, len(o))
			case o[0] == nil && s.acked[id] == 0:
				t.Fatalf("%s was never acked by the server", id)
			case o[0] != nil && api.CodeOf(o[0]) != api.OutcomeUnknown && (broke[id] || s.acked[id] > 0):
				t.Fatalf("%s may be stored, yet: %v", id, o[0])
			}
		}
		s.mu.Unlock()
	}
}

func TestRD1_AReadGoesOnFromTheLastBatch(t *testing.T) {
	s := serve(t, nil)
	s.read = func(n int, q *pb.ReadRequest, out grpc.ServerStreamingServer[pb.ReadResponse]) error {
		if err := out.Send(&pb.ReadResponse{Position: fmt.Sprint("p", n), Records: []*pb.ReadRecord{{Sequence: uint64(n)}}}); err != nil {
			return err
		}
		if n < 3 {
			return status.Error(codes.Unavailable, "the wire broke")
		}
		return nil
	}
	var got []uint64
	err := open(t, 0, s.addr).Read(within(t, wait), &pb.ReadRequest{Topic: "orders"}, func(b *pb.ReadResponse) error {
		got = append(got, b.GetRecords()[0].GetSequence())
		return nil
	})
	if err != nil || !slices.Equal(got, []uint64{1, 2, 3}) {
		t.Fatalf("%v %v", got, err)
	}
	for i, want := range []string{"", "p1", "p2"} {
		if s.reads[i].GetPosition() != want {
			t.Errorf("read %d starts at %q, want %q", i, s.reads[i].GetPosition(), want)
		}
	}
}

func TestAReadEndsWithTheCallersOwnError(t *testing.T) {
	s := serve(t, nil)
	s.read = func(_ int, _ *pb.ReadRequest, out grpc.ServerStreamingServer[pb.ReadResponse]) error {
		return out.Send(&pb.ReadResponse{})
	}
	own := errors.New("enough")
	if err := open(t, 0, s.addr).Read(within(t, wait), &pb.ReadRequest{}, func(*pb.ReadResponse) error { return own }); err != own {
		t.Errorf("got %v", err)
	}
}

func TestAdminThatIsNotThereIsNoUnknownOutcome(t *testing.T) {
	s := serve(t, nil)
	if _, err := open(t, 0, s.addr).Status(within(t, wait)); api.CodeOf(err) != api.BadRequest {
		t.Errorf("a port that serves no operators: %v", err)
	}
	if _, err := open(t, 0, "127.0.0.1:1").Status(within(t, wait)); api.CodeOf(err) != api.NotReady {
		t.Errorf("nobody there: %v", err)
	}
	if _, err := open(t, 0, "127.0.0.1:1").Reload(within(t, wait)); api.CodeOf(err) != api.OutcomeUnknown {
		t.Errorf("a reload without an answer: %v", err)
	}
}

func TestBadAddressesAreRefused(t *testing.T) {
	for _, addresses := range [][]string{nil, {"localhost"}, {"a:1", ""}} {
		if _, err := client.New(client.Config{Addresses: addresses}); api.CodeOf(err) != api.BadRequest {
			t.Errorf("%v: %v", addresses, err)
		}
	}
}
