package link

import (
	"context"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/peer"

	"domicile/api"
	pb "domicile/api/domicile/v1"
	"domicile/api/wire"
	"domicile/regions"
)

// service is the accepting side of all links.
type service struct {
	pb.UnimplementedPeerServiceServer
	mesh *Mesh
}

// errLost is told to a run that another one of its region has taken the link from.
var errLost = &api.Error{Code: api.PermissionDenied, Op: "link", Field: "boot_id", Hint: "another run of this region has the link now: say hello again"}

// caller is who calls, on which lane; calls that do not belong on the lane and calls
// before an accepted hello are refused.
func (s *service) caller(ctx context.Context, op string, planes ...Plane) (laneInfo, *peerLink, error) {
	refuse := func(hint string) error {
		return wire.GRPCError(&api.Error{Code: api.PermissionDenied, Op: op, Hint: hint})
	}
	from, ok := peer.FromContext(ctx)
	if !ok {
		return laneInfo{}, nil, refuse("no connection is known for the call")
	}
	info, ok := from.AuthInfo.(laneInfo)
	if !ok {
		return laneInfo{}, nil, refuse("the connection shows no region certificate")
	}
	p := s.mesh.peers[info.peer.Name.Name] // known: the handshake has looked
	if len(planes) == 0 {
		return info, p, nil
	}
	if info.plane != planes[0] {
		return laneInfo{}, nil, refuse("it belongs on the " + string(planes[0]) + " lane")
	}
	run := info.conn.run.Load()
	if run == nil {
		return laneInfo{}, nil, refuse("say hello first")
	}
	if !p.speaks(*run) {
		return laneInfo{}, nil, wire.GRPCError(errLost)
	}
	return info, p, nil
}

// Hello judges the caller. Once accepted, older connections of the same lane are
// closed: the caller has dialed anew and left them behind.
func (s *service) Hello(ctx context.Context, req *pb.HelloRequest) (*pb.HelloResponse, error) {
	info, p, err := s.caller(ctx, "hello")
	if err != nil {
		return nil, err
	}
	theirs, err := wire.HelloFromProto(req.GetHello())
	if err == nil {
		err = p.accept(theirs)
	}
	if err != nil {
		p.refused(err)
		p.lied(regions.LaneHello, err)
		s.mesh.refusals.Log(s.mesh.cfg.Logger, "link", p.now(), info.conn.RemoteAddr(), err)
		return nil, wire.GRPCError(err)
	}
	info.conn.run.Store(&theirs.BootID)
	s.mesh.gates.closeAccepted(p.name, func(c *gatedConn) bool {
		_, plane := c.who()
		return plane == info.plane && c != info.conn && !c.began.After(info.conn.began)
	})
	return &pb.HelloResponse{Hello: wire.HelloToProto(s.mesh.hello())}, nil
}

// Control answers heartbeats and passes watermarks on.
func (s *service) Control(stream grpc.BidiStreamingServer[pb.ControlRequest, pb.ControlResponse]) error {
	info, p, err := s.caller(stream.Context(), "control", Control)
	if err != nil {
		return err
	}
	in := &inboundControl{conn: info.conn}
	if !p.inboundBegun(in) {
		return wire.GRPCError(errLost)
	}
	defer p.inboundOver(in)
	ctx, cancel := context.WithCancel(stream.Context())
	rounds := make(chan regions.Watermarks, 8)
	tails := make(chan regions.TailList, tailsQueued)
	var wg sync.WaitGroup
	wg.Go(func() { p.passOn(ctx, in, rounds) })
	wg.Go(func() { p.passTails(ctx, in, tails) })
	defer wg.Wait()
	defer cancel()
	var round roundReader
	for {
		m, err := stream.Recv()
		if err != nil {
			p.garbled(regions.LaneWatermark, err)
			return err
		}
		received, lane := p.now(), regions.LaneWatermark
		switch f := m.GetFrame().(type) {
		case *pb.ControlRequest_Heartbeat:
			err = s.answer(stream, p, in, f.Heartbeat, received)
		case *pb.ControlRequest_Watermarks:
			err = round.add(f.Watermarks, rounds)
		case *pb.ControlRequest_Tail:
			lane, err = regions.LaneTail, s.hearTail(f.Tail, tails)
		case *pb.ControlRequest_Hello:
			lane = regions.LaneHello
			var h regions.Hello
			if h, err = wire.HelloFromProto(f.Hello); err == nil {
				err = p.accept(h)
			}
		}
		if err != nil {
			p.refused(err)
			p.lied(lane, err)
			return wire.GRPCError(err)
		}
	}
}

func (s *service) answer(stream grpc.BidiStreamingServer[pb.ControlRequest, pb.ControlResponse], p *peerLink, in *inboundControl, h *pb.Heartbeat, received time.Time) error {
	// Also in endUntrusted; here the peer is told why.
	if err := p.verify(in.conn.state.Load()); err != nil {
		return err
	}
	p.heard(in, h.GetHearsYou())
	return stream.Send(&pb.ControlResponse{Reply: &pb.HeartbeatReply{
		Number: h.GetNumber(), SentUnixNano: h.GetSentUnixNano(),
		ReceivedUnixNano: received.UnixNano(), RepliedUnixNano: p.now().UnixNano(),
	}})
}

// passOn hands complete rounds to the node, apart from the stream: a node that takes
// its time delays no heartbeat. The rounds of a stream that another one has replaced
// are dropped; the new one began with a full round.
func (p *peerLink) passOn(ctx context.Context, in *inboundControl, rounds <-chan regions.Watermarks) {
	for {
		select {
		case w := <-rounds:
			p.deliver.Lock()
			if p.isInbound(in) {
				p.mesh.cfg.Handler.Watermarks(p.name, w)
			}
			p.deliver.Unlock()
		case <-ctx.Done():
			return
		}
	}
}

// roundReader puts the frames of a round together. Half a round is never passed on:
// its instant would close logs whose marks are still on the way.
type roundReader struct {
	round regions.Watermarks
	begun bool
}

func (r *roundReader) add(m *pb.WatermarkList, complete chan<- regions.Watermarks) error {
	w, err := wire.WatermarksFromProto(m)
	if err != nil {
		return err
	}
	if !r.begun {
		r.round, r.begun = w, true
	} else {
		r.round.Logs = append(r.round.Logs, w.Logs...)
	}
	if len(r.round.Logs) > marksPerRound {
		return &api.Error{Code: api.BadRequest, Op: "read watermarks", Field: "logs", Hint: "a round holds at most 2,000 logs"}
	}
	if m.GetMore() {
		return nil
	}
	select {
	case complete <- r.round:
		r.round, r.begun = regions.Watermarks{}, false
		return nil
	default:
		// A dropped round would leave logs looking fresh. Starting over does not: the
		// next stream begins with all of them.
		return &api.Error{Code: api.Overloaded, Op: "read watermarks", Hint: "the node does not keep up; the stream starts over"}
	}
}
