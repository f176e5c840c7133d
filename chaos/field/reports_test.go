package field_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	pb "domicile/api/domicile/v1"
	"domicile/api/wire"
	"domicile/chaos/field"
	"domicile/chaos/invariant"
	"domicile/chaos/lab"
	"domicile/chaos/ledger"
)

// report is one field report played on processes, as its producers see it.
type report struct {
	*testing.T
	f       *field.Field
	book    ledger.Book
	padding int // bytes that every record carries besides
}

// publish publishes n global orders in eu-west, in order, each until it has an answer
// for good.
func (r *report) publish(prefix string, n int) {
	r.Helper()
	c, err := r.f.Node("eu-west").Client(0)
	must(r.T, err)
	defer c.Close()
	for i := range n {
		o := order(fmt.Sprintf("%s-%d", prefix, i), "global")
		o.Body = append(o.Body, make([]byte, r.padding)...)
		e := ledger.Entry{ID: o.ID, Hash: ledger.Hash(o.Body), Topic: o.Topic, Size: o.Size(), Asked: "eu-west", Residency: "global", Rests: r.f.Federation.Regions(), Started: time.Now()}
		ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), soon)
		ack, err := c.Publish(ctx, o)
		cancel()
		e.Answer(ack, err, time.Now())
		r.book.Enter(e)
		if err != nil {
			r.Errorf("%s: %v", o.ID, err)
		}
	}
}

// copied waits until the copy in a region ends where eu-west's log ends.
func (r *report) copied() {
	r.Helper()
	must(r.T, r.f.Linked(r.Context(), soon))
	must(r.T, r.f.CaughtUp(r.Context(), time.Now(), soon))
	r.book.Point(ledger.Converged)
}

// judge stops all and checks every invariant.
func (r *report) judge() *invariant.Verdict {
	r.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), soon)
	defer cancel()
	must(r.T, r.f.Stop(ctx))
	var shelves []ledger.Shelf
	for _, n := range r.f.Nodes() {
		s, err := lab.Shelves(ctx, r.f.Federation, n.Region, n.Data())
		must(r.T, err)
		shelves = append(shelves, s...)
	}
	v := invariant.Check(r.book.History(), shelves, invariant.Usual(r.f.Pace()))
	for _, x := range v.Violations {
		r.Error(x)
	}
	if v.Judged[invariant.Kept] == 0 || v.Judged[invariant.Converged] == 0 {
		r.Errorf("not judged: %v", v.Judged)
	}
	return v
}

// B07: a target that sleeps for longer than every watchdog's time. When it wakes, the
// copy goes on by itself from where it is, in order, and has all that came meanwhile.
func TestB07_ATargetThatSleptGoesOnFromItsCursor(t *testing.T) {
	r := &report{T: t, f: open(t, field.Options{})}
	us := r.f.Node("us-east")
	r.publish("before", 20)
	must(t, us.Pause())
	end := r.book.During(ledger.Step{Kind: ledger.Pause, Region: "us-east"})
	sees(t, r.f.Node("eu-west"), "us-east", 0)
	r.publish("meanwhile", 200)
	asleep := time.Now()
	must(t, lab.Poll(t.Context(), soon, func() error {
		if time.Since(asleep) < quick.Of(15*time.Second) {
			return fmt.Errorf("still within a watchdog's time")
		}
		return nil
	}))
	end()
	must(t, us.Resume())
	r.publish("after", 20)
	r.copied()
	r.judge()
}

// B13: the target is killed, again and again, while batches are stored and before their
// answers are home. It holds each record once: exactness comes from what it has stored,
// not from anybody's memory.
func TestB13_KilledTargetsHoldEachRecordOnce(t *testing.T) {
	r := &report{T: t, f: open(t, field.Options{})}
	us := r.f.Node("us-east")
	var load sync.WaitGroup
	load.Go(func() { r.publish("load", 600) })
	for range 4 {
		before := r.stored()
		must(t, lab.Poll(t.Context(), soon, func() error {
			if now := r.stored(); now < before+uint64(10+rand.IntN(40)) && now < 600 {
				return fmt.Errorf("%d published", now)
			}
			return nil
		}))
		end := r.book.During(ledger.Step{Kind: ledger.Kill, Region: "us-east"})
		us.Kill()
		must(t, us.Start())
		end()
	}
	load.Wait()
	r.copied()
	r.judge()
}

// stored is how many records producers have acks for.
func (r *report) stored() uint64 { return uint64(len(r.book.Entries())) }

// lag is what a node says of a log's lag towards a target.
func (r *report) lag(log string, n *field.Node, target string) (said *pb.LogLag, err error) {
	desk, err := n.Desk()
	if err != nil {
		return nil, err
	}
	defer desk.Close()
	ctx, cancel := context.WithTimeout(r.Context(), soon)
	defer cancel()
	err = desk.Lag(ctx, &pb.LagRequest{}, func(m *pb.LagResponse) error {
		for _, l := range m.GetLogs() {
			if wire.LogFromProto(l.GetLog()).String() == log && l.GetTarget() == target {
				said = l
			}
		}
		return nil
	})
	if err == nil && said == nil {
		err = fmt.Errorf("%s says nothing of %s for %s", n.Name, log, target)
	}
	return said, err
}

// pending is how many sequences of a log its home says that a target has not confirmed, as
// soon as it has heard of any. Of how many of them may travel a home can't say more than it
// has judged, which on a full line is what it has sent.
func (r *report) pending(log string, home *field.Node, target string) (records uint64) {
	r.Helper()
	must(r.T, lab.Poll(r.Context(), soon, func() error {
		l, err := r.lag(log, home, target)
		if err == nil && !l.GetKnowledgeKnown() {
			err = fmt.Errorf("%s does not know how far %s is behind: %v", home.Name, target, l)
		}
		records = l.GetHead() - min(l.GetHead(), l.GetCursor())
		return err
	}))
	return records
}
