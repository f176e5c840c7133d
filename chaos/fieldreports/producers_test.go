package fieldreports

import (
	"context"
	"fmt"
	"net"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"domicile/api/client"
	"domicile/chaos/invariant"
	"domicile/chaos/lab"
	"domicile/chaos/ledger"
)

const crowd = 60 // producers with a connection each

// B31: many producers lose their door at the same moment, several times. They do not
// dial without end, all publish again, nothing acknowledged is lost, and what the
// region and they hold is what it was before.
func TestB31_ACrowdOfProducersComesBack(t *testing.T) {
	d := start(t, lab.Options{})
	var dials tally
	clients := make([]*client.Client, crowd)
	address := d.lab.Region("us-east").Node().Door()
	for i := range clients {
		c, err := client.New(client.Config{Addresses: []string{address}, Dial: dials.dial})
		d.must(err)
		defer c.Close()
		clients[i] = c
	}
	d.round(clients, 0)
	d.gauges(ledger.LeakBase)
	base := dials.count()
	const flaps = 3
	down := time.Duration(0)
	for flap := range flaps {
		var producers sync.WaitGroup
		end := d.book.During(ledger.Step{Kind: ledger.Stop, Region: "us-east"})
		began := time.Now()
		d.must(d.lab.Region("us-east").Stop(t.Context()))
		producers.Go(func() { d.round(clients, flap+1) })
		d.poll("a second without a door", passed(began, time.Second))
		d.must(d.lab.Region("us-east").Start(t.Context()))
		end()
		producers.Wait()
		down += time.Since(began)
	}
	// With a delay that grows to two seconds nobody dials more often than this.
	if most := crowd * (6*flaps + int(down/time.Second)); dials.count()-base > most {
		t.Errorf("%d dials in %s without a door, at most %d", dials.count()-base, down, most)
	}
	d.must(d.lab.Linked(t.Context()))
	d.round(clients, flaps+1)
	d.gauges(ledger.LeakAgain)
	if v := d.settle(); v.Judged[invariant.NoLeak] == 0 {
		t.Error("nobody has looked for leaks")
	}
}

// round has each producer publish one record, until it is acknowledged.
func (d *drill) round(clients []*client.Client, n int) {
	d.Helper()
	var all sync.WaitGroup
	for i, c := range clients {
		all.Go(func() {
			r := record(fmt.Sprintf("producer-%d-%d", i, n), "orders", "us", []byte("x"))
			e := d.entry("us-east", r)
			ctx, cancel := context.WithTimeout(context.WithoutCancel(d.Context()), soon)
			defer cancel()
			e.Started = time.Now()
			ack, err := c.Publish(ctx, &r)
			e.Answer(ack, err, time.Now())
			d.book.Enter(e)
			if err != nil {
				d.Errorf("producer %d, round %d: %v", i, n, err)
			}
		})
	}
	all.Wait()
}

// gauges notes a point and, for some seconds, what the process holds.
func (d *drill) gauges(point ledger.StepKind) {
	d.Helper()
	d.book.Point(point)
	began := time.Now()
	d.poll("what the process holds", func() error {
		open, err := os.ReadDir("/proc/self/fd")
		d.must(err)
		for name, v := range map[string]int{ledger.Goroutines: runtime.NumGoroutine(), ledger.Descriptors: len(open)} {
			d.book.Note(ledger.Event{Gauge: &ledger.Gauge{Region: "all", Name: name, Value: float64(v)}})
		}
		return passed(began, 3*time.Second)()
	})
}

// tally counts dials.
type tally struct{ n atomic.Int64 }

func (t *tally) dial(ctx context.Context, address string) (net.Conn, error) {
	t.n.Add(1)
	return (&net.Dialer{}).DialContext(ctx, "tcp", address)
}

func (t *tally) count() int { return int(t.n.Load()) }
