package fieldreports

import (
	"context"
	"fmt"
	"math/rand/v2"
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

// producer is a client with a connection of its own that publishes all the time.
type producer struct {
	*client.Client
	number int
	asked  int
	acked  atomic.Int64 // when the last record that was acknowledged was published
}

// B31: a crowd of producers loses its door at the same moment, several times. They do
// not dial without end, all publish again within a minute, nothing acknowledged is lost,
// and what the region and they hold is what it was before. That their dials are spread
// out is shown in api/client, in virtual time.
func TestB31_ACrowdOfProducersComesBack(t *testing.T) {
	d := start(t, lab.Options{})
	us := d.lab.Region("us-east")
	var dials tally
	producers := make([]*producer, crowd)
	for i := range producers {
		c, err := client.New(client.Config{Addresses: []string{us.Node().Door()}, Dial: dials.dial})
		d.must(err)
		defer c.Close()
		producers[i] = &producer{Client: c, number: i}
	}
	d.trade(t.Context(), producers, 1)
	d.gauges(ledger.LeakBase)
	base := dials.count()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var trading sync.WaitGroup
	trading.Go(func() { d.trade(ctx, producers, 0) })
	const flaps = 3
	began := time.Now()
	for flap := range flaps {
		end := d.book.During(ledger.Step{Kind: ledger.Stop, Region: "us-east"})
		d.must(us.Stop(t.Context()))
		d.poll("a second without a door", passed(time.Now(), time.Second))
		d.must(us.Start(t.Context()))
		end()
		up := time.Now()
		d.poll("all publish again", func() error {
			for _, p := range producers {
				if p.acked.Load() < up.UnixNano() {
					return fmt.Errorf("producer %d does not", p.number)
				}
			}
			return nil
		})
		if took := time.Since(up); took > time.Minute {
			t.Errorf("flap %d: all publish again after %s", flap, took)
		}
	}
	cancel()
	trading.Wait()
	// After its first dial of a flap nobody dials more often than every two seconds.
	if most := crowd * (flaps + int(time.Since(began)/(2*time.Second))); dials.count()-base > most {
		t.Errorf("%d dials in %s, at most %d", dials.count()-base, time.Since(began), most)
	}
	d.must(d.lab.Linked(t.Context()))
	d.trade(t.Context(), producers, 1)
	d.gauges(ledger.LeakAgain)
	if v := d.settle(); v.Judged[invariant.NoLeak] == 0 {
		t.Error("nobody has looked for leaks")
	}
}

// trade has each producer publish one record after the other, each until it is
// acknowledged: so many, or with 0 until ctx ends.
func (d *drill) trade(ctx context.Context, producers []*producer, records int) {
	d.Helper()
	var all sync.WaitGroup
	for _, p := range producers {
		all.Go(func() {
			for n := 0; ctx.Err() == nil && (records == 0 || n < records); n++ {
				d.publishAs(p)
				pause := time.NewTimer(time.Second/2 + rand.N(time.Second))
				select {
				case <-pause.C:
				case <-ctx.Done():
				}
				pause.Stop()
			}
		})
	}
	all.Wait()
}

func (d *drill) publishAs(p *producer) {
	r := record(fmt.Sprintf("producer-%d-%d", p.number, p.asked), "orders", "us", []byte("x"))
	p.asked++
	e := d.entry("us-east", r)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(d.Context()), soon)
	defer cancel()
	e.Started = time.Now()
	ack, err := p.Publish(ctx, &r)
	e.Answer(ack, err, time.Now())
	d.book.Enter(e)
	if err != nil {
		d.Errorf("%s: %v", r.ID, err)
		return
	}
	p.acked.Store(e.Started.UnixNano())
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
