package handover

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"domicile/api"
	"domicile/api/wire"
	"domicile/regions"
)

// The kinds of call between a region's nodes.
const (
	Records  = "publish"  // records, to the holder of the seat
	Outcomes = "outcomes" // what came of them, back
)

// The bounds of a hand-over.
const (
	MaxWaiting      = 16_384   // records that the holder has not taken yet; over it: OVERLOADED
	MaxWaitingBytes = 32 << 20 // their bytes, as api.Record.Size counts them
	MaxOpen         = 65_536   // records without an outcome, taken or not

	batchRecords = 512
	batchBytes   = 1 << 20 // one record may exceed it
)

// At pace 1.
const (
	Deadline   = 10 * time.Second       // of a publish, at most
	takenIn    = 3 * time.Second        // a hand-over is answered
	graceAfter = 500 * time.Millisecond // of an outcome that is on its way back at the deadline
	lostAfter  = time.Second            // outcomes of a holder that lost the seat still come
	lookEvery  = 100 * time.Millisecond
)

// Call asks a node of the region and waits for its answer. An error that says NOT_READY
// or OVERLOADED means that nothing was taken; any other that something may have been.
type Call func(ctx context.Context, node, kind string, body []byte) ([]byte, error)

// Holder is who holds the region's seat; no Node: nobody, as far as this node knows.
type Holder struct {
	Node   string
	Term   uint64
	Reason string // why nobody; no record content
}

// OutConfig is what an Out works with. All of it is required.
type OutConfig struct {
	Region string
	Call   Call
	Clock  regions.Clock
	Pace   regions.Pace
	Logger *slog.Logger
}

// Out is the end at the door without the seat.
type Out struct {
	cfg  OutConfig
	wake chan struct{}
	life context.Context // ends with Close
	stop context.CancelFunc
	work sync.WaitGroup

	readers atomic.Int64
	fetches chan struct{} // one for each call that brings much to readers

	mu      sync.Mutex
	closed  bool
	holder  Holder
	held    context.Context // ends, with what readers are told, when the holder is another one
	letGo   context.CancelCauseFunc
	waiting regions.Turns[*entry] // by topic
	records *regions.Shares       // of waiting, by topic
	bytes   *regions.Shares
	open    map[uint64]*entry
	next    uint64
}

// entry is one record without an outcome.
type entry struct {
	wire.Numbered
	size     int
	deadline time.Time // then nobody can say
	away     func()
	done     func(api.Ack, error)
}

// NewOut starts the hand-over; Close ends it. Until SetHolder names a holder everything
// is refused.
func NewOut(cfg OutConfig) *Out {
	ctx, stop := context.WithCancel(context.Background())
	o := &Out{cfg: cfg, wake: make(chan struct{}, 1), life: ctx, stop: stop, open: map[uint64]*entry{}, records: regions.NewShares(MaxWaiting), bytes: regions.NewShares(MaxWaitingBytes), fetches: make(chan struct{}, fetches),
		next: rand.Uint64() >> 1} // an answer to an earlier run of this node settles nothing
	o.held, o.letGo = context.WithCancelCause(ctx)
	o.work.Go(func() { o.run(ctx) })
	o.work.Go(func() { o.watch(ctx) })
	return o
}

// Publish hands a record to the holder of the seat and never blocks. away, unless it is
// nil, is called at most once, when the record is in no memory of this region any more
// although its outcome is open; done exactly once, from any goroutine. Both must not
// block. A deadline of ctx shortens the publish.
func (o *Out) Publish(ctx context.Context, r api.Record, who regions.Principal, away func(), done func(api.Ack, error)) {
	now := o.cfg.Clock.Now()
	left := o.cfg.Pace.Of(Deadline)
	if end, ok := ctx.Deadline(); ok {
		left = min(left, time.Until(end))
	}
	e := &entry{size: r.Size(), away: away, done: done, deadline: now.Add(left + o.cfg.Pace.Of(graceAfter))}
	e.Forward = regions.Forward{Record: r, Principal: who, Deadline: now.Add(left)}
	if err := o.enter(e); err != nil {
		done(api.Ack{}, err)
		return
	}
	signal(o.wake)
}

func (o *Out) enter(e *entry) error {
	topic := e.Forward.Record.Topic
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case o.closed:
		return o.refusal(api.ShuttingDown, "this node is stopping")
	case o.holder.Node == "":
		return o.refusal(api.NotReady, o.holder.Reason)
	case !o.records.Room(topic, 1) || !o.bytes.Room(topic, e.size):
		return o.refusal(api.Overloaded, "the node that holds the region's seat does not take records of the topic as fast as they come")
	case len(o.open) >= MaxOpen:
		return o.refusal(api.Overloaded, "too many records have no outcome yet")
	}
	e.Number = o.next
	o.next++
	o.open[e.Number] = e
	o.waiting.Push(topic, e)
	o.records.Take(topic, 1)
	o.bytes.Take(topic, e.size)
	return nil
}

func (o *Out) refusal(code api.Code, why string) error {
	return &api.Error{Code: code, Op: "publish", Region: o.cfg.Region, RetryAfter: o.cfg.Pace.Of(200 * time.Millisecond),
		Hint: why + "; send it again with the same id, here or to another address of the region"}
}

func (o *Out) unknown(why string) error {
	return &api.Error{Code: api.OutcomeUnknown, Op: "publish", Region: o.cfg.Region, Hint: why + "; send it again with the same id"}
}

// SetHolder says who holds the seat now. What was handed to another one, or under another
// term, is unknown unless its outcome comes within a moment; what was not is refused.
func (o *Out) SetHolder(h Holder) {
	o.mu.Lock()
	if o.holder.Node == h.Node && o.holder.Term == h.Term {
		o.holder = h
		o.mu.Unlock()
		return
	}
	o.holder = h
	o.letGo(o.seatMoves())
	o.held, o.letGo = context.WithCancelCause(o.life)
	waiting := o.takeWaiting(o.waiting.Len(), o.bytes.Held())
	soon := o.cfg.Clock.Now().Add(o.cfg.Pace.Of(lostAfter))
	for _, e := range o.open {
		if e.deadline.After(soon) {
			e.deadline = soon
		}
	}
	o.mu.Unlock()
	o.settle(waiting, o.refusal(api.NotReady, "the region's seat moves"))
}

// takeWaiting takes up to so many records, and so many bytes of them but at least one, of
// each topic in turn. o.mu is held.
func (o *Out) takeWaiting(records, bytes int) (batch []*entry) {
	sum := 0
	for e, ok := o.waiting.Next(); ok && len(batch) < records && (len(batch) == 0 || sum+e.size <= bytes); e, ok = o.waiting.Next() {
		o.waiting.Pop()
		sum += e.size
		o.records.Back(e.Forward.Record.Topic, 1)
		o.bytes.Back(e.Forward.Record.Topic, e.size)
		batch = append(batch, e)
	}
	return batch
}

// settle tells one outcome for all of a batch that have none yet.
func (o *Out) settle(batch []*entry, err error) {
	for _, e := range batch {
		if o.forget(e.Number) != nil {
			e.done(api.Ack{}, err)
		}
	}
}

func (o *Out) forget(number uint64) *entry {
	o.mu.Lock()
	defer o.mu.Unlock()
	e := o.open[number]
	delete(o.open, number)
	return e
}

// run hands batches over, one after the other: that keeps the order. A batch is answered
// when its records are on their way, so the next one does not wait for a disk.
func (o *Out) run(ctx context.Context) {
	for {
		o.mu.Lock()
		batch, holder := o.takeWaiting(batchRecords, batchBytes), o.holder
		o.mu.Unlock()
		if len(batch) > 0 {
			o.hand(ctx, holder, batch)
			continue
		}
		select {
		case <-o.wake:
		case <-ctx.Done():
			return
		}
	}
}

func (o *Out) hand(ctx context.Context, h Holder, batch []*entry) {
	now := o.cfg.Clock.Now()
	records := make([]wire.Numbered, len(batch))
	for i, e := range batch {
		records[i] = e.Numbered
	}
	body, err := wire.EncodeHandOver(h.Term, records, now)
	if err != nil {
		o.settle(batch, &api.Error{Code: api.BadRequest, Op: "publish", Field: "record", Hint: "it is no valid UTF-8 where text is expected"})
		return
	}
	ctx, cancel := context.WithTimeout(ctx, o.cfg.Pace.Of(takenIn))
	defer cancel()
	answer, err := o.cfg.Call(ctx, h.Node, Records, body)
	switch code := api.CodeOf(err); {
	case err == nil:
	case code.Stored() == api.StoredUnknown:
		return // outcomes may still come; if not, the deadline says that nobody knows
	default: // nothing was taken
		if !code.Retryable() {
			o.cfg.Logger.Error("a hand-over was refused", "node", h.Node, "err", err)
			code = api.NotReady
		}
		o.settle(batch, o.refusal(code, "gateway "+h.Node+" holds the region's seat and does not take records now"))
		return
	}
	o.free(batch)
	away, err := wire.DecodeTaken(answer)
	if err != nil {
		o.cfg.Logger.Error("the answer to a hand-over is not readable", "node", h.Node, "err", err)
	}
	o.leave(away)
}

// free lets go of what the holder has.
func (o *Out) free(batch []*entry) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, e := range batch {
		e.Forward = regions.Forward{}
	}
}

// leave tells of records that went on to another region.
func (o *Out) leave(numbers []uint64) {
	o.mu.Lock()
	var gone []func()
	for _, n := range numbers {
		if e := o.open[n]; e != nil && e.away != nil {
			gone = append(gone, e.away)
		}
	}
	o.mu.Unlock()
	for _, away := range gone {
		away()
	}
}

// Settle takes the outcomes that a holder sends. What has none waiting for it is left
// out: it was told already.
func (o *Out) Settle(_ context.Context, _ string, body []byte) ([]byte, error) {
	outcomes, err := wire.DecodeOutcomes(body)
	if err != nil {
		return nil, err
	}
	for _, x := range outcomes {
		if e := o.forget(x.Number); e != nil {
			e.done(x.Ack, x.Err)
		}
	}
	return nil, nil
}

// watch ends what has no outcome at its deadline.
func (o *Out) watch(ctx context.Context) {
	tick := time.NewTicker(o.cfg.Pace.Of(lookEvery))
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			o.settle(o.overdue(o.cfg.Clock.Now()), o.unknown("the node that holds the region's seat did not answer in time"))
		case <-ctx.Done():
			return
		}
	}
}

func (o *Out) overdue(now time.Time) []*entry {
	o.mu.Lock()
	defer o.mu.Unlock()
	var late []*entry
	for _, e := range o.open {
		if now.After(e.deadline) {
			late = append(late, e)
		}
	}
	return late
}

// Close refuses what comes from now on, waits for the outcomes that are open until ctx
// ends, and tells the rest that nobody can say.
func (o *Out) Close(ctx context.Context) error {
	o.mu.Lock()
	o.closed = true
	o.letGo(&api.Error{Code: api.ShuttingDown, Op: "read", Region: o.cfg.Region, Hint: "this node is stopping; read on from the last position at another address of the region"})
	o.mu.Unlock()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for left := o.left(); left > 0 && ctx.Err() == nil; left = o.left() {
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
	o.stop()
	o.work.Wait()
	o.mu.Lock()
	rest := make([]*entry, 0, len(o.open))
	for _, e := range o.open {
		rest = append(rest, e)
	}
	o.mu.Unlock()
	o.settle(rest, o.unknown("this node stops"))
	if len(rest) > 0 {
		return errors.Join(o.unknown("records had no outcome when this node stopped"), ctx.Err())
	}
	return nil
}

func (o *Out) left() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.open)
}

// signal wakes whoever waits on a channel of capacity one, now or the next time.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
