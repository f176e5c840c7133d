package client_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/test/bufconn"

	"domicile/api"
	"domicile/api/client"
	pb "domicile/api/domicile/v1"
)

// entrance is a door that comes and goes, and notes who knocks. Its connections are in
// memory, so that time can be the test's.
type entrance struct {
	pb.UnimplementedPublisherServiceServer

	mu       sync.Mutex
	listener *bufconn.Listener // nil: nobody is there
	server   *grpc.Server
	knocks   []time.Time
}

func (e *entrance) Publish(_ context.Context, m *pb.PublishRequest) (*pb.PublishResponse, error) {
	return &pb.PublishResponse{Ack: ack(m.GetRecord().GetId()).GetAck()}, nil
}

func (e *entrance) open() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.listener, e.server = bufconn.Listen(16<<10), grpc.NewServer()
	pb.RegisterPublisherServiceServer(e.server, e)
	go func(s *grpc.Server, l net.Listener) { _ = s.Serve(l) }(e.server, e.listener)
}

// close ends the door as a kill does.
func (e *entrance) close() {
	e.mu.Lock()
	server := e.server
	e.listener, e.server = nil, nil
	e.mu.Unlock()
	server.Stop()
}

func (e *entrance) dial(ctx context.Context, _ string) (net.Conn, error) {
	e.mu.Lock()
	e.knocks = append(e.knocks, time.Now())
	l := e.listener
	e.mu.Unlock()
	if l == nil {
		return nil, syscall.ECONNREFUSED
	}
	return l.DialContext(ctx)
}

// after is how many knocks there were in each tenth of a second since begin.
func (e *entrance) after(begin time.Time) (slots map[time.Duration]int, all int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	slots = map[time.Duration]int{}
	for _, at := range e.knocks {
		if at.After(begin) {
			slots[at.Sub(begin).Truncate(100*time.Millisecond)]++
			all++
		}
	}
	return slots, all
}

// B31: a crowd of producers loses its door at the same moment: for half a minute, and
// twice more after a short success. No tenth of a second sees more than a tenth
// of them dial, nobody dials more often than every two seconds, and all publish again
// within ten seconds. Time is virtual: a busy machine changes nothing.
func TestB31_ACrowdDialsSpreadOut(t *testing.T) {
	if testing.Short() {
		t.Skip("under the race detector the runtime can end at a timer of the pipe that is due at once in virtual time: not with -short")
	}
	synctest.Test(t, func(t *testing.T) {
		const crowd = 800 // so many that chance plays no part
		e := &entrance{}
		e.open()
		ctx, cancel := context.WithCancel(t.Context())
		var trading sync.WaitGroup
		last := make([]atomic.Int64, crowd) // when the producer's last acknowledged record was published
		for i := range crowd {
			c, err := client.New(client.Config{Addresses: []string{"door:1"}, Dial: e.dial})
			if err != nil {
				t.Fatal(err)
			}
			trading.Go(func() {
				defer c.Close()
				for n := 0; ctx.Err() == nil; n++ {
					asked := time.Now()
					if _, err := c.Publish(ctx, &api.Record{ID: fmt.Sprint(i, "-", n), Topic: "orders", Body: []byte("x")}); err == nil {
						last[i].Store(asked.UnixNano())
					}
					pass(ctx, time.Second/2+rand.N(time.Second))
				}
			})
		}
		pass(ctx, 5*time.Second)
		begin := time.Now()
		for _, down := range []time.Duration{30 * time.Second, 5 * time.Second, time.Second} {
			e.close()
			pass(ctx, down)
			e.open()
			up := time.Now()
			pass(ctx, 10*time.Second)
			for i := range last {
				if last[i].Load() < up.UnixNano() {
					t.Errorf("after %s without a door and 10 s with one producer %d does not publish", down, i)
				}
			}
		}
		slots, all := e.after(begin)
		most := 0
		for at, n := range slots {
			if most = max(most, n); n > crowd/10 {
				t.Errorf("%d of %d dial in one tenth of a second, %s on", n, crowd, at)
			}
		}
		took := time.Since(begin)
		if bound := crowd * (3 + int(took/(2*time.Second))); all > bound {
			t.Errorf("%d dials in %s, at most %d", all, took, bound)
		}
		t.Logf("%d dials in %s, at most %d in a tenth of a second", all, took, most)
		cancel()
		trading.Wait()
		e.close()
	})
}

func pass(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
