package door

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"

	"domicile/api"
	pb "domicile/api/domicile/v1"
	"domicile/api/wire"
	"domicile/regions"
)

// outcomesPerMessage bounds a response, so that a slow client gets its first
// outcomes early.
const outcomesPerMessage = 512

// pipe is one publish stream. Records come in on one goroutine, outcomes from any,
// and one goroutine sends.
//
// A record that stays in this region gives its credit back with its outcome: the
// log's writer sets the pace. One that was handed to a link gives it back at once:
// the link has bounds of its own for each region, and a region that does not answer
// must not hold the credit that records for other regions need.
type pipe struct {
	gateway Gateway

	mu       sync.Mutex
	outcomes []*pb.Outcome
	open     int        // records without an outcome
	left     *pb.Credit // what the client may still send
	owed     *pb.Credit // what it may send again, not told yet
	ended    bool       // no more records will come
	err      error      // why, when the client did not simply end

	wake chan struct{} // there may be something to send
}

func newPipe(g Gateway) *pipe {
	return &pipe{
		gateway: g, left: &pb.Credit{}, wake: make(chan struct{}, 1),
		owed: &pb.Credit{Records: StreamRecords, Bytes: StreamBytes},
	}
}

func (p *pipe) poke() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// receive takes records until the client ends the stream, breaks the rules, or the
// stream is gone.
func (p *pipe) receive(ss pb.PublisherService_PublishStreamServer, who regions.Principal, draining <-chan struct{}) {
	err := p.take(ss, who, draining)
	p.mu.Lock()
	p.ended = true
	if !errors.Is(err, io.EOF) {
		p.err = err
	}
	p.mu.Unlock()
	p.poke()
}

func (p *pipe) take(ss pb.PublisherService_PublishStreamServer, who regions.Principal, draining <-chan struct{}) error {
	for {
		m, err := ss.Recv()
		if err != nil {
			return err
		}
		for _, n := range m.GetRecords() {
			r := wire.RecordFromProto(n.GetRecord())
			r.Retry = wire.RetryFromProto(n.GetRetry())
			if err := p.spend(&r); err != nil {
				return err
			}
			select {
			case <-draining:
				p.settle(n.GetNumber(), r.ID, api.Ack{}, errShuttingDown("publish"))
			default:
				p.publish(ss.Context(), n.GetNumber(), r, who)
			}
		}
	}
}

// spend takes a record from the client's credit.
func (p *pipe) spend(r *api.Record) error {
	size := uint64(r.Size())
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.left.Records < 1 || p.left.Bytes < size {
		return &api.Error{Code: api.Overloaded, Op: "publish stream", Field: "credit",
			Value: fmt.Sprintf("%d records and %d bytes left", p.left.Records, p.left.Bytes),
			Hint:  "send no more than the server granted; outcomes that did not arrive are unknown"}
	}
	p.left.Records--
	p.left.Bytes -= size
	p.open++
	return nil
}

func (p *pipe) publish(ctx context.Context, number uint64, r api.Record, who regions.Principal) {
	size := uint64(r.Size())
	var returned atomic.Bool
	giveBack := func() {
		if !returned.Swap(true) {
			p.refund(size)
		}
	}
	p.gateway.Publish(ctx, r, who, giveBack, func(ack api.Ack, err error) {
		giveBack()
		id := r.ID
		if err == nil {
			id = ack.ID
		}
		p.settle(number, id, ack, err)
	})
}

func (p *pipe) refund(size uint64) {
	p.mu.Lock()
	p.owed.Records++
	p.owed.Bytes += size
	enough := p.owedEnough()
	p.mu.Unlock()
	if enough {
		p.poke()
	}
}

// owedEnough reports whether credit is worth a message of its own.
func (p *pipe) owedEnough() bool {
	return p.owed.Records >= StreamRecords/4 || p.owed.Bytes >= StreamBytes/4
}

func (p *pipe) settle(number uint64, id string, ack api.Ack, err error) {
	o := &pb.Outcome{Number: number, Id: id}
	if err != nil {
		o.Result = &pb.Outcome_Error{Error: wire.StatusFromError(err)}
	} else {
		o.Result = &pb.Outcome_Ack{Ack: wire.AckToProto(ack)}
	}
	p.mu.Lock()
	p.outcomes = append(p.outcomes, o)
	p.open--
	p.mu.Unlock()
	p.poke()
}

// send delivers outcomes and credit until there will be no more, or until the server
// drains and nothing is open.
func (p *pipe) send(ss pb.PublisherService_PublishStreamServer, draining <-chan struct{}) error {
	stopping := false
	for {
		m, finished, err := p.next(stopping)
		if err != nil {
			return err
		}
		if m != nil {
			if err := ss.Send(m); err != nil {
				return err
			}
			continue
		}
		if finished {
			if stopping {
				return wire.GRPCError(errShuttingDown("publish stream"))
			}
			return nil
		}
		select {
		case <-p.wake:
		case <-ss.Context().Done():
			return ss.Context().Err()
		case <-draining:
			stopping, draining = true, nil
		}
	}
}

// next is the next message, if there is something to tell. finished: nothing is open
// and nothing will come. Once the server is stopping no credit is granted: what the
// client may still send has an end.
func (p *pipe) next(stopping bool) (m *pb.PublishStreamResponse, finished bool, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err != nil {
		return nil, false, wire.GRPCError(p.err)
	}
	n := min(len(p.outcomes), outcomesPerMessage)
	grant := !p.ended && !stopping && (n > 0 && p.owed.Records > 0 || p.owedEnough())
	if n == 0 && !grant {
		return nil, p.open == 0 && (p.ended || stopping), nil
	}
	m = &pb.PublishStreamResponse{Outcomes: p.outcomes[:n:n]}
	p.outcomes = p.outcomes[n:]
	if grant {
		m.Credit = p.owed
		p.left.Records += p.owed.Records
		p.left.Bytes += p.owed.Bytes
		p.owed = &pb.Credit{}
	}
	return m, false, nil
}
