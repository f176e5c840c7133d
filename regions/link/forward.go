package link

import (
	"context"
	"sync"
	"time"

	"google.golang.org/grpc"

	"domicile/api"
	pb "domicile/api/domicile/v1"
	"domicile/api/wire"
	"domicile/regions"
)

// Bounds of forwards in flight towards one peer. Nothing is shared between peers: a
// dead home takes no room from the others.
const (
	maxForwards     = 4096
	maxForwardBytes = 32 << 20
)

// Forward sends a record to its home. It never blocks; done is called exactly once,
// at once and on this goroutine when the record is refused here, else from one of
// the mesh's goroutines, which it must not block.
//
// While the link is not up the record is refused with HomeUnreachable, with how long
// that has lasted; over the bounds of this destination with Overloaded. In both cases
// nothing has left. Once it may have left, a lost link or a passed deadline is
// OutcomeUnknown.
func (m *Mesh) Forward(peer string, f regions.Forward, done func(api.Ack, error)) {
	p, ok := m.peers[peer]
	if !ok {
		done(api.Ack{}, &api.Error{Code: api.UnknownRegion, Op: "forward", Region: peer, Hint: "the manifest has no link with it"})
		return
	}
	if m.closing.Load() {
		done(api.Ack{}, &api.Error{Code: api.ShuttingDown, Op: "forward", Region: peer, Hint: "send it to another node, with the same id"})
		return
	}
	if f.Deadline.IsZero() {
		f.Deadline = p.now().Add(m.cfg.Pace.Of(forwardWithin))
	}
	s := p.upSession()
	if s == nil {
		done(api.Ack{}, p.unreachable("forward"))
		return
	}
	s.forwards.submit(f, done)
}

// upSession is the session while the link is up.
func (p *peerLink) upSession() *session {
	now := p.now()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.evaluate(now); !p.up {
		return nil
	}
	return p.session
}

// flight is one record on its way.
type flight struct {
	number  uint64
	forward regions.Forward
	size    int
	sent    bool // it may have left
	done    func(api.Ack, error)
}

// forwarder carries the forwards of one session: one stream, many in flight.
type forwarder struct {
	peer *peerLink

	mu      sync.Mutex
	over    bool
	next    uint64
	records *regions.Shares // of flights, by topic
	bytes   *regions.Shares
	flights map[uint64]*flight
	queue   regions.Turns[*flight] // not sent yet, by topic
	wake    chan struct{}
}

func newForwarder(p *peerLink) *forwarder {
	return &forwarder{peer: p, flights: map[uint64]*flight{}, wake: make(chan struct{}, 1),
		records: regions.NewShares(maxForwards), bytes: regions.NewShares(maxForwardBytes)}
}

func (w *forwarder) count() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.flights)
}

func (w *forwarder) bytesInFlight() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.bytes.Held()
}

func (w *forwarder) submit(f regions.Forward, done func(api.Ack, error)) {
	if err := w.enqueue(f, done); err != nil {
		done(api.Ack{}, err)
	}
}

func (w *forwarder) enqueue(f regions.Forward, done func(api.Ack, error)) error {
	size, topic := f.Record.Size(), f.Record.Topic
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.over {
		return &api.Error{Code: api.HomeUnreachable, Op: "forward", Region: w.peer.name, RetryAfter: w.peer.beat / 5,
			Hint: "the link has just gone down: send it again with the same id"}
	}
	if !w.records.Room(topic, 1) || !w.bytes.Room(topic, size) {
		return &api.Error{Code: api.Overloaded, Op: "forward", Topic: topic, Region: w.peer.name, RetryAfter: w.peer.beat / 10,
			Hint: "too much of the topic is on its way to this region already: send it again with the same id"}
	}
	w.next++
	fl := &flight{number: w.next, forward: f, size: size, done: done}
	w.flights[fl.number] = fl
	w.records.Take(topic, 1)
	w.bytes.Take(topic, size)
	w.queue.Push(topic, fl)
	signal(w.wake)
	return nil
}

// take is the next record to send, marked as possibly gone: whatever happens to the
// stream from here on, nobody can say that it did not leave.
func (w *forwarder) take(now time.Time) *flight {
	w.mu.Lock()
	defer w.mu.Unlock()
	for fl, ok := w.queue.Pop(); ok; fl, ok = w.queue.Pop() {
		if _, waiting := w.flights[fl.number]; waiting && now.Before(fl.forward.Deadline) {
			fl.sent = true
			return fl
		} // else its time is over: sweep has told or will tell
	}
	return nil
}

// send is the stream's only sender. Between records it asks for an answer every beat,
// so that a data lane that has died is noticed while idle.
func (w *forwarder) send(ctx context.Context, stream grpc.BidiStreamingClient[pb.ForwardRequest, pb.ForwardResponse]) error {
	tick := time.NewTicker(w.peer.beat)
	defer tick.Stop()
	if err := stream.Send(&pb.ForwardRequest{}); err != nil { // the first answer tells whether the peer sends receipts
		return err
	}
	for {
		select {
		case <-w.wake:
		case <-tick.C:
			if err := stream.Send(&pb.ForwardRequest{}); err != nil { // number 0, no record: a probe
				return err
			}
		case <-ctx.Done():
			return nil
		}
		for {
			now := w.peer.now()
			fl := w.take(now)
			if fl == nil {
				break
			}
			if err := stream.Send(wire.ForwardToProto(fl.number, &fl.forward, now)); err != nil {
				return err
			}
		}
	}
}

func (w *forwarder) receive(stream grpc.BidiStreamingClient[pb.ForwardRequest, pb.ForwardResponse], p *pacer) error {
	for {
		m, err := stream.Recv()
		if err != nil {
			return err
		}
		if received := m.GetReceived(); received > 0 {
			p.receipt(int64(received))
		} else {
			p.stop()
		}
		if m.GetNumber() == 0 {
			continue // the answer to a probe, or a receipt
		}
		ack, err := w.outcome(m)
		w.finish(m.GetNumber(), ack, err)
	}
}

// outcome reads an answer. One that says nothing is no ack.
func (w *forwarder) outcome(m *pb.ForwardResponse) (api.Ack, error) {
	switch r := m.GetResult().(type) {
	case *pb.ForwardResponse_Ack:
		if r.Ack != nil {
			return wire.PeerAck(r.Ack), nil
		}
	case *pb.ForwardResponse_Error:
		if err := wire.PeerStatus(r.Error); err != nil {
			return api.Ack{}, err
		}
	}
	return api.Ack{}, w.unknown("the home's answer says nothing", nil)
}

func (w *forwarder) unknown(hint string, cause error) error {
	return &api.Error{Code: api.OutcomeUnknown, Op: "forward", Region: w.peer.name, Err: cause, Hint: hint + ": send it again with the same id"}
}

func (w *forwarder) finish(number uint64, ack api.Ack, err error) {
	if fl := w.remove(number); fl != nil {
		if err == nil { // it is the record that was sent, whatever the home says
			ack.ID = fl.forward.Record.ID
		}
		fl.done(ack, err)
	}
}

// remove takes a flight out; nil if its outcome was told before.
func (w *forwarder) remove(number uint64) *flight {
	w.mu.Lock()
	defer w.mu.Unlock()
	fl, ok := w.flights[number]
	if !ok {
		return nil
	}
	w.letGo(fl)
	return fl
}

// letGo counts a flight no more; w.mu is held.
func (w *forwarder) letGo(fl *flight) {
	delete(w.flights, fl.number)
	w.records.Back(fl.forward.Record.Topic, 1)
	w.bytes.Back(fl.forward.Record.Topic, fl.size)
}

// sweep ends flights whose deadline has passed.
func (w *forwarder) sweep(ctx context.Context) error {
	tick := time.NewTicker(w.peer.beat / 20)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
		for _, fl := range w.overdue(w.peer.now()) {
			w.fail(fl, "the deadline passed before the home answered", nil)
		}
	}
}

func (w *forwarder) overdue(now time.Time) []*flight {
	w.mu.Lock()
	defer w.mu.Unlock()
	var late []*flight
	for _, fl := range w.flights {
		if !now.Before(fl.forward.Deadline) {
			w.letGo(fl)
			late = append(late, fl)
		}
	}
	if len(late) > 0 { // a sender that is held must not collect what nobody waits for
		w.queue.Drop(func(fl *flight) bool { return w.flights[fl.number] == nil })
	}
	return late
}

// fail tells a flight that was taken out why, by whether it may have left.
func (w *forwarder) fail(fl *flight, hint string, cause error) {
	if fl.sent {
		fl.done(api.Ack{}, w.unknown(hint, cause))
		return
	}
	fl.done(api.Ack{}, &api.Error{Code: api.HomeUnreachable, Op: "forward", Region: w.peer.name, Err: cause, RetryAfter: w.peer.beat / 5,
		Hint: "it was not sent: send it again with the same id"})
}

// close ends every flight: the session is over.
func (w *forwarder) close(cause error) {
	w.mu.Lock()
	left := w.flights
	w.over, w.flights, w.queue = true, map[uint64]*flight{}, regions.Turns[*flight]{}
	w.records, w.bytes = regions.NewShares(maxForwards), regions.NewShares(maxForwardBytes)
	w.mu.Unlock()
	for _, fl := range left {
		w.fail(fl, "the link was lost before the home answered", cause)
	}
}
