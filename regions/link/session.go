package link

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	pb "domicile/api/domicile/v1"
	"domicile/api/wire"
	"domicile/regions"
)

const (
	dataSilence = 5  // heartbeats without a byte on the data lane: it is lost
	staleBeats  = 10 // heartbeats without a word: what the peer once opened is closed

	marksPerFrame = 500 // at most; fewer where the line is slow
	marksPerRound = 2000
	bytesOfMark   = 128 // about

	slowestLine = 4 << 10 // bytes a second, of a line on which a link still has to come up
)

var (
	errDataSilent   = errors.New("the data lane carries nothing, not even answers")
	errClosedByPeer = errors.New("the peer closed the connection")
	errDisplaced    = errors.New("another run of the peer has the link now")
)

// session is one row of heartbeats: the two lanes dialed to a peer, from hello to the
// first thing that fails. What fails takes the whole session with it.
type session struct {
	peer          *peerLink
	control, data *lane
	began         time.Time
	ends          time.Time // of our certificate, as the peer was told; sendControl's alone

	ctx  context.Context
	stop context.CancelCauseFunc
	wg   sync.WaitGroup

	forwards *forwarder
	credits  *credits
	flows    atomic.Int32 // that are open

	beatDue  chan struct{} // what we hear has changed: say so now
	helloDue chan struct{}
	frames   chan *pb.WatermarkList
	tails    chan *pb.TailList
	marks    *pacer // of the frames and tails

	mu      sync.Mutex
	number  uint64
	waiting map[uint64]beatSent // heartbeats without an answer yet
}

// beatSent is when a heartbeat was sent, and behind how many bytes of watermarks.
type beatSent struct {
	at    time.Time
	marks int64
}

func newSession(p *peerLink) *session {
	s := &session{peer: p, beatDue: make(chan struct{}, 1), helloDue: make(chan struct{}, 1),
		frames: make(chan *pb.WatermarkList), tails: make(chan *pb.TailList), waiting: map[uint64]beatSent{},
		marks: newPacer(p.mesh.cfg.Clock), forwards: newForwarder(p)}
	s.credits = newCredits(p.mesh.cfg.Clock, func() int { return s.data.raw.pacer.holds() })
	return s
}

func (s *session) bytesOut() uint64 {
	return uint64(s.credits.inFlight() + s.forwards.bytesInFlight())
}

func (s *session) closeLanes() {
	for _, l := range []*lane{s.control, s.data} {
		if l != nil {
			l.close()
		}
	}
}

// end ends the session for the first reason given.
func (s *session) end(why error) { s.stop(why) }

// greet opens one lane and exchanges hellos on it: on each connection the accepting
// side serves nothing before.
func (p *peerLink) greet(ctx context.Context, plane Plane) (*lane, error) {
	l, err := p.openLane(ctx, plane)
	if errors.Is(err, context.DeadlineExceeded) {
		return nil, fmt.Errorf("%s does not answer on the %s lane", p.address, plane)
	}
	if err != nil {
		return nil, err
	}
	hello := &pb.HelloRequest{Hello: wire.HelloToProto(p.mesh.hello())}
	helloCtx, cancelHello := context.WithTimeout(ctx, p.mesh.cfg.Pace.Of(helloTimeout)+helloTakes(proto.Size(hello)))
	defer cancelHello()
	answer, err := l.client.Hello(helloCtx, hello)
	if err != nil {
		err = detailed(l.why(err))
		l.close()
		if errors.Is(helloCtx.Err(), context.DeadlineExceeded) {
			err = errors.New("no answer")
		}
		return nil, fmt.Errorf("hello to %s on the %s lane: %w", p.address, plane, err)
	}
	theirs, err := wire.HelloFromProto(answer.GetHello())
	if err == nil {
		err = p.accept(theirs)
	}
	if err != nil {
		p.lied(regions.LaneHello, err)
		l.close()
		return nil, fmt.Errorf("hello to %s: %w", p.address, err)
	}
	l.hello = theirs
	return l, nil
}

// helloTakes is how long a slow line carries a hello of this size and its answer: one of
// a federation with many topics is long, and must not keep a link from coming up.
func helloTakes(size int) time.Duration {
	return time.Duration(2*size) * time.Second / slowestLine
}

// detailed brings out our own error from a status that carries one.
func detailed(err error) error { return wire.FromPeer(err) }

// run works until something fails, then clears up and says what failed.
func (s *session) run(ctx context.Context) error {
	s.ctx, s.stop = context.WithCancelCause(ctx)
	defer s.stop(nil)
	s.began, s.ends = s.peer.now(), s.peer.mesh.cfg.Identity.Ends()
	err := s.start()
	if err == nil {
		<-s.ctx.Done()
		err = context.Cause(s.ctx)
	}
	s.peer.sessionOver(s, err)
	s.forwards.close(err)
	s.stop(err)
	s.closeLanes()
	s.wg.Wait()
	return err
}

func (s *session) start() error {
	control, err := s.control.client.Control(s.ctx)
	if err != nil {
		return s.control.why(err)
	}
	forward, err := s.data.client.Forward(s.ctx)
	if err != nil {
		return s.data.why(err)
	}
	if !s.peer.sessionBegun(s) {
		return errDisplaced
	}
	s.data.raw.pacer.start()
	s.marks.start()
	s.work(s.control, true, func() error { return s.sendControl(control) })
	s.work(s.control, false, func() error { return s.recvControl(control) })
	s.work(s.control, false, s.makeRounds)
	s.work(s.control, false, s.tellTails)
	s.work(s.data, true, func() error { return s.forwards.send(s.ctx, forward) })
	s.work(s.data, false, func() error { return s.forwards.receive(forward, s.data.raw.pacer) })
	s.work(s.data, false, func() error { return s.forwards.sweep(s.ctx) })
	return nil
}

// work runs one part of the session; its error ends the session. An EOF from a
// sender means only that the stream is over; its receiver learns why.
func (s *session) work(l *lane, sends bool, part func() error) {
	s.wg.Go(func() {
		if err := part(); err != nil && !(sends && errors.Is(err, io.EOF)) {
			s.end(plain(detailed(l.why(err))))
		}
	})
}

// sendControl is the only sender on the control stream. Heartbeats come first: a
// round of watermarks goes out in frames, a heartbeat that is due goes between two of
// them, and no more frames are handed over than the line carries in a moment: gRPC and
// the socket would take seconds of them, and the heartbeat would wait behind.
func (s *session) sendControl(stream grpc.BidiStreamingClient[pb.ControlRequest, pb.ControlResponse]) error {
	tick := time.NewTicker(s.peer.beat)
	defer tick.Stop()
	if err := s.sendBeat(stream); err != nil {
		return err
	}
	for {
		select {
		case <-tick.C:
			if err := s.sendBeat(stream); err != nil {
				return err
			}
			continue
		default:
		}
		frames, tails := s.frames, s.tails
		room, changed := s.marks.room()
		if !room {
			frames, tails = nil, nil
		}
		var err error
		select {
		case f := <-frames: // before any tail
			if err := s.sendFrame(stream, watermarks(f)); err != nil {
				return err
			}
			continue
		default:
		}
		select {
		case <-changed:
		case <-tick.C:
			err = s.sendBeat(stream)
		case <-s.beatDue:
			err = s.sendBeat(stream)
		case <-s.helloDue:
			err = stream.Send(&pb.ControlRequest{Frame: &pb.ControlRequest_Hello{Hello: wire.HelloToProto(s.peer.mesh.hello())}})
		case f := <-frames:
			err = s.sendFrame(stream, watermarks(f))
		case l := <-tails:
			err = s.sendFrame(stream, &pb.ControlRequest{Frame: &pb.ControlRequest_Tail{Tail: l}})
		case <-s.ctx.Done():
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func (s *session) sendBeat(stream grpc.BidiStreamingClient[pb.ControlRequest, pb.ControlResponse]) error {
	if ends := s.peer.mesh.cfg.Identity.Ends(); !ends.Equal(s.ends) { // it was renewed: a warning at the peer is over
		s.ends = ends
		signal(s.helloDue)
	}
	now := s.peer.now()
	hears := s.peer.hearsPeer(now)
	marks, _, _ := s.marks.position()
	s.mu.Lock()
	s.number++
	number := s.number
	s.waiting[number] = beatSent{now, marks}
	delete(s.waiting, number-offsetSamples) // bounded: answers that old no longer count
	s.mu.Unlock()
	return stream.Send(&pb.ControlRequest{Frame: &pb.ControlRequest_Heartbeat{Heartbeat: &pb.Heartbeat{
		Number: number, SentUnixNano: now.UnixNano(), HearsYou: hears,
	}}})
}

// sendFrame sends a part of a round, or a tail list, and a heartbeat whose answer says that it has
// arrived when that has to be known before the next one is due.
func (s *session) sendFrame(stream grpc.BidiStreamingClient[pb.ControlRequest, pb.ControlResponse], f *pb.ControlRequest) error {
	if err := stream.Send(f); err != nil {
		return err
	}
	if !s.marks.wrote(proto.Size(f)) {
		return nil
	}
	return s.sendBeat(stream)
}

func watermarks(f *pb.WatermarkList) *pb.ControlRequest {
	return &pb.ControlRequest{Frame: &pb.ControlRequest_Watermarks{Watermarks: f}}
}

func (s *session) recvControl(stream grpc.BidiStreamingClient[pb.ControlRequest, pb.ControlResponse]) error {
	for {
		m, err := stream.Recv()
		if err != nil {
			return err
		}
		r := m.GetReply()
		s.mu.Lock()
		sent, ok := s.waiting[r.GetNumber()]
		delete(s.waiting, r.GetNumber())
		s.mu.Unlock()
		if ok { // else it answers nothing that we asked
			s.marks.receipt(sent.marks)
			s.peer.answered(s, sent.at, time.Unix(0, r.GetReceivedUnixNano()), time.Unix(0, r.GetRepliedUnixNano()))
		}
	}
}

// makeRounds asks the node for watermarks every beat, also when idle, and hands them
// on in frames. The node may take its time: heartbeats do not wait for it.
func (s *session) makeRounds() error {
	tick := time.NewTicker(s.peer.beat)
	defer tick.Stop()
	all := true
	var instant time.Time
	for {
		w := s.peer.mesh.cfg.Handler.Marks(s.peer.name, all)
		for _, f := range frames(&w, instant, s.marks.holds()/2/bytesOfMark) {
			select {
			case s.frames <- f:
			case <-s.ctx.Done():
				return nil
			}
		}
		all, instant = false, w.Instant
		select {
		case <-tick.C:
		case <-s.ctx.Done():
			return nil
		}
	}
}

// frames cuts a round into frames of so many marks, within reason. A round above the limit loses its tail, says how
// many marks it lost, and repeats the last instant: an instant that moved on would
// close logs whose marks were left out.
func frames(w *regions.Watermarks, lastInstant time.Time, perFrame int) []*pb.WatermarkList {
	perFrame = min(max(perFrame, 1), marksPerFrame)
	if over := len(w.Logs) - marksPerRound; over > 0 {
		w.Logs, w.Refused, w.Instant = w.Logs[:marksPerRound], w.Refused+over, lastInstant
	}
	whole := wire.WatermarksToProto(*w)
	logs := whole.Logs
	var out []*pb.WatermarkList
	for first := true; first || len(logs) > 0; first = false {
		n := min(len(logs), perFrame)
		out = append(out, &pb.WatermarkList{
			IssuedUnixNano: whole.IssuedUnixNano, InstantUnixNano: whole.InstantUnixNano, All: whole.All, Refused: whole.Refused,
			Logs: logs[:n], More: n < len(logs),
		})
		logs = logs[n:]
	}
	return out
}
