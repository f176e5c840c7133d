package fabric_test

import (
	"context"
	"sort"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"domicile/api"
	"domicile/regions"
	"domicile/regions/fabric"
	"domicile/regions/fabric/fabrictest"
)

const benchWindow, benchRecords, benchBody = 4000, 20000, 1024

// BenchmarkDurableAppend sets durable appends against nats.go's PublishAsync without
// any sync, on the same broker, interleaved in one run. The ratio is the figure to
// look at: 1 means that durability costs nothing.
func BenchmarkDurableAppend(b *testing.B) {
	f := fabrictest.Open(b, func(c *fabric.Config) { c.MaxStore = 8 << 30 })
	l, err := f.Home(context.Background(), fabric.LogConfig{ID: mustID(b, "bench@here"), Epoch: api.StaticEpoch("here"), MaxBytes: 2 << 30})
	if err != nil {
		b.Fatal(err)
	}
	js, err := jetstream.New(f.JetStream().Conn(), jetstream.WithPublishAsyncMaxPending(benchWindow))
	if err != nil {
		b.Fatal(err)
	}
	if _, err := js.CreateStream(context.Background(), jetstream.StreamConfig{Name: "plain", Subjects: []string{"plain"}, MaxBytes: 2 << 30}); err != nil {
		b.Fatal(err)
	}
	var ratios, ours []float64
	next := 0
	for b.Loop() {
		plain := benchPlain(b, js)
		durable := benchAppend(b, l, next)
		next += benchRecords
		ratios = append(ratios, plain.Seconds()/durable.Seconds())
		ours = append(ours, benchRecords/durable.Seconds())
	}
	sort.Float64s(ratios)
	sort.Float64s(ours)
	b.ReportMetric(ratios[len(ratios)/2], "ratio")
	b.ReportMetric(ours[len(ours)/2], "records/s")
}

func benchPlain(b *testing.B, js jetstream.JetStream) time.Duration {
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

func benchAppend(b *testing.B, l regions.HomeLog, from int) time.Duration {
	body := make([]byte, benchBody)
	slots := make(chan struct{}, benchWindow)
	start := time.Now()
	for i := range benchRecords {
		slots <- struct{}{}
		r := record(from + i)
		r.Body = body
		l.Append(regions.Draft{Record: r, Revision: "7-abc"}, func(s regions.Stored) {
			if s.Err != nil {
				b.Error(s.Err)
			}
			<-slots
		})
	}
	for range benchWindow {
		slots <- struct{}{}
	}
	return time.Since(start)
}
