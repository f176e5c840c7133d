package fieldreports

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"domicile/api"
	pb "domicile/api/domicile/v1"
	"domicile/chaos/invariant"
	"domicile/chaos/lab"
	"domicile/chaos/ledger"
	"domicile/gateway/node"
	"domicile/regions"
	"domicile/regions/link"
)

// B29: the store of us-east is slow for one topic. Its copy falls behind and says so;
// the other copies that cross the same link, and forwards over it, are done while it is
// not, and no link is made anew.
func TestB29_ASlowTopicDelaysNoOther(t *testing.T) {
	const slow, records = "catalog.updates@home", 40
	release := make(chan struct{})
	let := sync.OnceFunc(func() { close(release) })
	t.Cleanup(let) // before the federation is closed
	var held atomic.Int64
	d := start(t, lab.Options{Seams: func(region string, s *node.Seams) {
		if region == "us-east" {
			s.Hooks.Fabric.Written = func(log api.LogID, _ uint64) {
				if log.String() != slow {
					return
				}
				held.Add(1)
				select {
				case <-release:
				case <-time.After(2 * time.Second): // for each batch
				}
			}
		}
	}})
	t.Cleanup(let)
	since := d.since("eu-west", "us-east")
	began := time.Now()
	for i := range records { // one by one, so that they cross in many batches
		if _, err := d.publish("eu-west", record(fmt.Sprint("slow-", i), "catalog.updates", "global", []byte("x"))); err != nil {
			t.Fatal(err)
		}
	}
	d.burst("eu-west", "fast", "orders", "global", 200)
	d.burst("us-east", "forward", "orders", "eu", 50)
	d.poll("the other topic's copies are done", func() error {
		for _, way := range [][2]string{{"eu-west", "us-east"}, {"us-east", "eu-west"}} {
			if err := d.reached("orders@"+way[0], way[0], way[1]); err != nil {
				return err
			}
		}
		return nil
	})
	l, err := d.lag("us-east", slow, "us-east")
	d.must(err)
	if l.GetCursor() >= records || l.GetState() == string(regions.LagCaughtUp) {
		t.Skipf("the machine is so busy that two seconds for each batch were not slow: %s, %d of %d", l.GetState(), l.GetCursor(), records)
	}
	if !l.GetStalenessKnown() || l.GetStalenessSeconds() <= 0 || l.GetStalenessSeconds() > time.Since(began).Seconds()+1 || held.Load() == 0 {
		t.Errorf("the slow copy says %s, %.1f s", l.GetState(), l.GetStalenessSeconds())
	}
	if now := d.since("eu-west", "us-east"); now != since {
		t.Error("the link was made anew")
	}
	let()
	d.settle()
}

// B33: a record as large as the limit allows, and one that the target refuses, in the
// middle of many small ones. Both stay at home; the large one crosses, the other is a gap
// of one sequence with its reason; it is not sent again and again, and stops nothing.
func TestB33_UndeliverableRecordsStopNothing(t *testing.T) {
	const log = "orders@eu-west"
	var sent atomic.Int64
	d := start(t, lab.Options{Seams: func(region string, s *node.Seams) {
		if region == "eu-west" {
			s.Hooks.Mirror.SkipEgress = func(l api.LogID, _ string) bool { return l.String() == log } // arrival has to refuse it
			s.Dial = counted(&sent)
		}
	}})
	one := func(r api.Record) {
		if _, err := d.publish("eu-west", r); err != nil {
			t.Fatalf("%s: %v", r.ID, err)
		}
	}
	d.burst("eu-west", "first", "orders", "global", 200)
	one(record("large", "orders", "global", bytes.Repeat([]byte("x"), api.MaxBody)))
	d.burst("eu-west", "second", "orders", "global", 50)
	one(record("refused", "orders", "eu", []byte("x"))) // sequence 252
	d.burst("eu-west", "third", "orders", "global", 100)
	d.converge()
	for _, target := range []string{"us-east", "ap-south"} {
		l, err := d.lag(target, log, target)
		d.must(err)
		if g := l.GetLedger(); g.GetMirrored() != 351 || g.GetWithheld() != 1 {
			t.Errorf("the ledger of %s: %v", target, g)
		}
	}
	if most := int64(2 * 3 * api.MaxBody); sent.Load() > most {
		t.Errorf("%d bytes were sent to two regions, at most %d", sent.Load(), most)
	}
	left := 0
	d.broken = func(x invariant.Violation) bool { // egress let it go, and that is seen
		if x.Number == invariant.Counted && x.Sequence == 252 {
			left++
			return true
		}
		return false
	}
	if d.judge(); left != 2 {
		t.Errorf("%d records are seen to have left their home, want that of each target", left)
	}
	for _, target := range []string{"us-east", "ap-south"} {
		shelves, err := lab.Shelves(t.Context(), d.lab.Federation, target, d.lab.Region(target).Data())
		d.must(err)
		for _, s := range shelves {
			if s.Log == log && (len(s.Items) != 351 || len(s.Gaps) != 1 || s.Gaps[0].Kind != regions.Withheld || s.Gaps[0].From != 252 || s.Gaps[0].To != 252 || s.Gaps[0].Side != "ingress" || s.Gaps[0].Code == "") {
				t.Errorf("%s holds %d records and the gaps %+v", target, len(s.Items), s.Gaps)
			}
		}
	}
}

// counted counts what is written to the connections that a region dials.
func counted(sent *atomic.Int64) func(context.Context, string, string) (net.Conn, error) {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		c, err := (&net.Dialer{}).DialContext(ctx, network, address)
		return countedConn{c, sent}, err
	}
}

type countedConn struct {
	net.Conn
	sent *atomic.Int64
}

func (c countedConn) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	c.sent.Add(int64(n))
	return n, err
}

// B12: nothing cleans up after an idle topic: a backlog that nobody asks for, at a home
// that is started again and again, waits for as long as it takes. Two operators who
// delete at once are both refused, with the count, and nothing is half deleted.
func TestB12_AnIdleBacklogWaits(t *testing.T) {
	const log, waiting = "catalog.updates@home", "50 records of catalog.updates@home are not yet in us-east"
	d := start(t, lab.Options{})
	d.burst("eu-west", "copied", "catalog.updates", "global", 3)
	d.converge()
	heal := d.cut(ledger.Step{Kind: ledger.Cut, Region: "eu-west", Peer: "us-east"}, func() error { return d.lab.CutLink("us-east", "eu-west", link.BlackHole, time.Hour) })
	d.burst("eu-west", "waiting", "catalog.updates", "global", 50)
	desk, err := d.lab.Region("eu-west").Desk()
	d.must(err)
	defer desk.Close()
	var both sync.WaitGroup
	for range 2 {
		both.Go(func() {
			_, err := desk.DeleteTopic(t.Context(), &pb.TopicActRequest{Topic: "catalog.updates"})
			if api.CodeOf(err) != api.BadRequest || !bytes.Contains([]byte(err.Error()), []byte(waiting)) {
				t.Errorf("an operator's delete: %v", err)
			}
		})
	}
	both.Wait()
	for range 2 {
		end := d.book.During(ledger.Step{Kind: ledger.Stop, Region: "eu-west"})
		d.must(d.lab.Region("eu-west").Restart(t.Context()))
		end()
		d.poll("a while in which nobody does anything", passed(time.Now(), 3*time.Second))
	}
	l, err := d.lag("eu-west", log, "us-east")
	if err != nil || l.GetHead() != 53 || l.GetRecordsKnown() && l.GetRecords() != 50 {
		t.Errorf("after two starts: %v, %v", l, err)
	}
	heal()
	d.must(d.lab.Linked(t.Context()))
	d.poll("the copy has all of it", func() error { return d.reached(log, "eu-west", "us-east") })
	if l, err := d.lag("us-east", log, "us-east"); err != nil || l.GetLedger().GetMirrored() != 53 {
		t.Errorf("the copy: %v, %v", l, err)
	}
	d.settle()
}
