package link

import (
	"context"
	"errors"
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
		w.answered(m)
	}
}

// errForged stands for an answer that no correct home gives.
var errForged = errors.New("no home answers so")

// answered tells what became of a record. An answer that no correct home gives is none, and is
// counted against it.
func (w *forwarder) answered(m *pb.ForwardResponse) {
	fl, asked := w.remove(m.GetNumber())
	ack, err := outcome(m)
	if err == nil && fl != nil && ack.ID != "" && ack.ID != fl.forward.Record.ID {
		err = errForged
	}
	if err == errForged || !asked {
		w.peer.mesh.cfg.Refused.Add(w.peer.name, regions.LaneForward, regions.Malformed)
		err = w.unknown("the home's answer is none that a region gives, and is not believed", nil)
	}
	if fl == nil {
		return
	}
	ack.ID = fl.forward.Record.ID // it is left out on the wire
	fl.done(ack, err)
}

// outcome reads an answer.
func outcome(m *pb.ForwardResponse) (api.Ack, error) {
	switch r := m.GetResult().(type) {
	case *pb.ForwardResponse_Ack:
		if ack, err := wire.PeerAck(r.Ack); r.Ack != nil && err == nil {
			return ack, nil
		}
	case *pb.ForwardResponse_Error:
		if err := wire.ErrorFromStatus(r.Error); err != nil && api.IsWord(string(api.CodeOf(err)), maxCode) {
			return api.Ack{}, wire.PeerStatus(r.Error)
		}
	}
	return api.Ack{}, errForged
}

const maxCode = 128 // bytes of an error's code

func (w *forwarder) unknown(hint string, cause error) error {
	return &api.Error{Code: api.OutcomeUnknown, Op: "forward", Region: w.peer.name, Err: cause, Hint: hint + ": send it again with the same id"}
}

// remove takes a flight out; nil if its outcome was told before. Not asked: no record of that
// number was sent.
func (w *forwarder) remove(number uint64) (fl *flight, asked bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	fl = w.flights[number]
	switch {
	case number > w.next || fl != nil && !fl.sent:
		return nil, false
	case fl != nil:
		w.letGo(fl)
	}
	return fl, true
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
