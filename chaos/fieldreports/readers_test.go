package fieldreports

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	"domicile/api"
	"domicile/api/client"
	pb "domicile/api/domicile/v1"
	"domicile/chaos/lab"
)

type batch = *pb.ReadResponse

// read reads orders in a region from a position ("": the oldest) to their end; slot is one
// region's log, "": all that are there.
func (d *drill) read(region, slot, position string, most uint32, each func(batch) error) error {
	q := &pb.ReadRequest{Topic: "orders", Slot: slot, MaxRecords: most}
	if position != "" {
		q.From = &pb.ReadRequest_Position{Position: position}
	}
	ctx, cancel := context.WithTimeout(d.Context(), soon)
	defer cancel()
	return d.door(region).Read(ctx, q, each)
}

// The orders in which a reader can note its position and its effects.
const (
	effectFirst   = "effect first"
	positionFirst = "position first"
	together      = "together"
)

// consumer is what a reader keeps over a crash.
type consumer struct {
	effects  map[string]int // how often the effect of each record was made
	position string
}

var errDied = errors.New("died")

// consume reads all orders in batches of five, and dies before its step number crash, once.
func (d *drill) consume(how string, crash int) (c consumer, steps int) {
	d.Helper()
	c.effects = map[string]int{}
	step := func() error {
		if steps++; steps-1 == crash {
			return errDied
		}
		return nil
	}
	for {
		err := d.read("us-east", "us-east", c.position, 5, func(b batch) error { return c.take(how, b, step) })
		if err == nil {
			return c, steps
		}
		if !errors.Is(err, errDied) {
			d.Fatal(err)
		}
	}
}

func (c *consumer) take(how string, b batch, step func() error) error {
	if how == positionFirst {
		if err := step(); err != nil {
			return err
		}
		c.position = b.GetPosition()
	}
	effects := c.effects
	if how == together {
		effects = maps.Clone(effects) // a transaction
	}
	for _, r := range b.GetRecords() {
		if err := step(); err != nil {
			return err
		}
		effects[r.GetRecord().GetId()]++
	}
	if how == positionFirst {
		return nil
	}
	if err := step(); err != nil {
		return err
	}
	c.effects, c.position = effects, b.GetPosition()
	return nil
}

// TestRD1_Decision2_Decision3_ReadersKilledAtEachStep: a reader dies before each of its steps in
// turn, and goes on from what it had kept. With the effect before the position nothing is
// missed, and at most its last batch comes twice: under the records' ids the end is that of a
// reader that never died. With both in one transaction each is there once. With the position
// first some effects are missing: that order is at most once.
func TestRD1_Decision2_Decision3_ReadersKilledAtEachStep(t *testing.T) {
	d := start(t, lab.Options{})
	const records = 20
	for n := range records {
		_, err := d.insist("us-east", record(fmt.Sprint("order-", n), "orders", "us", []byte("x")))
		d.must(err)
	}
	for _, how := range []string{effectFirst, positionFirst, together} {
		calm, steps := d.consume(how, -1)
		if len(calm.effects) != records || steps < records+4 {
			t.Fatalf("%s, undisturbed: %d effects in %d steps", how, len(calm.effects), steps)
		}
		missed, repeated := 0, 0
		for crash := range steps {
			c, _ := d.consume(how, crash)
			again := 0
			for _, n := range c.effects {
				again += n - 1
			}
			missed, repeated = missed+records-len(c.effects), repeated+again
			if again > 5 {
				t.Errorf("%s, dead before step %d: %d effects came again", how, crash, again)
			}
		}
		t.Logf("%s: %d crashes, %d effects missed, %d repeated", how, steps, missed, repeated)
		if missed > 0 != (how == positionFirst) || repeated > 0 != (how == effectFirst) {
			t.Errorf("%s: %d missed, %d repeated", how, missed, repeated)
		}
	}
}

// trader publishes the lives of its orders, interleaved, as fast as it is answered.
func (d *drill) trader(region, residency string, lives, moments int) {
	p := d.door(region).NewPublisher(client.Window{})
	for moment := range moments {
		for life := range lives {
			r := record(fmt.Sprintf("%s-%d/%d", region, life, moment), "orders", residency, fmt.Append(nil, moment))
			r.Key = fmt.Sprintf("%s-%d", region, life)
			p.Publish(d.Context(), r, func(_ api.Ack, err error) {
				if err != nil {
					d.Errorf("%s: %v", r.ID, err)
				}
			})
		}
	}
	if err := p.Close(d.Context()); err != nil {
		d.Error(err)
	}
}

// TestRD3_D8_InterleavedLivesStayInOrder: many orders live at the same time, in two regions. At
// every reader, at home and of a copy, each order's moments come in its order, none is missing
// and none comes twice.
func TestRD3_D8_InterleavedLivesStayInOrder(t *testing.T) {
	const lives, moments = 40, 8
	d := start(t, lab.Options{})
	var traders sync.WaitGroup
	for _, region := range []string{"us-east", "eu-west"} {
		traders.Go(func() { d.trader(region, "global", lives, moments) })
	}
	traders.Wait()
	d.converge()
	for _, region := range d.lab.Federation.Regions() {
		next := map[string]int{}
		d.must(d.read(region, "", "", 0, func(b batch) error {
			for _, r := range b.GetRecords() {
				key := r.GetRecord().GetKey()
				if got := string(r.GetRecord().GetBody()); got != fmt.Sprint(next[key]) {
					t.Errorf("in %s: moment %s of %s, expected %d", region, got, key, next[key])
				}
				next[key]++
			}
			return nil
		}))
		if len(next) != 2*lives {
			t.Errorf("in %s: %d orders", region, len(next))
		}
		for key, n := range next {
			if n != moments {
				t.Errorf("in %s: %s has %d moments", region, key, n)
			}
		}
	}
}

// table is a read model: the last moment of each order, and the records it was made of.
type table struct {
	last map[string]string
	from []string
}

func (m *table) take(b batch) {
	for _, r := range b.GetRecords() {
		m.last[r.GetRecord().GetKey()] = string(r.GetRecord().GetBody())
		m.from = append(m.from, fmt.Sprint(r.GetLog(), r.GetSequence(), r.GetRecord().GetId()))
	}
}

// TestRA1_D3_Decision15_Decision19_ANewReaderRebuildsTheLiveTable: a reader that follows from
// the start has a table; one that comes later reads from the oldest record on, gets every
// change in order, and has the same table in the end.
func TestRA1_D3_Decision15_Decision19_ANewReaderRebuildsTheLiveTable(t *testing.T) {
	const lives, moments = 20, 10
	d := start(t, lab.Options{})
	live := &table{last: map[string]string{}}
	following, all := context.WithTimeout(t.Context(), soon)
	defer all()
	door, err := d.lab.Region("us-east").Door(0)
	d.must(err)
	defer door.Close()
	var reader sync.WaitGroup
	reader.Go(func() {
		_ = door.Read(following, &pb.ReadRequest{Topic: "orders", Slot: "us-east", Follow: true}, func(b *pb.ReadResponse) error { // ends with its context
			if live.take(b); len(live.from) >= lives*moments {
				all()
			}
			return nil
		})
	})
	d.trader("us-east", "us", lives, moments)
	reader.Wait()
	shadow := &table{last: map[string]string{}}
	d.must(d.read("us-east", "us-east", "", 0, func(b batch) error { shadow.take(b); return nil }))
	if !maps.Equal(live.last, shadow.last) || len(shadow.last) != lives {
		t.Errorf("live %v, rebuilt %v", live.last, shadow.last)
	}
	if len(shadow.from) != lives*moments || !slices.Equal(live.from, shadow.from) {
		t.Errorf("the live reader got %d records, the new one %d:\n%s", len(live.from), len(shadow.from), strings.Join(shadow.from, "\n"))
	}
}
