package schedule

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"domicile/api"
	"domicile/api/client"
	pb "domicile/api/domicile/v1"
	"domicile/chaos/lab"
	"domicile/chaos/ledger"
	"domicile/chaos/shop"
)

const (
	patience     = 4 * time.Second // how long a producer waits for its answer
	mistakeEvery = 40              // records between two rounds of mistakes
	maxInFlight  = 256             // records one region's producers have out; more are not sent
	sampleEvery  = 300 * time.Millisecond
	countEvery   = 2 * time.Second // each writes what was counted
)

// trade is the producers and consumers of one region.
type trade struct {
	run       *run
	region    string
	shop      *shop.Shop
	client    *client.Client
	publisher *client.Publisher

	counting sync.Mutex // readings follow each other: what a later one says is newer

	mu      sync.Mutex
	unknown []shop.Parcel // nobody could say
}

func (r *run) openTrade(region string) (*trade, error) {
	var doors []string
	for _, n := range r.field.Of(region) {
		doors = append(doors, n.Door())
	}
	c, err := client.New(client.Config{Addresses: doors, Attempts: 1})
	if err != nil {
		return nil, err
	}
	return &trade{run: r, region: region, shop: shop.New(region, r.field.Federation, r.tokens), client: c, publisher: c.NewPublisher(client.Window{})}, nil
}

func (t *trade) close(ctx context.Context) error {
	return errors.Join(t.publisher.Close(ctx), t.client.Close())
}

// produce publishes a record every interval until ctx ends; then it waits for the
// answers that are out.
func (t *trade) produce(ctx context.Context, interval time.Duration) {
	var out sync.WaitGroup
	defer out.Wait()
	slots := make(chan struct{}, maxInFlight)
	send := func(p shop.Parcel) {
		select {
		case slots <- struct{}{}:
			out.Go(func() { t.publish(context.WithoutCancel(ctx), p); <-slots })
		default:
		}
	}
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for n := 1; ; n++ {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		if p, ok := t.shop.Next(false); ok {
			send(p)
		}
		if n%mistakeEvery == 0 {
			for _, p := range t.shop.Mistakes() {
				send(p)
			}
		}
	}
}

// publish sends a record once and enters the answer.
func (t *trade) publish(ctx context.Context, p shop.Parcel) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	type answer struct {
		ack api.Ack
		err error
	}
	told := make(chan answer, 1)
	e := p.Entry
	e.Started = t.run.clock.Now()
	t.publisher.Publish(ctx, p.Record, func(ack api.Ack, err error) { told <- answer{ack, err} })
	a := <-told
	e.Answer(a.ack, a.err, t.run.clock.Now())
	t.run.book.Enter(e)
	t.run.remember(p, &e)
	if e.Outcome == ledger.Unknown {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.unknown = append(t.unknown, p)
	}
}

// askAgain publishes what nobody could say once more, under the same ids, and returns
// how many there were.
func (t *trade) askAgain(ctx context.Context) int {
	t.mu.Lock()
	list := t.unknown
	t.unknown = nil
	t.mu.Unlock()
	var out sync.WaitGroup
	slots := make(chan struct{}, maxInFlight)
	for _, p := range list {
		slots <- struct{}{}
		out.Go(func() { t.publish(ctx, p); <-slots })
	}
	out.Wait()
	return len(list)
}

// consume follows a topic at the region's door until ctx ends, with a new reader each
// time one gives up, and notes every batch.
func (t *trade) consume(ctx context.Context, topic string) {
	for n := 1; ctx.Err() == nil; n++ {
		reader := fmt.Sprintf("%s at %s, %d", topic, t.region, n)
		_ = t.client.Read(ctx, &pb.ReadRequest{Topic: topic, Follow: true}, func(m *pb.ReadResponse) error { // its end is no fault: the next reader starts
			t.run.book.Heard(reader, t.region, topic, m)
			return nil
		})
		if lab.Pass(ctx, sampleEvery) != nil {
			return
		}
	}
}

// sample notes what the region says of its lags and links until ctx ends. In a
// quorum region every node is asked.
func (t *trade) sample(ctx context.Context) {
	for lab.Pass(ctx, sampleEvery) == nil {
		for _, n := range t.run.field.Of(t.region) {
			desk, err := n.Desk()
			if err != nil {
				continue
			}
			asking, cancel := context.WithTimeout(ctx, sampleEvery)
			_ = desk.Lag(asking, &pb.LagRequest{}, func(m *pb.LagResponse) error { t.run.book.Told(m); return nil }) // a node that is down says nothing
			if status, err := desk.Status(asking); err == nil {
				t.run.book.Linked(status)
			}
			cancel()
			_ = desk.Close()
		}
	}
}

// count notes what the region says it has counted until ctx ends.
func (t *trade) count(ctx context.Context) {
	for lab.Pass(ctx, countEvery) == nil {
		_ = t.countOnce(ctx) // a node that is down says nothing
	}
}

// countOnce notes what all nodes of the region say they have counted, or an error.
func (t *trade) countOnce(ctx context.Context) error {
	t.counting.Lock()
	defer t.counting.Unlock()
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	began, c := t.run.clock.Now(), lab.NewCounts(t.region)
	for _, n := range t.run.field.Of(t.region) {
		desk, err := n.Desk()
		if err != nil {
			return err
		}
		err = lab.AddCounts(ctx, &c, desk, n.Metrics)
		if err = errors.Join(err, desk.Close()); err != nil {
			return err
		}
	}
	t.run.book.Counted(began, c)
	return nil
}

// remember keeps a record's tokens, and notes an answer that is wrong in any state of
// the world: a mistake that is taken, or a good record that is refused for good.
func (r *run) remember(p shop.Parcel, e *ledger.Entry) {
	r.mu.Lock()
	r.held[e.ID] = p.Tokens
	r.mu.Unlock()
	switch {
	case p.Want != "" && e.Outcome == ledger.Acked:
		r.finding(fmt.Errorf("a record that had to get %s was acknowledged", p.Want))
	case p.Want == "" && e.Outcome == ledger.Refused && !e.Code.Retryable():
		r.finding(fmt.Errorf("a record that had to be taken in %s was refused with %s", e.Asked, e.Code))
	}
}
