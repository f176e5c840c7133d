package link_test

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"testing"
	"time"

	"domicile/api"
	"domicile/regions"
	"domicile/regions/identity"
	"domicile/regions/link"
)

// benchPair is two regions with their link up.
func benchPair(b *testing.B) (from, to *region) {
	ca := must(identity.NewCA("shop", time.Now(), time.Hour))
	names := []string{"us-east", "eu-west"}
	listeners := map[string]net.Listener{}
	for _, n := range names {
		listeners[n] = must(net.Listen("tcp", "127.0.0.1:0"))
	}
	made := map[string]*region{}
	for i, n := range names {
		peer := names[1-i]
		cert, key, err := ca.Issue(identity.Region, n, time.Now(), time.Hour)
		if err != nil {
			b.Fatal(err)
		}
		r := &region{name: n, changes: make(chan struct{}, 1), hello: regions.Hello{Federation: "shop", FabricID: "f-" + n, BootID: "b-" + n}}
		r.config = link.Config{
			Self: n, Peers: map[string][]string{peer: {listeners[peer].Addr().String()}}, Listener: listeners[n], Handler: r,
			Identity: must(identity.New(cert, key, ca.CertPEM(), regions.NewSteadyClock())), Clock: regions.NewSteadyClock(),
			Logger: slog.New(slog.DiscardHandler), Hello: func() regions.Hello { return r.hello },
		}
		r.Mesh = must(link.New(r.config))
		r.Start(context.Background())
		b.Cleanup(func() { closeNow(r) })
		made[n] = r
	}
	for tick := time.NewTicker(time.Millisecond); !made["us-east"].link("eu-west").Up; {
		<-tick.C
	}
	return made["us-east"], made["eu-west"]
}

// BenchmarkForward is records of 1 KiB, pipelined to a home that acks at once.
func BenchmarkForward(b *testing.B) {
	from, _ := benchPair(b)
	window := make(chan struct{}, 2000)
	failed := make(chan error, 1)
	f := record("id", 1024)
	b.ReportAllocs()
	for b.Loop() {
		window <- struct{}{}
		from.Forward("eu-west", f, func(_ api.Ack, err error) {
			if err != nil {
				select {
				case failed <- err:
				default:
				}
			}
			<-window
		})
	}
	for range cap(window) {
		window <- struct{}{}
	}
	select {
	case err := <-failed:
		b.Fatal(err)
	default:
	}
}

// BenchmarkMirror is batches of 512 records of 1 KiB in one flow; an operation is a
// batch.
func BenchmarkMirror(b *testing.B) {
	from, to := benchPair(b)
	sink := &countSink{}
	to.mirror = func(string, regions.MirrorOpen) (link.MirrorSink, regions.MirrorReply) {
		return sink, regions.MirrorReply{}
	}
	ctx := context.Background()
	s := must(from.Mesh.OpenMirror(ctx, "eu-west", regions.MirrorOpen{Log: mirrored}))
	defer s.Close()
	must(s.Recv(ctx))
	work := batch(1, 512, 1024)
	replies := make(chan error)
	n := 0
	b.SetBytes(512 * 1024)
	for b.Loop() {
		if err := s.Send(ctx, work); err != nil {
			b.Fatal(err)
		}
		n++
		go func() { _, err := s.Recv(ctx); replies <- err }()
		if n > 8 {
			if err := <-replies; err != nil {
				b.Fatal(err)
			}
		}
	}
	for range min(n, 8) {
		if err := <-replies; err != nil {
			b.Fatal(err)
		}
	}
	if sink.batches != n {
		b.Fatal(fmt.Sprint(sink.batches, " of ", n, " batches arrived"))
	}
}

type countSink struct{ batches int }

func (c *countSink) Apply(context.Context, regions.MirrorBatch) regions.MirrorReply {
	c.batches++
	return regions.MirrorReply{}
}

func (c *countSink) Close() {}
