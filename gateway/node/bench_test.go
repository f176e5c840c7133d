package node_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"domicile/api"
	"domicile/api/client"
	"domicile/chaos/lab"
	"domicile/regions/link"
)

const benchWindow, benchRecords, benchBody = 4000, 20000, 1024

// BenchmarkDurablePublish sets durable publishes through the gRPC door against
// nats.go's PublishAsync into a broker that does not sync (R1, file, its defaults),
// interleaved in one run. The ratio is the figure to look at.
func BenchmarkDurablePublish(b *testing.B) {
	l := openLab(b)
	door := openClient(b, l, "us-east")
	publisher := door.NewPublisher(client.Window{Records: benchWindow})
	defer publisher.Close(context.Background())
	plain := plainBroker(b)
	var ratios, rates []float64
	round := 0
	for b.Loop() {
		p := publishPlain(b, plain)
		d := publishDurable(b, publisher, round)
		round++
		ratios = append(ratios, p.Seconds()/d.Seconds())
		rates = append(rates, benchRecords/d.Seconds())
	}
	b.ReportMetric(median(ratios), "ratio")
	b.ReportMetric(median(rates), "records/s")
}

// BenchmarkBlackHole reports the 99th percentile of publishes to us-east's own log
// without and with a black hole at eu-west that other records are sent into.
func BenchmarkBlackHole(b *testing.B) {
	l := openLab(b)
	door := openClient(b, l, "us-east")
	local, remote := door.NewPublisher(client.Window{Records: 256}), door.NewPublisher(client.Window{Records: 256})
	defer local.Close(context.Background())
	defer remote.Close(context.Background())
	var before, during []float64
	round := 0
	for b.Loop() {
		before = append(before, tail99(b, local, round))
		if err := l.Cut("eu-west", link.BlackHole, time.Minute); err != nil {
			b.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		for i := range 256 {
			remote.Publish(ctx, order(fmt.Sprintf("hole-%d-%d", round, i), "eu"), func(api.Ack, error) {})
		}
		during = append(during, tail99(b, local, round+1_000_000))
		cancel()
		l.Heal()
		round++
	}
	b.ReportMetric(median(before), "p99-ms-healthy")
	b.ReportMetric(median(during), "p99-ms-black-hole")
}

func tail99(b *testing.B, p *client.Publisher, round int) float64 {
	var mu sync.Mutex
	var took []time.Duration
	for i := range 2000 {
		start := time.Now()
		p.Publish(context.Background(), order(fmt.Sprintf("own-%d-%d", round, i), "us"), func(_ api.Ack, err error) {
			if err != nil {
				b.Error(err)
			}
			mu.Lock()
			took = append(took, time.Since(start))
			mu.Unlock()
		})
	}
	if err := p.Flush(context.Background()); err != nil {
		b.Fatal(err)
	}
	slices.Sort(took)
	return took[len(took)*99/100].Seconds() * 1000
}

func publishDurable(b *testing.B, p *client.Publisher, round int) time.Duration {
	body := make([]byte, benchBody)
	start := time.Now()
	for i := range benchRecords {
		r := api.Record{ID: fmt.Sprintf("bench-%d-%d", round, i), Topic: "health.records", Body: body,
			Tags: []api.Tag{{Name: "class", Value: "health"}, {Name: "residency", Value: "us"}}}
		p.Publish(context.Background(), r, func(_ api.Ack, err error) {
			if err != nil {
				b.Error(err)
			}
		})
	}
	if err := p.Flush(context.Background()); err != nil {
		b.Fatal(err)
	}
	return time.Since(start)
}

func plainBroker(b *testing.B) jetstream.JetStream {
	s, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: -1, JetStream: true, StoreDir: b.TempDir(), NoSigs: true, NoLog: true})
	if err != nil {
		b.Fatal(err)
	}
	s.Start()
	b.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	if !s.ReadyForConnections(10 * time.Second) {
		b.Fatal("the broker did not start")
	}
	conn, err := nats.Connect(s.ClientURL())
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(conn.Close)
	js, err := jetstream.New(conn, jetstream.WithPublishAsyncMaxPending(benchWindow))
	if err != nil {
		b.Fatal(err)
	}
	if _, err := js.CreateStream(context.Background(), jetstream.StreamConfig{Name: "plain", Subjects: []string{"plain"}, MaxBytes: 2 << 30}); err != nil {
		b.Fatal(err)
	}
	return js
}

func publishPlain(b *testing.B, js jetstream.JetStream) time.Duration {
	body := make([]byte, benchBody)
	start := time.Now()
	for range benchRecords {
		if _, err := js.PublishAsync("plain", body, jetstream.WithStallWait(10*time.Second)); err != nil {
			b.Fatal(err)
		}
	}
	<-js.PublishAsyncComplete()
	return time.Since(start)
}

func openLab(tb testing.TB) *lab.Lab {
	tb.Helper()
	l, err := lab.Open(context.Background(), lab.Options{})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := l.Close(context.Background()); err != nil {
			tb.Error(err)
		}
	})
	return l
}

func openClient(tb testing.TB, l *lab.Lab, region string) *client.Client {
	tb.Helper()
	c, err := client.New(client.Config{Addresses: []string{l.Region(region).Node().Door()}})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = c.Close() })
	return c
}

func order(id, residency string) api.Record {
	return api.Record{ID: id, Topic: "orders", Body: []byte("an order"),
		Tags: []api.Tag{{Name: "class", Value: "order"}, {Name: "residency", Value: residency}}}
}

func median(x []float64) float64 {
	slices.Sort(x)
	return x[len(x)/2]
}
