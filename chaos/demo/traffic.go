package demo

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"domicile/api"
	"domicile/chaos/ledger"
	"domicile/chaos/shop"
	"domicile/regions"
)

const (
	patience     = 4 * time.Second // how long a producer waits for its answer, at the node's pace
	minPatience  = 2 * time.Second // at any pace: disks do not get quicker
	mistakeEvery = 40              // records between two rounds of mistakes
	maxInFlight  = 512             // records one region's producers have out; more are not sent
	keepEvery    = 8               // every so many acked records one is kept, to be sent again
	keepMost     = 60
)

// traffic is the producers of all regions and what they remember.
type traffic struct {
	clock regions.Clock
	wait  time.Duration // for an answer
	book  *ledger.Book
	local atomic.Int64 // records out to the idle region's own logs

	turn    sync.Mutex // held from choosing a record until it counts as out
	resting string     // the region that writes nothing into its own logs; "": none; guarded by turn

	mu        sync.Mutex
	tokens    map[string][]int // id → tokens of its record
	unknown   []shop.Parcel    // nobody could say
	kept      []shop.Parcel    // acked, to be sent again
	surprises []string         // answers that were not the right ones
	acks      int
}

func newTraffic(clock regions.Clock, pace regions.Pace, book *ledger.Book) *traffic {
	return &traffic{clock: clock, wait: max(pace.Of(patience), minPatience), book: book, tokens: map[string][]int{}}
}

// produce publishes from one region, a record every interval, until ctx ends; then it
// waits for the answers that are out.
func (t *traffic) produce(ctx context.Context, s *shop.Shop, d *entrance, interval time.Duration) {
	var out sync.WaitGroup
	defer out.Wait()
	slots := make(chan struct{}, maxInFlight)
	send := func(p shop.Parcel) {
		select {
		case slots <- struct{}{}:
		default:
			return
		}
		n := int64(0)
		if p.Local && s.Region == idleRegion {
			n = 1
		}
		t.local.Add(n)
		out.Go(func() {
			defer func() { t.local.Add(-n); <-slots }()
			t.publish(context.WithoutCancel(ctx), d, p)
		})
	}
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for n := 1; ; n++ {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		t.turn.Lock()
		if p, ok := s.Next(t.resting == s.Region); ok {
			send(p)
		}
		t.turn.Unlock()
		if n%mistakeEvery == mistakeEvery/2 {
			for _, p := range s.Mistakes() {
				send(p)
			}
		}
	}
}

// rest names the region that writes nothing into its own logs from now on; "": none.
func (t *traffic) rest(region string) {
	t.turn.Lock()
	defer t.turn.Unlock()
	t.resting = region
}

// answer is what came of one record: the entry in the book, and in full.
type answer struct {
	ledger.Entry
	ack api.Ack
	err error
}

// publish sends one record and enters the answer.
func (t *traffic) publish(ctx context.Context, d *entrance, p shop.Parcel) answer {
	ctx, cancel := context.WithTimeout(ctx, t.wait)
	defer cancel()
	e := p.Entry
	e.Started = t.clock.Now()
	ack, err := d.Publish(ctx, p.Record)
	e.Answer(ack, err, t.clock.Now())
	t.book.Enter(e)
	t.remember(p, &e)
	return answer{e, ack, err}
}

func (t *traffic) remember(p shop.Parcel, e *ledger.Entry) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.tokens[e.ID] = p.Tokens
	if p.Want != "" && e.Code != p.Want {
		t.surprised("a record that had to get " + string(p.Want) + " got " + string(e.Outcome) + " " + string(e.Code))
	}
	if p.Want == "" && e.Outcome == ledger.Refused && !e.Code.Retryable() {
		t.surprised("a record that had to be taken in " + e.Asked + " was refused with " + string(e.Code))
	}
	switch e.Outcome {
	case ledger.Acked:
		if t.acks%keepEvery == 0 && len(t.kept) < keepMost {
			t.kept = append(t.kept, p)
		}
		t.acks++
	case ledger.Unknown:
		t.unknown = append(t.unknown, p)
	}
}

// surprise notes something that must not happen.
func (t *traffic) surprise(what string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.surprised(what)
}

func (t *traffic) surprised(what string) { t.surprises = append(t.surprises, what) }

// askAgain sends every record whose outcome nobody knew once more, under the same id.
// It returns how many there were.
func (t *traffic) askAgain(ctx context.Context, doors map[string]*entrance) int {
	t.mu.Lock()
	list := t.unknown
	t.unknown = nil
	t.mu.Unlock()
	t.each(ctx, doors, list)
	return len(list)
}

// each publishes a list and returns the answers in its order.
func (t *traffic) each(ctx context.Context, doors map[string]*entrance, list []shop.Parcel) []answer {
	answers := make([]answer, len(list))
	var out sync.WaitGroup
	slots := make(chan struct{}, maxInFlight)
	for i, p := range list {
		slots <- struct{}{}
		out.Go(func() {
			answers[i] = t.publish(ctx, doors[p.Entry.Asked], p)
			<-slots
		})
	}
	out.Wait()
	return answers
}

// takeKept is what was kept to be sent again.
func (t *traffic) takeKept() []shop.Parcel {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.kept)
}

// pace is the time between two records of one of n regions at a total rate a second.
func pace(rate, n int) time.Duration {
	return time.Duration(n) * time.Second / time.Duration(rate)
}
