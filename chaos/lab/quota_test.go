package lab_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"domicile/chaos/invariant"
	"domicile/chaos/lab"
	"domicile/chaos/ledger"
	"domicile/regions"
	"domicile/regions/link"
)

// TestRT2_AQuotaHoldsInCatchUpToo floods a topic that has a quota at a region's door, with
// records for its own log and for another region's, while that one is there, cut off, and
// catching up. In no stretch of it more comes past the quota than is declared, in records and
// in bytes; with a fifth of what is declared as the bound the same run is red.
func TestRT2_AQuotaHoldsInCatchUpToo(t *testing.T) {
	t.Parallel()
	quota := regions.Quota{Records: 10, Bytes: 4 << 10}
	l := open(t, lab.Options{Policies: boundedPolicies("eu, us, global"), Manifest: bounded(fmt.Sprintf(
		`orders: {writes: local, mirror: [all], quota: {records_per_second: %d, bytes_per_second: %d}, on_home_loss: {producers: refuse, consumers: {mode: wait}, owner: o, text: t}}`, quota.Records, quota.Bytes))})
	book := &ledger.Book{Clock: regions.NewSteadyClock()}
	ctx, stop := context.WithCancel(t.Context())
	var producers sync.WaitGroup
	defer producers.Wait()
	defer stop()
	for n, residency := range []string{"eu", "us", "eu", "us"} {
		c := door(t, l, "us-east", 1)
		producers.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				r := orderOf(residency, fmt.Sprintf("%d-%d", n, i))
				r.Body = make([]byte, 50+i%400)
				e := ledger.Entry{ID: r.ID, Topic: r.Topic, Residency: residency, Size: r.Size(), Asked: "us-east", Started: book.Clock.Now()}
				try, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
				ack, err := c.Publish(try, &r)
				cancel()
				e.Answer(ack, err, book.Clock.Now())
				book.Enter(e)
				_ = lab.Pass(ctx, time.Millisecond)
			}
		})
	}
	acked := func(home string) (n int) {
		for _, e := range book.Entries() {
			if e.Outcome == ledger.Acked && e.Region == home {
				n++
			}
		}
		return n
	}
	more := func(home string, n int) {
		t.Helper()
		want := acked(home) + n
		within(t, "more is acknowledged by "+home, func() error {
			if have := acked(home); have < want {
				return fmt.Errorf("%d of %d", have, want)
			}
			return nil
		})
	}
	more("eu-west", 5)
	healed := book.During(ledger.Step{Kind: ledger.Cut, Region: "eu-west"})
	if err := l.Cut("eu-west", link.BlackHole, time.Hour); err != nil {
		t.Fatal(err)
	}
	more("us-east", 10)
	healed()
	l.Heal()
	more("eu-west", 8)
	stop()
	producers.Wait()
	judge := func(q regions.Quota) int {
		limits := invariant.Usual(quick)
		limits.Quotas = []invariant.Quota{{Topic: "orders", Quota: q}}
		v := invariant.Check(book.History(), nil, limits)
		for _, x := range v.Violations {
			if x.Number == invariant.Quotas && q == quota {
				t.Error(x)
			}
		}
		if v.Judged[invariant.Quotas] < 3 {
			t.Errorf("judged %d times: nobody was refused", v.Judged[invariant.Quotas])
		}
		return v.Broken[invariant.Quotas]
	}
	judge(quota)
	if fifth := (regions.Quota{Records: quota.Records / 5}); judge(fifth) == 0 {
		t.Error("a fifth of the quota is kept as well: the flood proves nothing")
	}
}
