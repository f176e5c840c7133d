package node_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"domicile/api"
	"domicile/api/client"
	pb "domicile/api/domicile/v1"
	"domicile/chaos/lab"
	"domicile/gateway/node"
	"domicile/regions/fabric"
)

// seats takes the seat away from a node and gives it back.
type seats struct {
	mu      sync.Mutex
	now     fabric.Seat
	changed chan struct{}
}

func newSeats() *seats {
	return &seats{now: fabric.Seat{Node: "eu-west", Mine: true, Term: 1}, changed: make(chan struct{})}
}

func (s *seats) hook(m *node.Seams) {
	m.Hooks.Seat = func(node.Seats) node.Seats { return s.get }
}

func (s *seats) get() (fabric.Seat, <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.now, s.changed
}

func (s *seats) set(now fabric.Seat) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.now = now
	close(s.changed)
	s.changed = make(chan struct{})
}

func (s *seats) away(reason string) { s.set(fabric.Seat{Term: 1, Reason: reason}) }
func (s *seats) back(term uint64)   { s.set(fabric.Seat{Node: "eu-west", Mine: true, Term: term}) }

// A producer keeps its connection while the seat is away and comes back: in between it
// is refused with the reason and when to try again, and nothing that was acknowledged is
// lost or stored twice.
func TestRA1_ProducersStayConnectedAcrossTurns(t *testing.T) {
	w, s := newWorld(t), newSeats()
	w.policy(1, soloRules)
	n := w.start(s.hook)
	c := dial(t, n.Door())
	publish := func(id string) (api.Ack, error) {
		return c.Publish(t.Context(), &api.Record{ID: id, Topic: "orders", Tags: []api.Tag{{Name: "residency", Value: "eu"}}, Body: []byte("x")})
	}
	acked := map[string]api.Ack{}
	term := uint64(1)
	for round := range 3 {
		id := fmt.Sprint("id-", round)
		a, err := publish(id)
		if err != nil {
			t.Fatal(err)
		}
		acked[id] = a
		s.away("the disk is full")
		var refused *api.Error
		if err := lab.Poll(t.Context(), 30*time.Second, func() error {
			if _, err := publish("between"); !errors.As(err, &refused) || refused.Code != api.NotReady {
				return fmt.Errorf("got %w, want NOT_READY", err)
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		if refused.RetryAfter <= 0 || !strings.Contains(refused.Hint, "the disk is full") {
			t.Errorf("the refusal does not say why and when: %+v", refused)
		}
		if code, page := ready(t, n); code != http.StatusServiceUnavailable || !strings.Contains(page, "the disk is full") {
			t.Errorf("readyz: %d %q", code, page)
		}
		m := w.status(n)
		if m.GetLevel() != "failed" || !strings.Contains(m.GetVerdict(), "the disk is full") {
			t.Errorf("status: %s", m.GetVerdict())
		}
		if _, err := dial(t, n.Admin()).Topics(t.Context(), "orders"); err != nil {
			t.Error(err)
		}
		term++
		s.back(term)
		if err := lab.Poll(t.Context(), 30*time.Second, func() error {
			a, err := publish(id)
			if err == nil && (!a.Duplicate || a.Sequence != acked[id].Sequence) {
				t.Fatalf("acked as %+v, sent again %+v", acked[id], a)
			}
			return err
		}); err != nil {
			t.Fatal(err)
		}
	}
	if code, page := ready(t, n); code != http.StatusOK {
		t.Errorf("readyz: %d %q", code, page)
	}
}

// A reader that follows is told to go on from where it is, and the client does: no
// record is left out and none comes twice.
func TestRD1_AReaderGoesOnInTheNextTurn(t *testing.T) {
	w, s := newWorld(t), newSeats()
	w.policy(1, soloRules)
	n := w.start(s.hook)
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	got := make(chan string, 16)
	var group sync.WaitGroup
	defer group.Wait()
	defer cancel()
	reader := dial(t, n.Door())
	group.Go(func() {
		err := reader.Read(ctx, &pb.ReadRequest{Topic: "orders", Follow: true}, func(b *pb.ReadResponse) error {
			for _, r := range b.GetRecords() {
				got <- r.GetRecord().GetId()
			}
			return nil
		})
		if ctx.Err() == nil {
			t.Errorf("the reader ended: %v", err)
		}
	})
	for term := range uint64(3) {
		id := fmt.Sprint("id-", term)
		if err := lab.Poll(ctx, 30*time.Second, func() error { _, err := w.publish(n, id); return err }); err != nil {
			t.Fatal(err)
		}
		select {
		case read := <-got:
			if read != id {
				t.Fatalf("read %s, want %s", read, id)
			}
		case <-ctx.Done():
			t.Fatal("the record did not come")
		}
		s.away("away")
		s.back(term + 2)
	}
	if len(got) != 0 {
		t.Errorf("read again: %s", <-got)
	}
}

// Each loss of the seat ends one turn, also when the seat is back before the node has
// looked: another term is another turn. A node closes in any of these states.
func TestRA1_SeatFlapsAndClose(t *testing.T) {
	for _, last := range []string{"away", "back", "at once"} {
		t.Run(last, func(t *testing.T) {
			w, s := newWorld(t), newSeats()
			w.policy(1, soloRules)
			n := w.make(s.hook)
			if err := n.Start(t.Context()); err != nil {
				t.Fatal(err)
			}
			publisher := dial(t, n.Door()).NewPublisher(client.Window{Records: 64})
			for term := uint64(2); term < 6; term++ {
				s.back(term) // without a word in between
				publisher.Publish(t.Context(), api.Record{ID: fmt.Sprint(term), Topic: "orders", Tags: []api.Tag{{Name: "residency", Value: "eu"}}, Body: []byte("x")}, func(_ api.Ack, err error) {
					if err != nil && !api.CodeOf(err).Retryable() {
						t.Errorf("not to be retried: %v", err)
					}
				})
			}
			switch last {
			case "away":
				s.away("gone")
			case "back":
				if err := lab.Poll(t.Context(), 30*time.Second, func() error { _, err := w.publish(n, "last"); return err }); err != nil {
					t.Fatal(err)
				}
			}
			w.stop(n)
			over, cancel := context.WithCancel(t.Context())
			cancel() // what has no outcome now gets none: nobody is there
			_ = publisher.Close(over)
		})
	}
}

func ready(t *testing.T, n *node.Node) (int, string) {
	t.Helper()
	r, err := http.Get("http://" + n.Metrics() + "/readyz")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	b, _ := io.ReadAll(r.Body)
	return r.StatusCode, string(b)
}
