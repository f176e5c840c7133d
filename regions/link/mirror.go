package link

import (
	"context"
	"errors"
	"io"
	"sync"

	"google.golang.org/grpc"

	"domicile/api"
	pb "domicile/api/domicile/v1"
	"domicile/api/wire"
	"domicile/regions"
)

// maxPieces is how many messages of one flow may be in flight, however small.
const maxPieces = 1024

// OpenMirror opens one flow to a peer. The first reply on the stream answers the
// open. It fails with HomeUnreachable while the link is not up. ctx bounds only the
// opening; Close, or the end of the link, ends the flow.
func (m *Mesh) OpenMirror(ctx context.Context, peer string, o regions.MirrorOpen) (regions.MirrorStream, error) {
	p, ok := m.peers[peer]
	if !ok {
		return nil, &api.Error{Code: api.UnknownRegion, Op: "open mirror", Region: peer, Hint: "the manifest has no link with it"}
	}
	s := p.upSession()
	if s == nil {
		return nil, p.unreachable("open mirror")
	}
	flowCtx, cancel := context.WithCancelCause(s.ctx)
	opening := context.AfterFunc(ctx, func() { cancel(context.Cause(ctx)) })
	stream, err := s.data.client.Mirror(flowCtx)
	if err == nil {
		err = stream.Send(&pb.MirrorRequest{Frame: &pb.MirrorRequest_Open{Open: wire.MirrorOpenToProto(o)}})
	}
	if !opening() && err == nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		cancel(err)
		return nil, p.lost("open mirror", err)
	}
	f := &flow{session: s, stream: stream, ctx: flowCtx, cancel: cancel, replies: make(chan regions.MirrorReply, maxPieces+1), ended: make(chan struct{})}
	s.flows.Add(1)
	go f.receive() // owned by the flow: ends with it, and Close waits
	return f, nil
}

// lost is the error of a flow that ended with the link. What was in flight may or may
// not be stored at the target; its cursor says so at the next open.
func (p *peerLink) lost(op string, err error) error {
	err = wire.FromPeer(err)
	if e := wire.ErrorFromGRPC(err); !isUnknown(e) {
		return e
	}
	return &api.Error{Code: api.HomeUnreachable, Op: op, Region: p.name, Err: err, Hint: "the flow goes on by itself when the link is back"}
}

// flow is one log's way to one target, a gRPC stream of its own.
type flow struct {
	session *session
	stream  grpc.BidiStreamingClient[pb.MirrorRequest, pb.MirrorResponse]
	ctx     context.Context
	cancel  context.CancelCauseFunc
	replies chan regions.MirrorReply // room for the open's and one for each piece in flight
	ended   chan struct{}            // closed by receive, which sets err before

	err error

	mu      sync.Mutex
	pieces  []piece // in flight, oldest first
	held    int     // the sum of their sizes
	waiting bool    // for credits
	seen    int64   // how far the line was at the last call of Moving
	over    bool
}

// piece is what goes over as one message: a batch, or a part of one that is larger
// than the window.
type piece struct {
	size int
	by   int64 // it has arrived once the peer has read this much of the connection
}

// bytesHeld is what the flow has in flight, or more than any window when it may have no
// more messages.
func (f *flow) bytesHeld() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.pieces) >= maxPieces {
		return 2 * maxWindow
	}
	return f.held
}

// Send hands one batch over; it blocks while the link's credits are used up. A batch
// that is larger than what the line moves in a moment goes in pieces, each with a reply
// of its own. If ctx ends while a piece is on its way into the stream, the flow ends
// with it.
func (f *flow) Send(ctx context.Context, b regions.MirrorBatch) error {
	if itemsSize(b.Items) > maxMessage-(1<<20) {
		return &api.Error{Code: api.BadRequest, Op: "mirror", Region: f.session.peer.name, Field: "items", Hint: "send smaller batches"}
	}
	for rest := b.Items; len(rest) > 0; {
		n, size := cut(rest, f.session.data.raw.pacer.holds()/2)
		b.Items, rest = rest[:n], rest[n:]
		if err := f.sendPiece(ctx, b, size); err != nil {
			return err
		}
	}
	return nil
}

func itemsSize(items []regions.Item) (size int) {
	for i := range items {
		size += items[i].Size()
	}
	return size
}

// cut is how many of the first items fit into limit, at least one, and their size.
func cut(items []regions.Item, limit int) (n, size int) {
	for ; n < len(items); n++ {
		s := items[n].Size()
		if n > 0 && size+s > limit {
			break
		}
		size += s
	}
	return n, size
}

func (f *flow) sendPiece(ctx context.Context, b regions.MirrorBatch, size int) error {
	p := f.session.peer
	if ctx.Err() != nil { // AfterFunc below would tell, but later
		return context.Cause(ctx)
	}
	waitCtx, stopWaiting := context.WithCancelCause(f.ctx)
	defer stopWaiting(nil)
	defer context.AfterFunc(ctx, func() { stopWaiting(context.Cause(ctx)) })()
	f.wait(true)
	err := f.session.credits.take(waitCtx, size, f.bytesHeld)
	f.wait(false)
	if err != nil {
		return p.lost("mirror", err)
	}
	if err := f.book(size); err != nil {
		f.session.credits.put(size, false)
		return err
	}
	defer context.AfterFunc(ctx, func() { f.cancel(context.Cause(ctx)) })()
	if err := f.stream.Send(&pb.MirrorRequest{Frame: &pb.MirrorRequest_Batch{Batch: wire.MirrorBatchToProto(&b)}}); err != nil {
		if !errors.Is(err, io.EOF) { // EOF: the stream is over already, and receive learns why
			f.cancel(err)
		}
		<-f.ended
		return f.err
	}
	return nil
}

func (f *flow) wait(waiting bool) {
	f.mu.Lock()
	f.waiting = waiting
	f.mu.Unlock()
}

func (f *flow) book(size int) error {
	by := f.session.arrivesBy(size)
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.over {
		return f.session.peer.lost("mirror", context.Cause(f.ctx))
	}
	f.pieces = append(f.pieces, piece{size, by})
	f.held += size
	return nil
}

// receive takes replies and gives credits back, whether or not anyone calls Recv.
func (f *flow) receive() {
	defer close(f.ended)
	defer f.session.flows.Add(-1)
	for first := true; ; first = false {
		m, err := f.stream.Recv()
		if err != nil {
			f.finish(err)
			return
		}
		if !first && !f.answered() {
			f.session.peer.mesh.cfg.Refused.Add(f.session.peer.name, regions.LaneMirror, regions.Malformed)
			f.finish(errUnasked)
			return
		}
		reply, err := wire.MirrorReplyFromProto(m)
		if err != nil {
			f.session.peer.lied(regions.LaneMirror, err)
			f.finish(err)
			return
		}
		select {
		case f.replies <- reply:
		case <-f.ctx.Done():
		}
	}
}

// answered gives back the credits of the oldest batch: each gets one reply, in order.
func (f *flow) answered() bool {
	f.mu.Lock()
	if len(f.pieces) == 0 {
		f.mu.Unlock()
		return false
	}
	n := f.pieces[0].size
	f.pieces = f.pieces[1:]
	f.held -= n
	f.mu.Unlock()
	f.session.credits.put(n, true)
	return true
}

var errUnasked = errors.New("the target sent a reply to no batch")

func (f *flow) finish(err error) {
	f.mu.Lock()
	n := f.held
	f.over, f.pieces, f.held = true, nil, 0
	f.mu.Unlock()
	f.session.credits.put(n, false)
	if cause := context.Cause(f.ctx); cause != nil {
		err = cause
	}
	f.err = f.session.peer.lost("mirror", err)
	f.cancel(f.err)
}

// Recv returns the next reply.
func (f *flow) Recv(ctx context.Context) (regions.MirrorReply, error) {
	select {
	case r := <-f.replies:
		return r, nil
	default:
	}
	select {
	case r := <-f.replies:
		return r, nil
	case <-f.ended:
	case <-ctx.Done():
		return regions.MirrorReply{}, context.Cause(ctx)
	}
	select {
	case r := <-f.replies: // it came before the end
		return r, nil
	default:
		return regions.MirrorReply{}, f.err
	}
}

// Moving tells a flow that the line is slow from one whose target does not answer:
// only the first is worth waiting for.
func (f *flow) Moving() bool {
	_, arrived, telling := f.session.data.raw.pacer.position()
	f.mu.Lock()
	defer f.mu.Unlock()
	moved := arrived > f.seen
	f.seen = arrived
	return telling && moved && (f.waiting || len(f.pieces) > 0 && arrived < f.pieces[0].by)
}

// arrivesBy is how far the peer has read once a message of this size that is handed
// over now is there, for certain. All that is in flight may go first, and streams take
// turns; what a message has around its records is counted as much again.
func (s *session) arrivesBy(size int) int64 {
	written, _, _ := s.data.raw.pacer.position()
	ahead := s.credits.inFlight() + s.forwards.bytesInFlight()
	return written + 2*int64(ahead+size*max(int(s.flows.Load()), 1)+writeBuffer)
}

// Close ends the flow and waits for its goroutine.
func (f *flow) Close() {
	f.cancel(context.Canceled)
	<-f.ended
}

// Mirror is the target's end of one flow.
func (s *service) Mirror(stream grpc.BidiStreamingServer[pb.MirrorRequest, pb.MirrorResponse]) error {
	_, p, err := s.caller(stream.Context(), "mirror", Data)
	if err != nil {
		return err
	}
	first, err := stream.Recv()
	if err != nil {
		p.garbled(regions.LaneMirror, err)
		return err
	}
	if first.GetOpen() == nil {
		err := &api.Error{Code: api.BadRequest, Op: "mirror", Field: "open", Hint: "a flow begins with an open"}
		p.lied(regions.LaneMirror, err)
		return wire.GRPCError(err)
	}
	open, err := wire.MirrorOpenFromProto(first.GetOpen())
	if err != nil {
		p.lied(regions.LaneMirror, err)
		return wire.GRPCError(err)
	}
	sink, reply := s.mesh.cfg.Handler.OpenMirror(stream.Context(), p.name, open)
	if sink != nil {
		defer sink.Close()
	}
	if err := stream.Send(wire.MirrorReplyToProto(reply)); err != nil || sink == nil {
		return err
	}
	return p.applyAll(stream, sink)
}

// applyAll applies one batch after the other; each gets one reply.
func (p *peerLink) applyAll(stream grpc.BidiStreamingServer[pb.MirrorRequest, pb.MirrorResponse], sink MirrorSink) error {
	for {
		m, err := stream.Recv()
		if err != nil {
			p.garbled(regions.LaneMirror, err)
			return err
		}
		batch, err := wire.MirrorBatchFromProto(m.GetBatch())
		if err != nil {
			p.lied(regions.LaneMirror, err)
			return wire.GRPCError(err)
		}
		reply := sink.Apply(stream.Context(), batch)
		if err := stream.Send(wire.MirrorReplyToProto(reply)); err != nil {
			return err
		}
	}
}
