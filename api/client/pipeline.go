package client

import (
	"context"
	"errors"
	"io"
	"slices"
	"time"

	"domicile/api"
	pb "domicile/api/domicile/v1"
	"domicile/api/wire"
)

// One message holds at most so much; a single larger record goes alone.
const (
	messageRecords = 256
	messageBytes   = 512 << 10
)

// run keeps a stream open until ctx ends. A stream that broke leaves its records
// unknown; they are sent again on the next one.
func (p *Publisher) run(ctx context.Context) {
	tries := 0
	for ctx.Err() == nil {
		worked, err := p.session(ctx)
		p.lost(err)
		if worked {
			tries = 0
		}
		tries++
		sleep(ctx, backoff(tries))
	}
}

// session is the life of one stream. worked: the server answered on it.
func (p *Publisher) session(ctx context.Context) (worked bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := p.client.pub.PublishStream(ctx)
	if err != nil {
		return false, err
	}
	received := make(chan error, 1)
	go func() {
		defer cancel()
		received <- p.receive(stream, &worked)
	}()
	sendErr := p.send(ctx, stream)
	cancel()
	err = <-received
	if errors.Is(err, io.EOF) {
		err = errors.New("the server ended the stream")
	}
	if sendErr != nil && ctx.Err() == nil {
		err = sendErr
	}
	return worked, err
}

// send writes what is queued, within the credit, until the stream is gone.
func (p *Publisher) send(ctx context.Context, stream pb.PublisherService_PublishStreamClient) error {
	for {
		if m := p.next(); m != nil {
			if err := stream.Send(m); err != nil {
				return err
			}
			continue
		}
		select {
		case <-p.wake:
		case <-ctx.Done():
			return nil
		}
	}
}

// next takes records from the queue, in order, as far as credit and one message go.
func (p *Publisher) next() *pb.PublishStreamRequest {
	p.mu.Lock()
	defer p.mu.Unlock()
	m := &pb.PublishStreamRequest{}
	taken, bytes := 0, 0
	for _, f := range p.queue {
		if !p.open[f] { // its deadline has passed while it waited
			taken++
			continue
		}
		if len(m.Records) >= messageRecords || bytes > 0 && bytes+f.size > messageBytes ||
			p.credit.records < 1 || p.credit.bytes < uint64(f.size) {
			break
		}
		p.credit.records--
		p.credit.bytes -= uint64(f.size)
		p.number++
		f.number = p.number
		p.sent[f.number] = f
		m.Records = append(m.Records, &pb.NumberedRecord{Number: f.number, Record: wire.RecordToProto(&f.record), Retry: wire.RetryToProto(f.trial.retry)})
		bytes += f.size
		taken++
	}
	p.queue = slices.Delete(p.queue, 0, taken)
	if len(m.Records) == 0 {
		return nil
	}
	return m
}

func (p *Publisher) receive(stream pb.PublisherService_PublishStreamClient, worked *bool) error {
	for {
		m, err := stream.Recv()
		if err != nil {
			return err
		}
		*worked = true
		for _, o := range m.GetOutcomes() {
			p.outcome(o)
		}
		if c := m.GetCredit(); c != nil {
			p.mu.Lock()
			p.credit.records += c.GetRecords()
			p.credit.bytes += c.GetBytes()
			p.mu.Unlock()
			p.poke()
		}
	}
}

// outcome settles one record, or sends it again later.
func (p *Publisher) outcome(o *pb.Outcome) {
	p.mu.Lock()
	f := p.sent[o.GetNumber()]
	delete(p.sent, o.GetNumber())
	p.mu.Unlock()
	if f == nil {
		return // told unknown when its deadline passed
	}
	switch result := o.GetResult().(type) {
	case *pb.Outcome_Ack:
		p.settle(f, wire.AckFromProto(result.Ack), nil)
	case *pb.Outcome_Error:
		p.failed(f, wire.ErrorFromStatus(result.Error))
	default:
		p.failed(f, nil)
	}
}

// failed notes a failed try and sends the record again if its code and deadline
// allow it.
func (p *Publisher) failed(f *flight, err error) {
	if err == nil {
		err = &api.Error{Code: api.OutcomeUnknown, Op: "publish", Hint: "the server gave no outcome; send it again with the same id"}
	}
	p.mu.Lock()
	pause, again := f.trial.failed(err, p.client.config.Attempts)
	if again && p.open[f] && time.Until(f.deadline) > pause {
		f.retry = time.AfterFunc(pause, func() { p.requeue(f) })
		p.mu.Unlock()
		return
	}
	verdict := f.trial.verdict()
	p.mu.Unlock()
	p.settle(f, api.Ack{}, verdict)
}

func (p *Publisher) requeue(f *flight) {
	p.mu.Lock()
	if p.open[f] {
		p.queue = append(p.queue, f)
	}
	p.mu.Unlock()
	p.poke()
}

// lost makes everything that was sent on a broken stream unknown, and queues it again
// in its first order, before what was not sent yet.
func (p *Publisher) lost(err error) {
	unknown := wire.ErrorFromGRPC(err)
	p.mu.Lock()
	p.credit = credit{}
	flights := make([]*flight, 0, len(p.sent))
	for _, f := range p.sent {
		flights = append(flights, f)
	}
	clear(p.sent)
	slices.SortFunc(flights, func(a, b *flight) int { return int(a.number) - int(b.number) })
	final := map[*flight]error{}
	again := flights[:0:0]
	for _, f := range flights {
		cause := &api.Error{Code: api.OutcomeUnknown, Op: "publish", Err: unknown, Hint: "the connection broke; send it again with the same id"}
		if _, ok := f.trial.failed(cause, p.client.config.Attempts); ok {
			again = append(again, f)
		} else {
			final[f] = f.trial.verdict()
		}
	}
	p.queue = append(again, p.queue...)
	p.mu.Unlock()
	for f, err := range final {
		p.settle(f, api.Ack{}, err)
	}
}

// watchDeadlines gives what waited too long its outcome.
func (p *Publisher) watchDeadlines(ctx context.Context) {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			p.expire(now)
		}
	}
}

func (p *Publisher) expire(now time.Time) {
	late := map[*flight]error{}
	p.mu.Lock()
	for f := range p.open {
		if now.Before(f.deadline) {
			continue
		}
		if p.sent[f.number] == f {
			delete(p.sent, f.number)
			f.trial.failed(&api.Error{Code: api.OutcomeUnknown, Op: "publish", Err: context.DeadlineExceeded, Hint: "no answer in time; send it again with the same id"}, 0)
		}
		late[f] = f.trial.verdict()
	}
	if len(late) > 0 { // else the queue would grow for as long as nobody answers
		p.queue = slices.DeleteFunc(p.queue, func(f *flight) bool { return late[f] != nil })
	}
	p.mu.Unlock()
	for f, err := range late {
		p.settle(f, api.Ack{}, err)
	}
}
