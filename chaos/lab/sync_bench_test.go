package lab_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"domicile/api"
	"domicile/api/client"
	"domicile/chaos/lab"
)

// BenchmarkSyncAck reports what a second region costs an ack, over loopback: publishes to a
// topic with sync and to one without in turn, in one federation, 64 at a time.
func BenchmarkSyncAck(b *testing.B) {
	alone := strings.NewReplacer("orders:", "alone:", "sync: {within: eu, copies: 2, when_short: refuse},", "").Replace(syncedOrders)
	policies := func(dir string) error {
		err := boundedPolicies("eu, global")(dir)
		file := filepath.Join(dir, "catalog.yaml")
		text, readErr := os.ReadFile(file)
		both := strings.Replace(string(text), "topics: {", "topics: {alone: {allow: [{residency: [eu, global], class: [order]}], packages: [orders]}, ", 1)
		return errors.Join(err, readErr, os.WriteFile(file, []byte(both), 0o600))
	}
	l, err := lab.Open(b.Context(), lab.Options{Parent: b.TempDir(), Policies: policies, Pace: 1, Manifest: bounded(syncedOrders + "\n  " + alone)})
	if err != nil {
		b.Fatal(err)
	}
	defer l.Close(context.Background())
	if err := l.Linked(b.Context()); err != nil {
		b.Fatal(err)
	}
	c, err := l.Region("eu-west").Door(0)
	if err != nil {
		b.Fatal(err)
	}
	defer c.Close()
	publisher := c.NewPublisher(client.Window{Records: 64})
	defer publisher.Close(context.Background())
	took := map[string][]float64{}
	for round := 0; b.Loop(); round++ {
		for _, topic := range []string{"alone", "orders"} {
			took[topic] = append(took[topic], acks(b, publisher, topic, round)...)
		}
	}
	for topic, name := range map[string]string{"alone": "home", "orders": "both"} {
		slices.Sort(took[topic])
		b.ReportMetric(took[topic][len(took[topic])/2], name+"-p50-ms")
		b.ReportMetric(took[topic][len(took[topic])*99/100], name+"-p99-ms")
	}
}

// acks is how long each of 2,000 publishes took, in milliseconds.
func acks(b *testing.B, p *client.Publisher, topic string, round int) []float64 {
	const n = 2000
	var mu sync.Mutex
	var took []float64
	for i := range n {
		r := orderOf("eu", fmt.Sprintf("%s-%d-%d", topic, round, i))
		r.Topic, r.Body = topic, make([]byte, 1024)
		begin := time.Now()
		p.Publish(b.Context(), r, func(_ api.Ack, err error) {
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				b.Errorf("%s: %v", topic, err)
			}
			took = append(took, float64(time.Since(begin).Microseconds())/1000)
		})
	}
	if err := p.Flush(b.Context()); err != nil {
		b.Fatal(err)
	}
	return took
}
