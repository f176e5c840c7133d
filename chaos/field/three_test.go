package field_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"domicile/api"
	pb "domicile/api/domicile/v1"
	"domicile/chaos/field"
	"domicile/chaos/lab"
)

// region is a region of three processes and what its producers were told.
type region struct {
	*testing.T
	nodes []*field.Node

	mu    sync.Mutex
	acked map[string]api.Ack
}

// openThree starts eu-west alone, of three nodes; each lacks nothing.
func openThree(t *testing.T) *region {
	t.Helper()
	field.Need(t)
	f, err := field.Open(t.Context(), field.Options{Parent: t.TempDir(), Quorum: []string{"eu-west"}, Pace: quick})
	must(t, err)
	t.Cleanup(func() {
		if err := f.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	r := &region{T: t, nodes: f.Of("eu-west"), acked: map[string]api.Ack{}}
	for _, n := range r.nodes {
		must(t, n.Start())
	}
	for _, n := range r.nodes {
		must(t, lab.Poll(t.Context(), soon, func() error { return r.ready(n) }))
	}
	return r
}

// ready asks a node's /readyz.
func (r *region) ready(n *field.Node) error {
	code, page, err := n.Ready(r.Context())
	if err == nil && code != http.StatusOK {
		err = fmt.Errorf("%s: %d %s", n.Name, code, page)
	}
	return err
}

// seat is where a node sees the seat, and under which term.
func (r *region) seat(n *field.Node) (*pb.SeatState, error) {
	desk, err := n.Desk()
	if err != nil {
		return nil, err
	}
	defer desk.Close()
	s, err := desk.Status(r.Context())
	return s.GetSeat(), err
}

// holder waits until a node other than not says that it holds the seat.
func (r *region) holder(not *field.Node) (holder *field.Node, term uint64) {
	r.Helper()
	must(r.T, lab.Poll(r.Context(), soon, func() error {
		for _, n := range r.nodes {
			if n == not {
				continue
			}
			if s, err := r.seat(n); err == nil && s.GetOpen() && s.GetHolder() == n.Gateway {
				holder, term = n, s.GetTerm()
				return nil
			}
		}
		return errors.New("nobody holds the seat")
	}))
	return holder, term
}

// take publishes until the record is acknowledged.
func (r *region) take(n *field.Node, id string) (ack api.Ack) {
	r.Helper()
	must(r.T, lab.Poll(r.Context(), soon, func() (err error) { ack, err = publish(r.T, n, order(id, "eu")); return err }))
	r.told(id, ack)
	return ack
}

func (r *region) told(id string, ack api.Ack) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.acked[id] = ack
}

// orders is what a node says of its orders.
func (r *region) orders(n *field.Node) (*pb.LogHolding, error) {
	desk, err := n.Desk()
	if err != nil {
		return nil, err
	}
	defer desk.Close()
	s, err := desk.Topics(r.Context(), "orders")
	if err != nil {
		return nil, err
	}
	at := slices.IndexFunc(s.GetTopics()[0].GetLogs(), func(l *pb.LogHolding) bool { return l.GetLog().GetSlot() == "eu-west" })
	if at < 0 {
		return nil, errors.New("no orders@eu-west")
	}
	return s.GetTopics()[0].GetLogs()[at], nil
}

// judge sends everything again that was acknowledged: it is there, where it was said to be.
func (r *region) judge(n *field.Node) {
	r.Helper()
	places := map[uint64]string{}
	for id, before := range r.acked {
		var again api.Ack
		must(r.T, lab.Poll(r.Context(), soon, func() (err error) { again, err = publish(r.T, n, order(id, "eu")); return err }))
		if !again.Duplicate || again.Sequence != before.Sequence || again.Incarnation != before.Incarnation {
			r.Errorf("%s: was acknowledged at %d, now %+v", id, before.Sequence, again)
		}
		if other := places[before.Sequence]; other != "" {
			r.Errorf("%s and %s were both acknowledged at %d", id, other, before.Sequence)
		}
		places[before.Sequence] = id
	}
}

// A region of three whose holder is stopped as a machine hangs (SIGSTOP), over the loss of
// its seat, with calls of producers and an operator waiting in its sockets, then one whose
// disk is full, and one whose disk fails.
func TestRA1_ARegionOfThreeHungAndFull(t *testing.T) {
	r := openThree(t)
	t.Run("a woken holder acks and changes nothing", func(t *testing.T) { r.sleeper(t) })
	t.Run("readyz of a node with a full disk, B39", func(t *testing.T) { r.full(t) })
	t.Run("a node whose disk fails waits for a person, RA1", func(t *testing.T) { r.broken(t) })
}

func (r *region) sleeper(t *testing.T) {
	old, term := r.holder(nil)
	for i := range 10 {
		r.take(old, fmt.Sprint("before-", i))
	}
	// Both clients are connected before it sleeps: what they ask waits in its sockets.
	c, err := old.Client(1)
	must(t, err)
	defer c.Close()
	ack, err := c.Publish(t.Context(), order("connected", "eu"))
	must(t, err)
	r.told("connected", ack)
	desk, err := old.Desk()
	must(t, err)
	defer desk.Close()
	_, err = desk.Status(t.Context())
	must(t, err)
	must(t, old.Pause())
	ctx, cancel := context.WithTimeout(t.Context(), 2*soon)
	defer cancel()
	type outcome struct {
		id  string
		ack api.Ack
		err error
	}
	waiting := make(chan outcome, 20)
	for i := range cap(waiting) {
		go func() {
			id := fmt.Sprint("asleep-", i)
			ack, err := c.Publish(ctx, order(id, "eu"))
			waiting <- outcome{id, ack, err}
		}()
	}
	purged := make(chan error, 1)
	go func() {
		_, err := desk.PurgeTopic(ctx, &pb.TopicActRequest{Topic: "orders", Slot: "eu-west", ToSequence: 8, Force: true, Reason: "asked of a holder that sleeps"})
		purged <- err
	}()
	next, later := r.holder(old)
	if later <= term {
		t.Errorf("term %d after %d", later, term)
	}
	for i := range 10 {
		r.take(next, fmt.Sprint("meanwhile-", i))
	}
	must(t, old.Resume())
	for range cap(waiting) {
		switch o := <-waiting; {
		case o.err == nil && o.ack.WriterTerm < later:
			t.Errorf("the woken holder acknowledged %s under term %d, the seat is at %d: %+v", o.id, o.ack.WriterTerm, later, o.ack)
		case o.err == nil: // handed to who holds the seat now
			r.told(o.id, o.ack)
		case !api.CodeOf(o.err).Retryable():
			t.Errorf("%s: %v", o.id, o.err)
		}
	}
	if err := <-purged; err == nil {
		t.Error("the woken holder purged what was not its to purge any more")
	} else {
		t.Log("the operator was told: ", err)
	}
	must(t, lab.Poll(t.Context(), soon, func() error { return r.ready(old) }))
	if l, err := r.orders(next); err != nil || l.GetFirst() != 1 {
		t.Errorf("the log begins at %d, %v", l.GetFirst(), err)
	}
	r.judge(next)
}

func (r *region) full(t *testing.T) {
	holder, _ := r.holder(nil)
	full := r.nodes[slices.IndexFunc(r.nodes, func(n *field.Node) bool { return n != holder })]
	must(t, full.FillDisk())
	n := 0
	must(t, lab.Poll(t.Context(), soon, func() error {
		n++
		r.take(holder, fmt.Sprint("full-", n))
		code, page, err := full.Ready(t.Context())
		if err == nil && (code != http.StatusServiceUnavailable || !strings.Contains(page, "full") && !strings.Contains(page, "space")) {
			err = fmt.Errorf("%d %s", code, page)
		}
		return err
	}))
	if err := r.ready(holder); err != nil {
		t.Errorf("two of three take records, and the holder is not ready: %v", err)
	}
	must(t, full.FreeDisk(t.Context()))
	must(t, lab.Poll(t.Context(), soon, func() error { return r.ready(full) }))
	r.judge(holder)
}
