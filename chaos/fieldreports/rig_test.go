package fieldreports

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"domicile/api"
	"domicile/api/client"
	pb "domicile/api/domicile/v1"
	"domicile/chaos/invariant"
	"domicile/chaos/lab"
	"domicile/chaos/ledger"
	"domicile/regions"
	"domicile/regions/fabric/fabrictest"
)

func TestMain(m *testing.M) {
	part := os.Getenv(partKey)
	if part == "" {
		fabrictest.VerifyTestMain(m)
		return
	}
	if err := act(part); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

const (
	pace = regions.Pace(0.25) // the fastest that nodes support
	soon = 90 * time.Second   // generous: other tests share the machine
)

// drill is one scenario: a federation, and the history of its clients.
type drill struct {
	*testing.T
	lab    *lab.Lab
	book   *ledger.Book
	limits invariant.Limits
	stop   context.CancelFunc
	watch  sync.WaitGroup
	mu     sync.Mutex
	doors  map[string]*client.Client
	// broken are the violations that the test itself brings about; nil: none.
	broken func(invariant.Violation) bool
}

// start opens a federation whose links are up, and watches it.
func start(t *testing.T, o lab.Options) *drill {
	t.Helper()
	o.Pace = pace
	o.Parent = t.TempDir()
	l, err := lab.Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	d := &drill{T: t, lab: l, book: &ledger.Book{}, doors: map[string]*client.Client{}, limits: invariant.Usual(pace)}
	// One process, one machine that others use as well: figures of speed mean nothing.
	d.limits.AckP99, d.limits.Slack, d.limits.Settle, d.limits.Young = 0, 3*time.Second, 3*time.Second, 20*time.Second
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	d.stop = cancel
	t.Cleanup(func() {
		d.hush()
		if err := l.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	d.must(l.Linked(t.Context()))
	for _, r := range l.Regions() {
		d.watchRegion(ctx, r)
	}
	return d
}

func (d *drill) must(err error) {
	d.Helper()
	if err != nil {
		d.Fatal(err)
	}
}

func (d *drill) poll(what string, ask func() error) {
	d.Helper()
	if err := lab.Poll(d.Context(), soon, ask); err != nil {
		d.Fatalf("%s: %v", what, err)
	}
}

// hush ends the watchers and closes the doors.
func (d *drill) hush() {
	d.stop()
	d.watch.Wait()
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, c := range d.doors {
		_ = c.Close()
	}
	d.doors = map[string]*client.Client{}
}

// watchRegion notes lags and links of a region, and what a reader of each topic gets.
func (d *drill) watchRegion(ctx context.Context, r *lab.Region) {
	again := func(name string, do func(c *client.Client) error, open func() (*client.Client, error)) {
		d.watch.Go(func() {
			c, err := open()
			if err != nil {
				d.Errorf("%s of %s: %v", name, r.Name, err)
				return
			}
			defer c.Close()
			ticker := time.NewTicker(100 * time.Millisecond)
			defer ticker.Stop()
			for ctx.Err() == nil {
				_ = do(c) // a region that is down tells nothing
				select {
				case <-ctx.Done():
				case <-ticker.C:
				}
			}
		})
	}
	again("lag", func(c *client.Client) error {
		return c.Lag(ctx, &pb.LagRequest{Watch: true, IntervalNano: int64(200 * time.Millisecond)}, func(m *pb.LagResponse) error { d.book.Told(m); return nil })
	}, r.Desk)
	again("status", func(c *client.Client) error {
		asking, cancel := context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
		m, err := c.Status(asking)
		if err == nil {
			d.book.Linked(m)
		}
		return err
	}, r.Desk)
	for _, topic := range d.lab.Federation.Topics() {
		q := &pb.ReadRequest{Topic: topic, Follow: true}
		again("reader", func(c *client.Client) error {
			return c.Read(ctx, q, func(m *pb.ReadResponse) error {
				d.book.Heard(r.Name+" reads "+topic, r.Name, topic, m)
				q.From = &pb.ReadRequest_Position{Position: m.GetPosition()}
				return nil
			})
		}, func() (*client.Client, error) { return r.Door(1) })
	}
}

// door is the client of a region's producers.
func (d *drill) door(region string) *client.Client {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.doors[region] == nil {
		c, err := d.lab.Region(region).Door(1)
		if err != nil {
			d.Error(err)
			return nil
		}
		d.doors[region] = c
	}
	return d.doors[region]
}

// classes is the class of record that each topic of the example takes.
var classes = map[string]string{"orders": "order", "catalog.updates": "catalog", "health.records": "health"}

// record makes a record of the example federation.
func record(id, topic, residency string, body []byte) api.Record {
	return api.Record{ID: id, Topic: topic, Key: "k", Body: body, Tags: []api.Tag{{Name: "class", Value: classes[topic]}, {Name: "residency", Value: residency}}}
}

// publish publishes a record once and enters the answer.
func (d *drill) publish(region string, r api.Record) (api.Ack, error) {
	e := d.entry(region, r)
	c := d.door(region)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(d.Context()), 20*time.Second)
	defer cancel()
	e.Started = time.Now()
	ack, err := c.Publish(ctx, &r)
	e.Answer(ack, err, time.Now())
	d.book.Enter(e)
	return ack, err
}

func (d *drill) entry(region string, r api.Record) ledger.Entry {
	e := ledger.Entry{ID: r.ID, Hash: ledger.Hash(r.Body), Key: r.Key, Topic: r.Topic, Size: r.Size(), Asked: region, Residency: r.Tag(regions.ResidencyTag)}
	for _, name := range d.lab.Federation.Regions() {
		if d.lab.Federation.MayRest(e.Residency, name) {
			e.Rests = append(e.Rests, name)
		}
	}
	return e
}

// burst publishes n records, a few at a time. It waits for all answers, wants every
// one acknowledged, and returns their size as the regions count it.
func (d *drill) burst(region, prefix, topic, residency string, n int) {
	d.Helper()
	var out sync.WaitGroup
	slots := make(chan struct{}, 32)
	for i := range n {
		slots <- struct{}{}
		out.Go(func() {
			defer func() { <-slots }()
			if _, err := d.publish(region, record(fmt.Sprintf("%s-%d", prefix, i), topic, residency, []byte("body of "+prefix))); err != nil {
				d.Errorf("%s-%d in %s: %v", prefix, i, region, err)
			}
		})
	}
	out.Wait()
}

// insist publishes a record again and again, under the same id, until it has an answer
// that does not pass.
func (d *drill) insist(region string, r api.Record) (ack api.Ack, err error) {
	d.Helper()
	d.poll("an answer for good", func() error {
		if ack, err = d.publish(region, r); err != nil && api.CodeOf(err).Retryable() {
			return err
		}
		return nil
	})
	return ack, err
}

// lag is what a region says now of one log towards one target.
func (d *drill) lag(region, log, target string) (*pb.LogLag, error) {
	desk, err := d.lab.Region(region).Desk()
	if err != nil {
		return nil, err
	}
	defer desk.Close()
	var found *pb.LogLag
	err = desk.Lag(d.Context(), &pb.LagRequest{}, func(m *pb.LagResponse) error {
		for _, l := range m.GetLogs() {
			if l.GetLog().GetTopic()+"@"+l.GetLog().GetSlot() == log && l.GetTarget() == target {
				found = l
			}
		}
		return nil
	})
	if err == nil && found == nil {
		err = errors.New("no such flow")
	}
	return found, err
}

// cut cuts one link at a region's gate and notes it until heal is called.
func (d *drill) cut(step ledger.Step, do func() error) (heal func()) {
	d.Helper()
	d.must(do())
	end := d.book.During(step)
	return func() { end(); d.lab.Heal() }
}

// converge waits until every copy ends where its home ends, and says so in the history.
func (d *drill) converge() {
	d.Helper()
	d.must(d.lab.Linked(d.Context()))
	for _, name := range d.lab.Federation.Topics() {
		topic, _ := d.lab.Federation.Topic(name)
		for _, log := range d.lab.Federation.Logs(topic) {
			home, _, _ := d.lab.Federation.Home(log)
			for _, target := range d.lab.Federation.Targets(log) {
				d.poll("the copy of "+log.String()+" in "+target, func() error { return d.reached(log.String(), home, target) })
			}
		}
	}
	d.book.Point(ledger.Converged)
}

func (d *drill) reached(log, home, target string) error {
	there, err := d.lag(home, log, target)
	if err != nil {
		return err
	}
	here, err := d.lag(target, log, target)
	if err != nil {
		return err
	}
	if here.GetCursor() != there.GetHead() || there.GetCursor() != there.GetHead() || here.GetState() != string(regions.LagCaughtUp) {
		return fmt.Errorf("home says %s %d of %d, target says %s %d", there.GetState(), there.GetCursor(), there.GetHead(), here.GetState(), here.GetCursor())
	}
	return nil
}

// heal ends every cut of the history and of the lab, and judges.
func (d *drill) heal() *invariant.Verdict {
	d.Helper()
	for _, s := range d.book.History().Spans(ledger.Cut, ledger.CutOneWay) {
		step := s.Step
		step.Phase = ledger.End
		d.book.Step(step)
	}
	return d.settle()
}

// settle heals what is left, lets the federation converge, and judges everything.
func (d *drill) settle() *invariant.Verdict {
	d.Helper()
	d.lab.Heal()
	d.converge()
	return d.judge()
}

// judge stops the federation and checks every invariant over its history and disks.
func (d *drill) judge() *invariant.Verdict {
	d.Helper()
	d.hush()
	d.must(d.lab.Stop(context.WithoutCancel(d.Context())))
	var shelves []ledger.Shelf
	for _, r := range d.lab.Regions() {
		s, err := lab.Shelves(d.Context(), d.lab.Federation, r.Name, r.Data())
		d.must(err)
		shelves = append(shelves, s...)
	}
	v := invariant.Check(d.book.History(), shelves, d.limits)
	for _, x := range v.Violations {
		if d.broken == nil || !d.broken(x) {
			d.Error(x)
		}
	}
	if v.Judged[invariant.Kept] == 0 || v.Judged[invariant.Gaps] == 0 {
		d.Error("nothing was judged")
	}
	return v
}
