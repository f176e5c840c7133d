package lab_test

import (
	"context"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"domicile/api"
	pb "domicile/api/domicile/v1"
	"domicile/chaos/invariant"
	"domicile/chaos/lab"
	"domicile/chaos/ledger"
	"domicile/gateway/placer"
	"domicile/regions"
	"domicile/regions/link"
)

// gossiping is a movable log under traffic, whose history is kept.
type gossiping struct {
	*moved
	clock regions.Clock
	book  *ledger.Book
}

// watched starts producers, readers and samples in each region; stop ends them.
func watched(t *testing.T, pace regions.Pace) (g *gossiping, stop func()) {
	g = &gossiping{moved: moving(t, "", lab.Options{Pace: pace}), clock: regions.NewSteadyClock()}
	g.book = &ledger.Book{Clock: g.clock}
	ctx, cancel := context.WithCancel(t.Context())
	var work sync.WaitGroup
	for _, r := range g.Regions() {
		c, operators := door(t, g.Lab, r.Name, 1), desk(t, g.Lab, r.Name)
		who := r.Node().Placer() // no node ends before the samples do
		work.Go(func() {
			for i := 0; lab.Pass(ctx, 50*time.Millisecond) == nil; i++ {
				o := orderOf("global", fmt.Sprintf("%s-%d", r.Name, i))
				e := ledger.Entry{ID: o.ID, Hash: ledger.Hash(o.Body), Topic: o.Topic, Residency: "global", Size: o.Size(), Asked: r.Name, Rests: g.Federation.Regions(), Started: g.clock.Now()}
				asking, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
				ack, err := c.Publish(asking, &o)
				cancel()
				e.Answer(ack, err, g.clock.Now())
				g.book.Enter(e)
			}
		})
		work.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				reader := fmt.Sprintf("%s-%d", r.Name, n)
				_ = c.Read(ctx, &pb.ReadRequest{Topic: "orders", Follow: true}, func(b *pb.ReadResponse) error { // the next one starts anew
					g.book.Heard(reader, r.Name, "orders", b)
					return nil
				})
				_ = lab.Pass(ctx, again)
			}
		})
		work.Go(func() {
			for lab.Pass(ctx, 200*time.Millisecond) == nil {
				g.sample(ctx, r, who, operators)
			}
		})
	}
	return g, func() { cancel(); work.Wait() }
}

// teller is a region's operators' API.
type teller interface {
	Status(ctx context.Context) (*pb.StatusResponse, error)
	Lag(ctx context.Context, r *pb.LagRequest, each func(*pb.LagResponse) error) error
}

// sample notes what a region says of its links and lags and of where the log is. What
// does not answer is no sample.
func (g *gossiping) sample(ctx context.Context, r *lab.Region, who *placer.Placer, operators teller) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	if s, err := operators.Status(ctx); err == nil {
		g.book.Linked(s)
	}
	_ = operators.Lag(ctx, &pb.LagRequest{}, func(m *pb.LagResponse) error { g.book.Told(m); return nil })
	if l, ok := who.Log(g.id); ok {
		g.book.Note(ledger.Event{Placed: &ledger.Placed{Region: r.Name, Log: g.id.String(), Home: l.Home, Epoch: l.Epoch.String(), Status: string(l.Status)}})
	}
}

// members is how many the gossip of a region counts, and is noted.
func (g *gossiping) members(r *lab.Region) (n float64, err error) {
	page, err := r.Metrics(g.Context())
	for _, metric := range page {
		if metric.Name == "domicile_gossip_members" {
			n = metric.Value
			g.book.Note(ledger.Event{Gauge: &ledger.Gauge{Region: r.Name, Name: ledger.GossipMembers, Value: n}})
		}
	}
	return n, err
}

func (g *gossiping) counts(region string, want func(float64) bool) {
	g.Helper()
	g.until("the gossip of "+region+" has changed", func() error {
		if n, err := g.members(g.Region(region)); err != nil || !want(n) {
			return fmt.Errorf("it counts %v: %v", n, err)
		}
		return nil
	})
}

func all(n float64) bool   { return n == 3 }
func fewer(n float64) bool { return n < 3 }

// without cuts the gossip of eu-west until a region has lost members by it, all goes on, and
// then for a while.
func (g *gossiping) without(dirs []regions.Direction, noticed string, hold time.Duration) {
	g.Helper()
	end := g.book.During(ledger.Step{Kind: ledger.GossipCut, Region: "eu-west", Value: fmt.Sprint(dirs)})
	var cuts []uint64
	gates := g.node("eu-west").Gates()
	for _, peer := range []string{"eu-central", "us-east"} {
		id, err := gates.Cut(peer, []link.Plane{link.Gossip}, dirs, link.BlackHole, time.Hour)
		if err != nil {
			g.Fatal(err)
		}
		cuts = append(cuts, id)
	}
	g.counts(noticed, fewer)
	g.goesOn()
	if err := lab.Pass(g.Context(), hold); err != nil {
		g.Fatal(err)
	}
	end()
	for _, id := range cuts {
		gates.Heal(id)
	}
}

// goesOn waits until records that were handed in from now on are taken at each door, and
// read everywhere, for as long as anything moves.
func (g *gossiping) goesOn() {
	g.Helper()
	since := g.clock.Now()
	err := lab.PollMoving(g.Context(), time.Minute, func() error {
		h := g.book.History()
		fresh, read := map[string]string{}, map[string]bool{}
		for _, e := range h.Entries() {
			if e.Outcome == ledger.Acked && e.Started.After(since) && fresh[e.Asked] == "" {
				fresh[e.Asked] = ledger.Mark(e.ID)
			}
		}
		for i := range h.Events {
			if b := h.Events[i].Batch; b != nil {
				for _, got := range b.Items {
					read[b.Region+got.ID] = true
				}
			}
		}
		for _, door := range g.Regions() {
			for _, reader := range g.Regions() {
				if id := fresh[door.Name]; id == "" || !read[reader.Name+id] {
					return fmt.Errorf("in %s: acknowledged %v, read in %s %v; %d were read at all", door.Name, id != "", reader.Name, read[reader.Name+id], len(read))
				}
			}
		}
		return nil
	})
	if err != nil {
		g.warnings()
		g.Fatal("records are taken and read without gossip: ", err)
	}
}

// longRun is whether there is time to tell the gossip's doing from the machine's.
func longRun() bool { return os.Getenv("DOMICILE_LONG") != "" }

// gossipLimits are wide in the short form, in which a machine that hangs takes links down: what the
// gossip does would last, and goesOn and the last waits would not end. A change of home or
// epoch is never excused.
func gossipLimits() invariant.Limits {
	l := invariant.Usual(quick)
	l.Young, l.Hiccup = 2*time.Minute, 2*time.Minute
	if longRun() {
		l = invariant.Usual(1)
		l.Young, l.Hiccup = 10*time.Second, 3*time.Second
	}
	return l
}

// cutAll is without for all lanes, during which nothing goes on.
func (g *gossiping) cutAll(hold time.Duration) {
	g.Helper()
	end := g.book.During(ledger.Step{Kind: ledger.GossipCut, Region: "eu-west"})
	if err := g.Cut("eu-west", link.BlackHole, time.Hour); err != nil {
		g.Fatal(err)
	}
	g.counts("us-east", fewer)
	if err := lab.Pass(g.Context(), hold); err != nil {
		g.Fatal(err)
	}
	end()
	g.Heal()
}

var bothWays = []regions.Direction{regions.In, regions.Out}

// TestS23_GossipAloneSaysThatAHomeIsDead cuts off nothing but the gossip of a log's home,
// for longer than the gossip takes to count it out. Links stay up, nothing moves, records
// are taken and read, no copy grows older; and a move that people begin goes through. With
// DOMICILE_LONG=1 it is cut one way and the other too, for longer than the gossip remembers
// its dead, and at last all lanes are cut and said to be the gossip alone: that is found.
func TestS23_GossipAloneSaysThatAHomeIsDead(t *testing.T) {
	t.Parallel()
	long, pace, hold := longRun(), quick, time.Second
	if long {
		pace, hold = 1, 70*time.Second // the dead are forgotten after 60 s
	}
	g, stop := watched(t, pace)
	defer stop()
	everybody := func() {
		for _, r := range g.Regions() {
			g.counts(r.Name, all)
		}
		if err := lab.Pass(t.Context(), time.Second); err != nil { // samples of it
			t.Fatal(err)
		}
	}
	everybody()
	g.without(bothWays, "us-east", hold)
	if long {
		everybody()
		g.without([]regions.Direction{regions.In}, "eu-west", hold)
		everybody()
		g.without([]regions.Direction{regions.Out}, "us-east", hold)
	}
	v := invariant.Check(g.book.History(), nil, gossipLimits())
	t.Logf("judged %d times", v.Judged[invariant.GossipAlone])
	for _, x := range only(v, invariant.GossipAlone) {
		t.Error(x)
	}
	if v.Judged[invariant.GossipAlone] < 20 {
		t.Error("that is too seldom")
	}
	if long {
		everybody()
		g.cutAll(hold)
		if v := invariant.Check(g.book.History(), nil, gossipLimits()); v.Broken[invariant.GossipAlone] == 0 {
			t.Error("a cut of all lanes passed as one of the gossip alone")
		}
		if err := g.Linked(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	stop()
	until(t, g.Lab, "us-east", "orders", "by the home", func(a api.Ack, err error) bool { return confirmed(a, err) && a.Region == "eu-west" })
	g.move("us-east", "there", "us-east")
	g.settled("us-east", "us-east", "eu-west", "eu-central")
}
