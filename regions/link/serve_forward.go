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

// The home's own bounds on one peer's forwards. An honest peer stays below: it holds
// half of it, the other half is for answers it has given up on.
const (
	maxServed      = 2 * maxForwards
	maxServedBytes = 2 * maxForwardBytes
	maxAnswers     = 4 * maxForwards // answers that wait because the peer does not read

	receiptEvery = 5 * time.Millisecond // at most: on a fast line a receipt is for megabytes
)

// Forward takes records to their home and answers in any order.
func (s *service) Forward(stream grpc.BidiStreamingServer[pb.ForwardRequest, pb.ForwardResponse]) error {
	info, p, err := s.caller(stream.Context(), "forward", Data)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(stream.Context())
	a := &answers{mesh: s.mesh, receipts: info.conn.receipts, wake: make(chan struct{}, 1)}
	var wg sync.WaitGroup
	wg.Go(func() {
		defer cancel() // a stream that cannot be answered is over
		a.send(ctx, stream)
	})
	defer wg.Wait()
	defer cancel()
	for {
		m, err := stream.Recv()
		if err != nil {
			p.garbled(regions.LaneForward, err)
			return err
		}
		if ctx.Err() != nil {
			return wire.GRPCError(&api.Error{Code: api.Overloaded, Op: "forward", Hint: "the answers are not being read"})
		}
		if !a.take(ctx, p, m) {
			return wire.GRPCError(&api.Error{Code: api.Overloaded, Op: "forward", Hint: "the answers are not being read"})
		}
	}
}

// answers are the outcomes of one stream's forwards on their way back.
type answers struct {
	mesh     *Mesh
	receipts *receipts

	mu      sync.Mutex
	serving int // handed to the node and not answered
	bytes   int
	ready   []*pb.ForwardResponse
	wake    chan struct{}
}

// take hands one record to the node. False: the peer lets its answers pile up.
func (a *answers) take(ctx context.Context, p *peerLink, m *pb.ForwardRequest) bool {
	number := m.GetNumber()
	if number == 0 && m.GetRecord() == nil {
		return a.add(&pb.ForwardResponse{}) // a probe
	}
	f, err := wire.ForwardFromProto(m, p.now(), a.mesh.cfg.Pace.Of(forwardWithin))
	size := f.Record.Size()
	if err != nil {
		p.lied(regions.LaneForward, err)
	} else {
		err = a.admit(size)
	}
	if err != nil {
		return a.add(failed(number, err))
	}
	var once sync.Once
	a.mesh.cfg.Handler.Forwarded(ctx, p.name, f, func(ack api.Ack, err error) {
		once.Do(func() {
			a.release(size)
			if err != nil {
				a.add(failed(number, err))
			} else {
				if p.agreed() >= bareAcks {
					ack.ID = ""
				}
				a.add(&pb.ForwardResponse{Number: number, Result: &pb.ForwardResponse_Ack{Ack: wire.AckToProto(ack)}})
			}
		})
	})
	return true
}

// bareAcks is the wire version from which on an ack does not carry the record's id: who
// asked has it, and no part of a resident record goes out of its boundary, not even back
// to where it came from.
const bareAcks = 2

func failed(number uint64, err error) *pb.ForwardResponse {
	return &pb.ForwardResponse{Number: number, Result: &pb.ForwardResponse_Error{Error: wire.StatusFromError(err)}}
}

func (a *answers) admit(size int) error {
	if a.mesh.closing.Load() {
		return &api.Error{Code: api.ShuttingDown, Op: "forward", Region: a.mesh.cfg.Self, Hint: "the home is going down: send it again with the same id"}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.serving >= maxServed || a.bytes+size > maxServedBytes {
		return &api.Error{Code: api.Overloaded, Op: "forward", Region: a.mesh.cfg.Self, Hint: "the home is busy: send it again with the same id"}
	}
	a.serving++
	a.bytes += size
	a.mesh.serving.Add(1)
	return nil
}

func (a *answers) release(size int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.serving--
	a.bytes -= size
	a.mesh.serving.Add(-1)
}

func (a *answers) add(r *pb.ForwardResponse) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.ready) >= maxAnswers {
		return false // the peer will count it as unknown
	}
	a.ready = append(a.ready, r)
	signal(a.wake)
	return true
}

func (a *answers) drain() []*pb.ForwardResponse {
	a.mu.Lock()
	defer a.mu.Unlock()
	ready := a.ready
	a.ready = nil
	return ready
}

// send is the stream's only sender. Every answer carries a receipt; one goes alone
// when enough was read, but not more often than every few milliseconds.
func (a *answers) send(ctx context.Context, stream grpc.BidiStreamingServer[pb.ForwardRequest, pb.ForwardResponse]) {
	again := time.NewTimer(0)
	defer again.Stop()
	var due <-chan struct{} // nil while the last receipt is too young
	for {
		var ready []*pb.ForwardResponse
		select {
		case <-a.wake:
			ready = a.drain()
		case <-due:
			ready, due = []*pb.ForwardResponse{{}}, nil
			again.Reset(receiptEvery)
		case <-again.C:
			due = a.receipts.due
		case <-ctx.Done():
			return
		}
		for _, r := range ready {
			r.Received = uint64(a.receipts.tell())
			if stream.Send(r) != nil {
				return
			}
		}
	}
}
