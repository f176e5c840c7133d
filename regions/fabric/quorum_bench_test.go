package fabric_test

import (
	"context"
	"sort"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"domicile/api"
	"domicile/regions"
	"domicile/regions/fabric"
	"domicile/regions/fabric/fabrictest"
)

// BenchmarkQuorumAppend sets our appends in a quorum region against nats.go's PublishAsync
// to a stream of three replicas on the same brokers, both synced by the broker, interleaved
// in one run. The ratio is the figure to look at.
func BenchmarkQuorumAppend(b *testing.B) {
	r := fabrictest.NewTrio(b, func(c *fabric.Config) { c.MaxStore = 8 << 30 })
	r.Start()
	f := r.Node(r.Holder())
	l, err := f.Home(context.Background(), fabric.LogConfig{ID: mustID(b, "bench@here"), Epoch: api.StaticEpoch("here"), MaxBytes: 2 << 30})
	if err != nil {
		b.Fatal(err)
	}
	js, err := jetstream.New(f.JetStream().Conn(), jetstream.WithPublishAsyncMaxPending(benchWindow))
	if err != nil {
		b.Fatal(err)
	}
	if _, err := js.CreateStream(context.Background(), jetstream.StreamConfig{Name: "plain", Subjects: []string{"plain"},
		MaxBytes: 2 << 30, Replicas: regions.QuorumNodes}); err != nil {
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
