package client_test

import (
	"context"
	"net"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"domicile/api"
	"domicile/api/client"
	pb "domicile/api/domicile/v1"
	"domicile/api/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const wait = 30 * time.Second

// script is what a server does with the next record: an ack, an error, or one of the
// ways in which there is no answer.
type script func(id string) (*pb.Outcome, error)

var (
	acks    script = func(id string) (*pb.Outcome, error) { return ack(id), nil }
	silent  script = func(string) (*pb.Outcome, error) { return nil, nil }
	breaks  script = func(string) (*pb.Outcome, error) { return nil, status.Error(codes.Unavailable, "the wire broke") }
	refuses        = func(c api.Code) script {
		return func(string) (*pb.Outcome, error) {
			return &pb.Outcome{Result: &pb.Outcome_Error{Error: wire.StatusFromError(&api.Error{Code: c, Hint: "h"})}}, nil
		}
	}
)

func ack(id string) *pb.Outcome {
	return &pb.Outcome{Id: id, Result: &pb.Outcome_Ack{Ack: wire.AckToProto(api.Ack{ID: id, Region: "r", Sequence: 1})}}
}

// server is a door that follows a script, over a real socket.
type server struct {
	pb.UnimplementedPublisherServiceServer
	pb.UnimplementedReaderServiceServer
	addr   string
	credit uint64

	mu    sync.Mutex
	next  func(id string) script // of a record
	seen  []string               // ids, in the order they came
	tries []*pb.Retry            // with them
	reads []*pb.ReadRequest
	read  func(n int, q *pb.ReadRequest, out grpc.ServerStreamingServer[pb.ReadResponse]) error
	acked map[string]int
}

func serve(t *testing.T, next func(id string) script) *server {
	t.Helper()
	s := &server{next: next, credit: 1000, acked: map[string]int{}}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s.addr = l.Addr().String()
	g := grpc.NewServer(grpc.WaitForHandlers(true), grpc.MaxRecvMsgSize(16<<20))
	pb.RegisterPublisherServiceServer(g, s)
	pb.RegisterReaderServiceServer(g, s)
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = g.Serve(l)
	}()
	t.Cleanup(func() { g.Stop(); <-served })
	return s
}

// inTurn does one thing after the other, and the last for ever.
func inTurn(steps ...script) func(string) script {
	return func(string) script {
		s := steps[0]
		if len(steps) > 1 {
			steps = steps[1:]
		}
		return s
	}
}

func (s *server) do(id string, retry *pb.Retry) (*pb.Outcome, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seen = append(s.seen, id)
	s.tries = append(s.tries, retry)
	o, err := s.next(id)(id)
	if o.GetAck() != nil {
		s.acked[id]++
	}
	return o, err
}

func (s *server) ids() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string(nil), s.seen...)
}

func (s *server) Publish(ctx context.Context, req *pb.PublishRequest) (*pb.PublishResponse, error) {
	o, err := s.do(req.GetRecord().GetId(), req.GetRetry())
	switch {
	case err != nil:
		return nil, err
	case o == nil:
		<-ctx.Done()
		return nil, ctx.Err()
	case o.GetError() != nil:
		return nil, status.ErrorProto(o.GetError())
	}
	return &pb.PublishResponse{Ack: o.GetAck()}, nil
}

func (s *server) PublishStream(ss pb.PublisherService_PublishStreamServer) error {
	if err := ss.Send(&pb.PublishStreamResponse{Credit: &pb.Credit{Records: s.credit, Bytes: s.credit << 20}}); err != nil {
		return err
	}
	for {
		m, err := ss.Recv()
		if err != nil {
			return err
		}
		answer := &pb.PublishStreamResponse{Credit: &pb.Credit{Records: uint64(len(m.GetRecords())), Bytes: uint64(len(m.GetRecords())) << 20}}
		for _, n := range m.GetRecords() {
			o, err := s.do(n.GetRecord().GetId(), n.GetRetry())
			if err != nil {
				return err
			}
			if o != nil {
				o.Number = n.GetNumber()
				answer.Outcomes = append(answer.Outcomes, o)
			}
		}
		if err := ss.Send(answer); err != nil {
			return err
		}
	}
}

func (s *server) Read(q *pb.ReadRequest, out grpc.ServerStreamingServer[pb.ReadResponse]) error {
	s.mu.Lock()
	s.reads = append(s.reads, q)
	n := len(s.reads)
	s.mu.Unlock()
	return s.read(n, q, out)
}

func open(t *testing.T, attempts int, addresses ...string) *client.Client {
	t.Helper()
	c, err := client.New(client.Config{Addresses: addresses, Attempts: attempts})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func within(t testing.TB, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	t.Cleanup(cancel)
	return ctx
}

func record() api.Record {
	return api.Record{Topic: "orders", Tags: []api.Tag{{Name: "residency", Value: "eu"}}, Body: []byte("x")}
}
