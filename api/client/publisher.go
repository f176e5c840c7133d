package client

import (
	"context"
	"fmt"
	"sync"
	"time"

	"domicile/api"
)

// Window bounds what a Publisher has open at once: waiting, sent, or to be sent
// again. Zero fields are the defaults.
type Window struct {
	Records int // 4,096
	Bytes   int // 8 MiB, as api.Record.Size counts them
}

// Publisher pipelines records over one stream. Records of one publisher share its
// window: make one publisher for each group of records that must not wait for each
// other, for example one per home; they share the client's connection.
//
// Records are sent in the order of the Publish calls. One that is sent again after a
// refusal may be stored behind later ones: who needs order through refusals keeps
// one record in flight per key.
//
// It is safe for concurrent use.
type Publisher struct {
	client *Client
	window Window
	cancel context.CancelFunc
	work   sync.WaitGroup
	wake   chan struct{} // something to send

	mu      sync.Mutex
	closed  bool
	number  uint64
	queue   []*flight          // to be sent, in order
	sent    map[uint64]*flight // sent on the present stream, without an outcome
	open    map[*flight]bool   // everything without an outcome
	bytes   int                // of open
	credit  credit
	changed chan struct{} // closed when open shrinks; nil while nobody waits for that
}

type credit struct{ records, bytes uint64 }

// flight is one record on its way. The publisher's lock guards it.
type flight struct {
	record   api.Record
	size     int
	number   uint64 // of the present try
	deadline time.Time
	done     func(api.Ack, error)
	trial    trial
	retry    *time.Timer // waits to be sent again
}

// NewPublisher starts a publisher. It works until Close.
func (c *Client) NewPublisher(w Window) *Publisher {
	if w.Records <= 0 {
		w.Records = 4_096
	}
	if w.Bytes <= 0 {
		w.Bytes = 8 << 20
	}
	ctx, cancel := context.WithCancel(context.Background())
	p := &Publisher{client: c, window: w, cancel: cancel, wake: make(chan struct{}, 1),
		sent: map[uint64]*flight{}, open: map[*flight]bool{}}
	p.work.Go(func() { p.run(ctx) })
	p.work.Go(func() { p.watchDeadlines(ctx) })
	return p
}

// Publish takes a record in and returns; it blocks only while the window is full,
// and then no longer than ctx. done is called exactly once, with the ack or the
// error, from any goroutine, and must not block. A record without an id gets one;
// the outcome names it. To send a record again whose outcome was OutcomeUnknown, set
// r.Retry with the log that the error names. The record is tried again until the deadline of ctx, or
// DefaultPatience if it has none; cancelling ctx takes nothing back. r.Body must not
// be changed before done was called.
func (p *Publisher) Publish(ctx context.Context, r api.Record, done func(api.Ack, error)) {
	if err := prepare(&r); err != nil {
		done(api.Ack{}, err)
		return
	}
	f := &flight{record: r, size: r.Size(), done: done, deadline: time.Now().Add(DefaultPatience), trial: trial{retry: r.Retry}}
	if d, ok := ctx.Deadline(); ok {
		f.deadline = d
	}
	if err := p.admit(ctx, f); err != nil {
		done(api.Ack{}, err)
		return
	}
	p.poke()
}

// admit waits for room and queues the record.
func (p *Publisher) admit(ctx context.Context, f *flight) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	for {
		if p.closed {
			return &api.Error{Code: api.ShuttingDown, Op: "publish", Hint: "the publisher is closed; nothing was sent"}
		}
		// One record above the byte bound is let through alone.
		if len(p.open) < p.window.Records && (p.bytes+f.size <= p.window.Bytes || len(p.open) == 0) {
			break
		}
		changed := p.shrinks()
		p.mu.Unlock()
		var err error
		select {
		case <-changed:
		case <-ctx.Done():
			err = &api.Error{Code: api.Overloaded, Op: "publish", Err: ctx.Err(), Hint: "the publisher's window stayed full; nothing was sent"}
		}
		p.mu.Lock()
		if err != nil {
			return err
		}
	}
	p.open[f] = true
	p.bytes += f.size
	p.queue = append(p.queue, f)
	return nil
}

// shrinks is closed when open shrinks. The caller holds the lock.
func (p *Publisher) shrinks() <-chan struct{} {
	if p.changed == nil {
		p.changed = make(chan struct{})
	}
	return p.changed
}

func (p *Publisher) shrunk() {
	if p.changed != nil {
		close(p.changed)
		p.changed = nil
	}
}

func (p *Publisher) poke() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// settle tells the outcome, unless it was told already.
func (p *Publisher) settle(f *flight, ack api.Ack, err error) {
	p.mu.Lock()
	first := p.open[f]
	if first {
		delete(p.open, f)
		p.bytes -= f.size
		p.shrunk()
		if f.retry != nil {
			f.retry.Stop()
		}
	}
	p.mu.Unlock()
	if first {
		f.done(ack, err)
	}
}

// Flush waits until every record taken in so far has an outcome, or ctx ends.
func (p *Publisher) Flush(ctx context.Context) error {
	p.mu.Lock()
	left := make(map[*flight]bool, len(p.open))
	for f := range p.open {
		left[f] = true
	}
	for {
		for f := range left {
			if !p.open[f] {
				delete(left, f)
			}
		}
		if len(left) == 0 {
			p.mu.Unlock()
			return nil
		}
		changed := p.shrinks()
		p.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("flush: %d outcomes are still open: %w", len(left), ctx.Err())
		}
		p.mu.Lock()
	}
}

// Close takes no more records and waits for the open outcomes. When ctx ends first
// the rest are told what is known of them: OutcomeUnknown if they may have been
// sent. After Close every record has its outcome.
func (p *Publisher) Close(ctx context.Context) error {
	p.mu.Lock()
	p.closed = true
	p.shrunk() // wakes who waits for room
	p.mu.Unlock()
	err := p.Flush(ctx)
	p.cancel()
	p.work.Wait()
	p.mu.Lock()
	rest := make([]*flight, 0, len(p.open))
	for f := range p.open {
		rest = append(rest, f)
	}
	p.mu.Unlock()
	for _, f := range rest {
		p.settle(f, api.Ack{}, f.trial.verdict())
	}
	return err
}
