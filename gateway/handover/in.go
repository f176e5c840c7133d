package handover

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"domicile/api"
	"domicile/api/wire"
	"domicile/regions"
)

// At pace 1: how long outcomes are tried to be told, before their deadline tells the
// producer that nobody knows.
const (
	toldIn    = 2 * time.Second
	tellTries = 3
	tellAgain = 100 * time.Millisecond
)

const outcomesPerCall = 1_024

// InConfig is what an In works with. All of it is required but Refused.
type InConfig struct {
	Region string
	Term   uint64 // of the seat under which it takes records
	// Publish takes a record as published in this region, and never blocks.
	Publish func(ctx context.Context, r api.Record, who regions.Principal, away func(), done func(api.Ack, error))
	Call    Call
	Refused *regions.PeerRefusals // counts what another node says that no node says; nil: nobody counts
	Clock   regions.Clock
	Pace    regions.Pace
	Logger  *slog.Logger
}

// In is the end at the holder of the seat, for one term.
type In struct {
	cfg  InConfig
	ctx  context.Context // ends when outcomes are told no more
	stop context.CancelFunc
	work sync.WaitGroup

	mu     sync.Mutex
	closed bool
	lanes  map[string]*lane
}

// lane is what one node has handed over.
type lane struct {
	in   *In
	node string
	turn chan struct{} // cap 1: one hand-over at a time
	wake chan struct{}

	mu     sync.Mutex
	open   int             // taken, without an outcome
	queue  []wire.Numbered // outcomes to tell
	closed bool            // ends when open and queue are empty
}

// NewIn makes the receiving end of one term; Close ends it.
func NewIn(cfg InConfig) *In {
	in := &In{cfg: cfg, lanes: map[string]*lane{}}
	in.ctx, in.stop = context.WithCancel(context.Background())
	return in
}

// Take takes a node's hand-over: each record is judged and sent on its way, in order. It
// is refused whole, with NOT_READY, unless it was meant for this holder and term.
func (in *In) Take(ctx context.Context, from string, body []byte) ([]byte, error) {
	l := in.lane(from)
	if l == nil {
		return nil, in.notReady("this node is giving the region's seat away")
	}
	select {
	case l.turn <- struct{}{}:
		defer func() { <-l.turn }()
	case <-ctx.Done():
		return nil, in.notReady("an earlier hand-over is still being taken")
	}
	term, records, err := wire.DecodeHandOver(body, in.cfg.Clock.Now(), in.cfg.Pace.Of(Deadline))
	switch {
	case err != nil:
		in.cfg.Refused.Add(from, regions.LaneHandover, regions.Malformed)
		return nil, err
	case term != in.cfg.Term:
		return nil, in.notReady("it was meant for another term of the region's seat")
	case ctx.Err() != nil:
		return nil, in.notReady("nobody waits for it any more")
	}
	away := make(map[uint64]bool)
	var mu sync.Mutex
	for i := range records {
		l.publish(&records[i], func(number uint64) {
			mu.Lock()
			away[number] = true
			mu.Unlock()
		})
	}
	mu.Lock()
	defer mu.Unlock()
	numbers := make([]uint64, 0, len(away))
	for n := range away {
		numbers = append(numbers, n)
	}
	return wire.EncodeTaken(numbers)
}

func (in *In) notReady(why string) error {
	return &api.Error{Code: api.NotReady, Op: "take hand-over", Region: in.cfg.Region, RetryAfter: in.cfg.Pace.Of(200 * time.Millisecond), Hint: why}
}

// lane is a node's lane, made if need be; nil when this end closes.
func (in *In) lane(node string) *lane {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.closed {
		return nil
	}
	l := in.lanes[node]
	if l == nil {
		l = &lane{in: in, node: node, turn: make(chan struct{}, 1), wake: make(chan struct{}, 1)}
		in.lanes[node] = l
		in.work.Go(l.tell)
	}
	return l
}

// publish sends one record on its way. The other node's word is taken for who published
// it there, since its certificate says that it is a node of this region; what only
// clients may do stays for clients.
func (l *lane) publish(r *wire.Numbered, away func(uint64)) {
	l.mu.Lock()
	l.open++
	l.mu.Unlock()
	number, f := r.Number, r.Forward
	settle := func(ack api.Ack, err error) { l.settle(wire.Numbered{Number: number, Ack: ack, Err: err}) }
	left := f.Deadline.Sub(l.in.cfg.Clock.Now())
	switch {
	case f.Principal.Kind != "client":
		settle(api.Ack{}, &api.Error{Code: api.PermissionDenied, Op: "publish", Region: l.in.cfg.Region, Field: "principal", Hint: "clients publish"})
		return
	case left <= 0:
		settle(api.Ack{}, l.in.notReady("there was no time left; send it again with the same id"))
		return
	}
	ctx, cancel := context.WithTimeout(l.in.ctx, left)
	defer cancel()
	l.in.cfg.Publish(ctx, f.Record, f.Principal, func() { away(number) }, settle)
}

func (l *lane) settle(o wire.Numbered) {
	l.mu.Lock()
	l.open--
	l.queue = append(l.queue, o)
	l.mu.Unlock()
	signal(l.wake)
}

// tell brings outcomes back until the lane has closed and has nothing left to tell.
func (l *lane) tell() {
	for {
		l.mu.Lock()
		n := min(len(l.queue), outcomesPerCall)
		batch := l.queue[:n:n]
		l.queue = l.queue[n:]
		finished := l.closed && l.open == 0 && n == 0
		l.mu.Unlock()
		switch {
		case n > 0:
			l.send(batch)
			continue
		case finished:
			return
		}
		select {
		case <-l.wake:
		case <-l.in.ctx.Done():
			return
		}
	}
}

// send tells outcomes to the node whose records they are. Told twice they do no harm;
// told not at all, the producers' deadlines say that nobody knows.
func (l *lane) send(batch []wire.Numbered) {
	body, err := wire.EncodeOutcomes(batch)
	if err == nil {
		for range tellTries {
			if err = l.call(body); err == nil || !l.pause() {
				return
			}
		}
	}
	l.in.cfg.Logger.Warn("outcomes could not be told to another node of the region: its producers hear that nobody knows", "node", l.node, "records", len(batch), "err", err)
}

// pause waits before the next try; false when outcomes are told no more.
func (l *lane) pause() bool {
	again := time.NewTimer(l.in.cfg.Pace.Of(tellAgain))
	defer again.Stop()
	select {
	case <-again.C:
		return true
	case <-l.in.ctx.Done():
		return false
	}
}

func (l *lane) call(body []byte) error {
	ctx, cancel := context.WithTimeout(l.in.ctx, l.in.cfg.Pace.Of(toldIn))
	defer cancel()
	_, err := l.in.cfg.Call(ctx, l.node, Outcomes, body)
	return err
}

// Close takes nothing more, and tells the outcomes that are still to come until ctx ends.
// Close what decides them before it.
func (in *In) Close(ctx context.Context) error {
	in.mu.Lock()
	in.closed = true
	for _, l := range in.lanes {
		l.mu.Lock()
		l.closed = true
		l.mu.Unlock()
		signal(l.wake)
	}
	in.mu.Unlock()
	told := make(chan struct{})
	go func() {
		in.work.Wait()
		close(told)
	}()
	defer in.stop()
	select {
	case <-told:
		return nil
	case <-ctx.Done():
		in.stop()
		<-told
		return ctx.Err()
	}
}
