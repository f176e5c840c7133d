package failover

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"domicile/api"
	"domicile/api/client"
)

// ledger is what the producer was told. It is safe for concurrent use.
type ledger struct {
	mu    sync.Mutex
	next  int
	sent  map[string]bool    // ids that were ever handed in
	acks  map[string]api.Ack // the first of each id
	later map[string]api.Ack // those of ids that were acknowledged before, elsewhere
	open  []string           // to be sent again
	codes map[api.Code]int
}

func newLedger() *ledger {
	return &ledger{sent: map[string]bool{}, acks: map[string]api.Ack{}, later: map[string]api.Ack{}, codes: map[api.Code]int{}}
}

func (l *ledger) take(id string, ack api.Ack, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch _, known := l.acks[id]; {
	case err != nil:
		l.codes[api.CodeOf(err)]++
		l.open = append(l.open, id)
	case known:
		l.later[id] = ack
	default:
		l.acks[id] = ack
	}
}

// draw gives out what is to be sent now: what is open first, then new records.
func (l *ledger) draw(n int) []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	again := min(n, len(l.open))
	out := slices.Clone(l.open[:again])
	l.open = slices.Delete(l.open, 0, again)
	for len(out) < n {
		id := fmt.Sprintf("update-%08d", l.next)
		l.next++
		l.sent[id] = true
		out = append(out, id)
	}
	return out
}

func record(id string) api.Record {
	return api.Record{ID: id, Topic: topic, Key: id[len(id)-2:], Body: []byte("the catalogue says " + id),
		Tags: []api.Tag{{Name: "class", Value: "catalog"}, {Name: "residency", Value: "global"}}}
}

// acked is how many ids were acknowledged.
func (l *ledger) acked() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.acks)
}

// ids are all that were ever handed in.
func (l *ledger) ids() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Collect(maps.Keys(l.sent))
}

// ackOf is the first ack of an id.
func (l *ledger) ackOf(id string) (api.Ack, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	a, ok := l.acks[id]
	return a, ok
}

// refused counts what was no ack, by code.
func (l *ledger) refused() map[api.Code]int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return maps.Clone(l.codes)
}

// all are the first acks by sequence within epoch.
func (l *ledger) all() []api.Ack {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.SortedFunc(maps.Values(l.acks), func(a, b api.Ack) int {
		return cmp.Or(a.Epoch.Compare(b.Epoch), cmp.Compare(a.Sequence, b.Sequence))
	})
}

// beyond are the first acks of an epoch behind a sequence.
func (l *ledger) beyond(epoch api.Epoch, cut uint64) (out []api.Ack) {
	for _, a := range l.all() {
		if a.Epoch == epoch && a.Sequence > cut {
			out = append(out, a)
		}
	}
	return out
}

// produce publishes at a door until ctx ends, so many records a second, and sends what was
// refused or is unknown again.
func (l *ledger) produce(ctx context.Context, c *client.Client, rate int) {
	p := c.NewPublisher(client.Window{})
	const every = 5 * time.Millisecond
	tick := time.NewTicker(every)
	defer tick.Stop()
	for due := 0.0; ctx.Err() == nil; {
		select {
		case <-tick.C:
			due += float64(rate) * every.Seconds()
		case <-ctx.Done():
		}
		n := int(due)
		due -= float64(n)
		for _, id := range l.draw(n) {
			try, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
			p.Publish(try, record(id), func(ack api.Ack, err error) { cancel(); l.take(id, ack, err) })
		}
	}
	closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), 3*time.Second)
	defer cancel()
	_ = p.Close(closing) // what has no outcome by then is told as unknown, and sent again
}
