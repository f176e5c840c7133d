package lab_test

import (
	"context"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"domicile/api"
	"domicile/api/client"
	pb "domicile/api/domicile/v1"
	"domicile/chaos/canary"
	"domicile/chaos/invariant"
	"domicile/chaos/lab"
	"domicile/chaos/ledger"
	"domicile/chaos/shop"
	"domicile/regions"
)

// counting is a federation whose producers, readers and counts are noted.
type counting struct {
	*testing.T
	*lab.Lab
	book  ledger.Book
	doors map[string]*client.Client
	shops map[string]*shop.Shop
}

func (c *counting) publish(region string, r api.Record, e ledger.Entry) ledger.Entry {
	e.Started = c.book.Clock.Now()
	ack, err := c.doors[region].Publish(c.Context(), &r)
	e.Answer(ack, err, c.book.Clock.Now())
	c.book.Enter(e)
	return e
}

// count notes what every region says that it has counted.
func (c *counting) count() {
	c.Helper()
	for _, r := range c.Regions() {
		began, counts := c.book.Clock.Now(), lab.NewCounts(r.Name)
		desk, err := r.Desk()
		if err != nil {
			c.Fatal(err)
		}
		if err := lab.AddCounts(c.Context(), &counts, desk, r.Metrics); err != nil {
			c.Fatal(err)
		}
		c.book.Counted(began, counts)
		_ = desk.Close()
	}
}

// read has a reader get all that a region lets him have.
func (c *counting) read(region string) {
	c.Helper()
	for _, topic := range c.Federation.Topics() {
		err := c.doors[region].Read(c.Context(), &pb.ReadRequest{Topic: topic}, func(m *pb.ReadResponse) error {
			c.book.Heard(region+topic, region, topic, m)
			return nil
		})
		if err != nil {
			c.Fatal(err)
		}
	}
}

// work has every region's producers publish, make their mistakes and send some records again.
func (c *counting) work(rounds int) {
	for range rounds {
		for region, s := range c.shops {
			p, _ := s.Next(false)
			if e := c.publish(region, p.Record, p.Entry); e.Outcome != ledger.Acked && !e.Code.Retryable() { // a busy machine loses a link
				c.Errorf("%s: %s", region, e.Code)
			}
			c.publish(region, p.Record, p.Entry)
			for _, p := range s.Mistakes() {
				if e := c.publish(region, p.Record, p.Entry); e.Code != p.Want && !e.Code.Retryable() {
					c.Errorf("%s: %s, want %s", region, e.Code, p.Want)
				}
			}
		}
	}
}

// TestR14b_EveryJudgementIsCountedOnce: what producers, readers and copies got is in each
// region's counts, by question and by code, exactly once where a record is judged once; also
// over an orderly restart. Counts that are too low or too high are found.
func TestR14b_EveryJudgementIsCountedOnce(t *testing.T) {
	l := open(t, lab.Options{})
	c := &counting{T: t, Lab: l, book: ledger.Book{Clock: regions.NewSteadyClock()}, doors: map[string]*client.Client{}, shops: map[string]*shop.Shop{}}
	tokens := &canary.Set{}
	for _, r := range l.Regions() {
		c.doors[r.Name] = door(t, l, r.Name, 1)
		c.shops[r.Name] = shop.New(r.Name, l.Federation, tokens)
	}
	c.count()
	c.work(4)
	c.count()
	if err := l.Region("us-east").Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := l.Linked(t.Context()); err != nil {
		t.Fatal(err)
	}
	c.doors["us-east"] = door(t, l, "us-east", 1)
	c.count()
	c.work(4)
	if err := l.CaughtUp(t.Context(), time.Now(), time.Minute); err != nil {
		t.Fatal(err)
	}
	c.book.Point(ledger.Converged)
	if err := lab.Pass(t.Context(), limitsOfCounts.Slack); err != nil {
		t.Fatal(err)
	}
	for _, r := range l.Regions() {
		c.read(r.Name)
	}
	c.count()
	if err := l.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	var shelves []ledger.Shelf
	for _, r := range l.Regions() {
		read, err := lab.Shelves(context.WithoutCancel(t.Context()), l.Federation, r.Name, r.Data())
		if err != nil {
			t.Fatal(err)
		}
		shelves = append(shelves, read...)
	}
	v := invariant.Check(c.book.History(), shelves, limitsOfCounts)
	for _, x := range v.Violations {
		t.Error(x)
	}
	t.Logf("%d bounds of counts were judged", v.Judged[invariant.Counted])
	for what, change := range map[string]func(*ledger.Counts){
		"answers too few":     func(c *ledger.Counts) { c.Told[ledger.Told(shop.Orders, "")] -= 8 },
		"refusals too many":   func(c *ledger.Counts) { c.Told[ledger.Told(shop.Health, api.TransitDenied)] += 100 },
		"judgements too few":  func(c *ledger.Counts) { c.Asked[admitted(c.Asked)] -= 4 },
		"judgements too many": func(c *ledger.Counts) { c.Asked[admitted(c.Asked)] += 100 },
	} {
		if v := invariant.Check(lastCounts(c.book.History(), change), shelves, limitsOfCounts); v.Broken[invariant.Counted] == 0 {
			t.Errorf("%s is not found", what)
		}
	}
}

// admitted is the question that us-east was asked of the global orders of its own producers.
func admitted(asked map[string]uint64) string {
	for q := range asked {
		if strings.HasPrefix(q, "admit topic=orders ") && strings.Contains(q, "residency=global") && strings.Contains(q, "origin=us-east") {
			return q
		}
	}
	return ""
}

// lastCounts changes what us-east said last, on a copy.
func lastCounts(h *ledger.History, change func(*ledger.Counts)) *ledger.History {
	for i := range slices.Backward(h.Events) {
		if e := &h.Events[i]; e.Counts != nil && e.Counts.Region == "us-east" {
			spoilt := *e.Counts
			spoilt.Asked, spoilt.Told = maps.Clone(spoilt.Asked), maps.Clone(spoilt.Told)
			change(&spoilt)
			e.Counts = &spoilt
			return h
		}
	}
	return h
}

// limitsOfCounts are those of a run on a busy machine.
var limitsOfCounts = func() invariant.Limits {
	l := invariant.Usual(quick)
	l.Settle, l.SlopeOff = 30*time.Second, 10
	return l
}()
