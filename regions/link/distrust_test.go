package link_test

import (
	"context"
	"crypto/tls"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	pb "domicile/api/domicile/v1"
	"domicile/api/wire"
	"domicile/regions"
	"domicile/regions/identity"
)

// quietPeer is a peer that keeps no order: it opens a data lane and greets on it, and
// never sends a heartbeat.
func (l *lab) quietPeer(t *testing.T, self, to string) grpc.BidiStreamingClient[pb.ForwardRequest, pb.ForwardResponse] {
	t.Helper()
	cfg := l.identity(l.ca, identity.Region, self, time.Hour).ClientTLS(identity.Region, to)
	cfg.ServerName = "data." + self + ".link.domicile"
	conn := must(tls.Dial("tcp", l.addr[to], cfg))
	t.Cleanup(func() { conn.Close() })
	cc := must(grpc.NewClient("passthrough:///"+to, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(context.Context, string) (net.Conn, error) { return conn, nil }), grpc.WithDisableRetry()))
	t.Cleanup(func() { cc.Close() })
	peer := pb.NewPeerServiceClient(cc)
	hello := l.regions[self].hello
	hello.Region, hello.WireVersion, hello.OldestWire = self, regions.WireVersion, regions.OldestWireVersion
	must(peer.Hello(t.Context(), &pb.HelloRequest{Hello: wire.HelloToProto(hello)}))
	return must(peer.Forward(t.Context()))
}

// B55: the authority of a peer is taken away while only its data lane is in use. That
// one ends as soon as a control lane would, and no record is taken on it from then on.
func TestB55_DataLaneEndsWithItsAuthority(t *testing.T) {
	t.Parallel()
	l := newLab(t, 1, "eu-west", "us-east")
	old, next := l.ca, must(identity.NewCA("shop", time.Now(), time.Hour))
	dir := t.TempDir()
	d := onDisk{t, "eu-west", identity.Files{Cert: dir + "/cert.pem", Key: dir + "/key.pem", CA: dir + "/ca.pem"}}
	d.put(old, old)
	l.remake("eu-west", func(r *region) { r.config.Identity = must(identity.Load(d.files, regions.NewSteadyClock())) })
	l.start("eu-west")
	stream := l.quietPeer(t, "us-east", "eu-west")
	ask := func() error { // an empty forward: is anybody there?
		if err := stream.Send(&pb.ForwardRequest{}); err != nil {
			return err
		}
		_, err := stream.Recv()
		return err
	}
	for range 20 {
		if err := ask(); err != nil {
			t.Fatal(err)
		}
	}
	d.trust(next)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for began := time.Now(); ask() == nil; <-tick.C {
		if took := time.Since(began); took > 9*time.Second {
			t.Fatalf("%s after its authority was taken away the lane still answers", took)
		}
	}
}

// The same for a lane that was dialed: the peer showed a certificate of the old
// authority on the data lane alone, and the session is made anew for that.
func TestB55_DialedDataLaneEndsWithItsAuthority(t *testing.T) {
	t.Parallel()
	l := newLab(t, 1, "eu-west", "us-east")
	old, next := l.ca, must(identity.NewCA("shop", time.Now(), time.Hour))
	disk := func(name string) onDisk {
		dir := t.TempDir()
		return onDisk{t, name, identity.Files{Cert: dir + "/cert.pem", Key: dir + "/key.pem", CA: dir + "/ca.pem"}}
	}
	eu, us := disk("eu-west"), disk("us-east")
	eu.put(next, old, next)
	us.put(next, old, next)
	var dials atomic.Int64
	var renewed atomic.Bool
	for _, d := range []onDisk{eu, us} {
		l.remake(d.name, func(r *region) {
			r.config.Identity = must(identity.Load(d.files, regions.NewSteadyClock()))
			if d.name == "us-east" {
				r.config.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
					if dials.Add(1)%2 == 0 && !renewed.Load() { // the control lane has been greeted
						eu.renew(old)
					}
					return (&net.Dialer{}).DialContext(ctx, network, address)
				}
			}
		})
		l.start(d.name)
	}
	l.await("us-east", "eu-west", "up", isUp)
	l.await("eu-west", "us-east", "up", isUp)
	before := dials.Load()
	renewed.Store(true)
	eu.renew(next)
	us.trust(next)
	eventually(t, 3*time.Second, func() string {
		if dials.Load() == before {
			return "the lane that is no longer trusted still counts"
		}
		return ""
	})
	l.await("us-east", "eu-west", "up again", isUp)
}
