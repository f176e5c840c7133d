package door_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"domicile/api"
	"domicile/api/client"
	pb "domicile/api/domicile/v1"
	"domicile/api/wire"
	"domicile/gateway"
	"domicile/gateway/door"
	"domicile/regions"
	"domicile/regions/fabric/fabrictest"
)

func TestRA1_PublishAndRead(t *testing.T) {
	r := newRig(t)
	d := r.open()
	c := r.client(nil, d)
	rec := order("us", "a book")
	rec.Headers = []api.Header{{Name: "trace", Value: "ü"}}
	rec.EventTime = time.Now()
	a, err := c.Publish(deadline(t), &rec)
	if err != nil || a.Region != "us-east" || a.Sequence != 1 || a.ID != rec.ID || a.ID == "" || a.Durability != api.Disk1 {
		t.Fatalf("%+v %v", a, err)
	}
	again, err := c.Publish(deadline(t), &rec)
	if err != nil || !again.Duplicate || again.Sequence != 1 {
		t.Fatalf("%+v %v", again, err)
	}
	var got []*pb.ReadRecord
	err = c.Read(deadline(t), &pb.ReadRequest{Topic: "orders"}, func(b *pb.ReadResponse) error {
		got = append(got, b.GetRecords()...)
		if len(b.GetLogs()) != 1 || b.GetLogs()[0].GetState() != "HOME" || !b.GetLogs()[0].GetStalenessKnown() {
			t.Errorf("states %v", b.GetLogs())
		}
		return nil
	})
	if err != nil || len(got) != 1 || string(got[0].GetRecord().GetBody()) != "a book" || got[0].GetRecord().GetHeaders()[0].GetValue() != "ü" {
		t.Fatalf("%v %v", got, err)
	}
}

// TestRA5_PipelinedRecordsGetOneOutcomeEach publishes over one stream and compares
// with what is on disk.
func TestRA5_PipelinedRecordsGetOneOutcomeEach(t *testing.T) {
	r := newRig(t)
	c := r.client(nil, r.open())
	p := c.NewPublisher(client.Window{})
	const n = 3_000
	outcomes := make([]int, n)
	sequences := map[uint64]int{}
	var mu sync.Mutex
	for i := range n {
		rec := order("us", fmt.Sprint(i))
		rec.ID = fmt.Sprint("id-", i)
		p.Publish(deadline(t), rec, func(a api.Ack, err error) {
			mu.Lock()
			defer mu.Unlock()
			outcomes[i]++
			if err != nil {
				t.Errorf("record %d: %v", i, err)
			}
			sequences[a.Sequence] = i
		})
	}
	if err := p.Close(deadline(t)); err != nil {
		t.Fatal(err)
	}
	for i, o := range outcomes {
		if o != 1 {
			t.Fatalf("record %d has %d outcomes", i, o)
		}
	}
	items := fabrictest.ReadAll(t, r.home, 0)
	if len(items) != n {
		t.Fatalf("%d on disk", len(items))
	}
	for i := range items {
		if want := fmt.Sprint("id-", sequences[items[i].Sequence]); items[i].Record.ID != want {
			t.Fatalf("sequence %d is %s, acked as %s", items[i].Sequence, items[i].Record.ID, want)
		}
		if items[i].Record.ID != fmt.Sprint("id-", i) {
			t.Fatalf("one stream, no refusal, yet out of order: %s at %d", items[i].Record.ID, i)
		}
	}
}

func dial(t *testing.T, d *door.Server, more ...grpc.DialOption) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient(d.Addr().String(), append(more, grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

func numbered(n uint64, rec api.Record) *pb.PublishStreamRequest {
	return &pb.PublishStreamRequest{Records: []*pb.NumberedRecord{{Number: n, Record: wire.RecordToProto(&rec)}}}
}

// TestRT3_ABlackHoleHoldsNoCreditOfOtherHomes: on one stream, more records than the
// credit are stuck on their way to eu-west; records for this region go through.
func TestRT3_ABlackHoleHoldsNoCreditOfOtherHomes(t *testing.T) {
	r := newRig(t)
	stream, err := pb.NewPublisherServiceClient(dial(t, r.open())).PublishStream(deadline(t))
	if err != nil {
		t.Fatal(err)
	}
	credit, acked, refused := uint64(0), map[uint64]bool{}, 0
	take := func() {
		m, err := stream.Recv()
		if err != nil {
			t.Fatal(err)
		}
		credit += m.GetCredit().GetRecords()
		for _, o := range m.GetOutcomes() {
			if o.GetAck() != nil {
				acked[o.GetNumber()] = true
			} else {
				refused++
			}
		}
	}
	send := func(n uint64, rec api.Record) {
		for credit == 0 {
			take()
		}
		credit--
		if err := stream.Send(numbered(n, rec)); err != nil {
			t.Fatal(err)
		}
	}
	for n := range uint64(2 * door.StreamRecords) {
		send(n, order("eu", "stuck"))
	}
	for n := range uint64(100) {
		send(1_000_000+n, order("us", "through"))
	}
	for n := range uint64(100) {
		for !acked[1_000_000+n] {
			take()
		}
	}
	if len(acked) != 100 || r.hole.holds() != 4096 || refused > door.StreamRecords {
		t.Errorf("acked %d, held %d, refused %d", len(acked), r.hole.holds(), refused)
	}
	r.hole.release()
	if err := stream.CloseSend(); err != nil {
		t.Fatal(err)
	}
	for len(acked) < 100+4096 {
		take() // the end of the client's side takes no outcome away
	}
}

// stuck is a log whose writer answers nothing until it is let go.
type stuck struct {
	regions.HomeLog
	free chan struct{}
}

func (s stuck) Append(_ regions.Draft, done func(regions.Stored)) {
	go func() {
		<-s.free
		done(regions.Stored{Err: &api.Error{Code: api.OutcomeUnknown}})
	}()
}

func TestRT3_AClientThatOverrunsItsCreditIsRefused(t *testing.T) {
	r := newRig(t)
	free := make(chan struct{})
	defer close(free)
	r.home = stuck{r.home, free}
	d := r.open()
	for name, c := range map[string]struct {
		body    int
		message int // records in each of two messages
	}{"by records": {1, door.StreamRecords/2 + 1}, "by bytes": {1 << 20, 5}} {
		stream, err := pb.NewPublisherServiceClient(dial(t, d)).PublishStream(deadline(t))
		if err != nil {
			t.Fatal(err)
		}
		rec := order("us", strings.Repeat("x", c.body))
		m := &pb.PublishStreamRequest{}
		for range c.message {
			m.Records = append(m.Records, &pb.NumberedRecord{Record: wire.RecordToProto(&rec)})
		}
		for range 2 {
			if err := stream.Send(m); err != nil {
				t.Fatal(err)
			}
		}
		for err == nil {
			_, err = stream.Recv()
		}
		if e := wire.ErrorFromGRPC(err); api.CodeOf(e) != api.Overloaded || !strings.Contains(e.Error(), "credit") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestRA5_CloseDeliversWhatIsInFlight(t *testing.T) {
	r := newRig(t)
	d := r.open()
	c := r.client(func(c *client.Config) { c.Attempts = 1 }, d)
	p := c.NewPublisher(client.Window{})
	outcomes := make(chan error, 10)
	for range 10 {
		p.Publish(deadline(t), order("eu", "x"), func(_ api.Ack, err error) { outcomes <- err })
	}
	eventually(t, "the records are on their way", func() bool { return r.hole.holds() == 10 })
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		r.close(d)
	}()
	r.hole.release()
	for range 10 {
		if err := <-outcomes; err != nil {
			t.Errorf("an outcome was lost: %v", err)
		}
	}
	<-closed
	p.Publish(deadline(t), order("us", "x"), func(_ api.Ack, err error) { outcomes <- err })
	short, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	_ = p.Close(short)
	if err := <-outcomes; err == nil {
		t.Error("a closed door took a record")
	}
}

// TestClientUsesAnotherAddress: a region has several doors; one that dies costs no
// record.
func TestRA5_AClientGoesOnAtAnotherAddress(t *testing.T) {
	r := newRig(t)
	first, second := r.open(), r.open()
	c := r.client(nil, first, second)
	p := c.NewPublisher(client.Window{Records: 256})
	var open sync.WaitGroup
	for i := range 2_000 {
		if i == 500 {
			ended, cancel := context.WithCancel(context.Background())
			cancel()
			_ = first.Close(ended) // cut, with records in flight
		}
		open.Add(1)
		rec := order("us", fmt.Sprint(i))
		rec.ID = fmt.Sprint("id-", i)
		p.Publish(deadline(t), rec, func(_ api.Ack, err error) {
			defer open.Done()
			if err != nil {
				t.Errorf("record %d: %v", i, err)
			}
		})
	}
	open.Wait()
	if err := p.Close(deadline(t)); err != nil {
		t.Error(err)
	}
	seen := map[string]int{}
	for _, item := range fabrictest.ReadAll(t, r.home, 0) {
		seen[item.Record.ID]++
	}
	for id, n := range seen {
		if n != 1 {
			t.Errorf("%s is stored %d times", id, n)
		}
	}
	if len(seen) != 2_000 {
		t.Errorf("%d records on disk", len(seen))
	}
}

func TestVerdictsKeepTheirCodeOverTheDoor(t *testing.T) {
	r := newRig(t)
	d := r.open()
	raw := pb.NewPublisherServiceClient(dial(t, d))
	for name, c := range map[string]struct {
		change func(*api.Record)
		code   api.Code
	}{
		"unknown tag":        {func(r *api.Record) { r.Tags[0].Value = "EU" }, api.UnknownTag},
		"unknown topic":      {func(r *api.Record) { r.Topic = "order" }, api.UnknownTopic},
		"empty body":         {func(r *api.Record) { r.Body = nil }, api.BodyEmpty},
		"body over the cap":  {func(r *api.Record) { r.Body = make([]byte, api.MaxBody+1) }, api.BodyTooLarge},
		"control characters": {func(r *api.Record) { r.Headers = []api.Header{{Name: "h", Value: "\x00"}} }, api.BadHeader},
	} {
		rec := order("us", "x")
		c.change(&rec)
		_, err := raw.Publish(deadline(t), &pb.PublishRequest{Record: wire.RecordToProto(&rec)})
		if got := wire.ErrorFromGRPC(err); api.CodeOf(got) != c.code {
			t.Errorf("%s: %v", name, got)
		}
	}
	twice := order("us", "x")
	twice.ID = "twice"
	if _, err := raw.Publish(deadline(t), &pb.PublishRequest{Record: wire.RecordToProto(&twice)}); err != nil {
		t.Fatal(err)
	}
	twice.Body = []byte("y")
	if _, err := raw.Publish(deadline(t), &pb.PublishRequest{Record: wire.RecordToProto(&twice)}); api.CodeOf(wire.ErrorFromGRPC(err)) != api.IDReused {
		t.Errorf("an id again with another body: %v", err)
	}
	// Text that is not UTF-8 cannot even be sent; the client says which field it is.
	rec := order("us", "x")
	rec.Headers = []api.Header{{Name: "h", Value: "\xff"}}
	if _, err := r.client(nil, d).Publish(deadline(t), &rec); api.CodeOf(err) != api.BadHeader {
		t.Errorf("got %v", err)
	}
}

// TestR14b_NothingOfARecordReachesALogLine publishes canaries in every way that goes
// wrong, and right, and looks through all log lines of the region.
func TestR14b_NothingOfARecordReachesALogLine(t *testing.T) {
	r := newRig(t)
	d := r.open()
	c := r.client(func(c *client.Config) { c.Attempts = 1 }, d)
	for i, change := range []func(*api.Record){
		func(*api.Record) {},
		func(r *api.Record) { r.Tags[0].Value = "EU" },
		func(r *api.Record) { r.Topic = "other" },
		func(r *api.Record) { r.Headers = append(r.Headers, api.Header{Name: "canary name", Value: "x"}) },
		func(r *api.Record) { r.Body = []byte("another canary body") },
	} {
		rec := order("us", "canary-body")
		rec.ID, rec.Key, rec.Headers = "canary-id", "canary-key", []api.Header{{Name: "h", Value: "canary-header"}}
		change(&rec)
		if _, err := c.Publish(deadline(t), &rec); err != nil && strings.Contains(err.Error(), "canary") {
			t.Errorf("case %d: %v", i, err)
		}
	}
	r.close(d)
	if strings.Contains(r.log.String(), "canary") {
		t.Errorf("log lines:\n%s", r.log)
	}
}

func TestR14d_FollowersAreToldThatTheDoorCloses(t *testing.T) {
	r := newRig(t)
	d := r.open()
	stream, err := pb.NewReaderServiceClient(dial(t, d)).Read(deadline(t), &pb.ReadRequest{Topic: "orders", Follow: true})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // the first at once, the next with the tick
		if m, err := stream.Recv(); err != nil || len(m.GetLogs()) != 1 {
			t.Fatal(m, err)
		}
	}
	go r.close(d)
	for err == nil {
		_, err = stream.Recv()
	}
	if api.CodeOf(wire.ErrorFromGRPC(err)) != api.ShuttingDown {
		t.Errorf("got %v", err)
	}
}

func TestReadersGoOnWhenADoorDies(t *testing.T) {
	r := newRig(t)
	first, second := r.open(), r.open()
	c := r.client(nil, first, second)
	rec := order("us", "1")
	if _, err := c.Publish(deadline(t), &rec); err != nil {
		t.Fatal(err)
	}
	var got []string
	enough := errors.New("enough")
	err := c.Read(deadline(t), &pb.ReadRequest{Topic: "orders", Follow: true}, func(b *pb.ReadResponse) error {
		for _, x := range b.GetRecords() {
			got = append(got, string(x.GetRecord().GetBody()))
			if len(got) == 1 {
				r.close(first)
				next := order("us", "2")
				if _, err := c.Publish(deadline(t), &next); err != nil {
					t.Error(err)
				}
			}
		}
		if len(got) >= 2 {
			return enough
		}
		return nil
	})
	if !errors.Is(err, enough) || strings.Join(got, "") != "12" {
		t.Errorf("%v %v", got, err)
	}
}

func TestHealthFollowsTheDoor(t *testing.T) {
	r := newRig(t)
	d := r.open()
	m, err := healthpb.NewHealthClient(dial(t, d)).Check(deadline(t), &healthpb.HealthCheckRequest{})
	if err != nil || m.GetStatus() != healthpb.HealthCheckResponse_SERVING {
		t.Errorf("%v %v", m, err)
	}
}

func TestDevelopmentDoorsOpenOnLoopbackOnly(t *testing.T) {
	r := newRig(t)
	l, err := net.Listen("tcp", "0.0.0.0:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if _, err := door.New(door.Config{Listener: l, DevClass: "app", Region: "us-east", Federation: r.fed}); api.CodeOf(err) != api.ConfigInvalid {
		t.Errorf("got %v", err)
	}
	loop := listen(t)
	defer loop.Close()
	if _, err := door.New(door.Config{Listener: loop, Region: "us-east", Federation: r.fed}); api.CodeOf(err) != api.ConfigInvalid {
		t.Errorf("no class: %v", err)
	}
}

var _ door.Gateway = (*gateway.Gateway)(nil)
