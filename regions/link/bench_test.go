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
	window := make(chan struct{}, 8)
	over := make(chan error, 1)
	go func() {
		for stored := uint64(0); ; { // a batch may go in pieces, and each has a reply
			r, err := s.Recv(ctx)
			if err != nil {
				over <- err
				return
			}
			for ; stored+512 <= r.Cursor.Sequence; stored += 512 {
				<-window
			}
		}
	}()
	b.SetBytes(512 * 1024)
	n := 0
	for b.Loop() {
		window <- struct{}{}
		if err := s.Send(ctx, work); err != nil {
			b.Fatal(err)
		}
		n++
	}
	for range cap(window) {
		window <- struct{}{}
	}
	s.Close()
	<-over
	if sink.items != uint64(n)*512 {
		b.Fatal(fmt.Sprint(sink.items, " of ", n*512, " records arrived"))
	}
}

type countSink struct{ items uint64 }

func (c *countSink) Apply(_ context.Context, b regions.MirrorBatch) regions.MirrorReply {
	c.items += uint64(len(b.Items))
	return regions.MirrorReply{Cursor: regions.Cursor{Sequence: c.items}}
}

func (c *countSink) Close() {}
