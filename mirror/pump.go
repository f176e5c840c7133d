package mirror

import (
	"context"
	"sync"
	"time"

	"domicile/regions"
)

// sent is a batch the target has not confirmed yet.
type sent struct {
	last    uint64
	items   int
	records int
	bytes   int
	gaps    []regions.Gap // that our egress left
	lost    []regions.Gap // that were in the log already
}

// pump moves one session's records: it reads, judges and sends; a second goroutine
// takes in the replies.
type pump struct {
	flow    *flow
	stream  regions.MirrorStream
	dog     *watchdog
	cancel  context.CancelCauseFunc
	reader  regions.Reader
	read    uint64 // last sequence read
	batch   batch
	replied chan struct{} // cap 1
	linger  *time.Timer   // of the batch; fired or stopped while it is empty
}

func newPump(f *flow, stream regions.MirrorStream, dog *watchdog, cancel context.CancelCauseFunc) *pump {
	p := &pump{flow: f, stream: stream, dog: dog, cancel: cancel, replied: make(chan struct{}, 1), linger: time.NewTimer(time.Hour)}
	p.linger.Stop()
	return p
}

func (p *pump) run(ctx context.Context) error {
	f := p.flow
	f.mu.Lock()
	p.read = f.cursor.Sequence
	f.mu.Unlock()
	reader, err := f.log.Reader(ctx, p.read)
	if err != nil {
		return cause(ctx, err)
	}
	defer reader.Close()
	p.reader = reader
	var receiver sync.WaitGroup
	receiver.Go(func() { p.cancel(p.receive(ctx)) })
	// The stream is closed before the receiver is waited for: a Recv may only end so.
	defer receiver.Wait()
	defer p.stream.Close()
	defer p.cancel(nil)
	defer p.batch.leave()
	defer p.linger.Stop()
	return cause(ctx, p.loop(ctx))
}

func (p *pump) loop(ctx context.Context) error {
	for {
		if err := p.room(ctx); err != nil {
			return err
		}
		if err := p.fill(ctx); err != nil {
			return err
		}
		step := p.rest
		if p.batch.pass != nil {
			step = p.send
		}
		if err := step(ctx); err != nil {
			return err
		}
	}
}

// outstanding is what the window holds.
func (p *pump) outstanding() (batches, items, bytes int) {
	p.flow.mu.Lock()
	defer p.flow.mu.Unlock()
	return len(p.flow.inflight), p.flow.inItems, p.flow.inBytes
}

// room waits until the window holds one more full batch.
func (p *pump) room(ctx context.Context) error {
	window, limit := p.flow.source.cfg.Window, p.flow.topic.Load().Batch
	for {
		batches, items, bytes := p.outstanding()
		if batches == 0 || batches < window.Batches && items+limit.Records <= window.Records && bytes+limit.Bytes <= window.Bytes {
			return nil
		}
		p.dog.at("target's reply")
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-p.replied:
		}
	}
}

// fill reads and judges until the batch is full, or may be sent as it is. It returns
// with an empty batch when there is nothing to read.
func (p *pump) fill(ctx context.Context) error {
	limit := p.flow.topic.Load().Batch
	for !p.batch.full(limit) {
		n, err := p.next(ctx)
		if err != nil {
			return err
		}
		if p.batch.pass == nil {
			return nil
		}
		if n > 0 {
			select {
			case <-p.linger.C:
				return nil
			default:
				continue
			}
		}
		if batches, _, _ := p.outstanding(); batches == 0 && p.batch.records > 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-p.linger.C:
			return nil
		case <-p.replied:
		case <-p.more():
		}
	}
	return nil
}

// next reads once and judges what came.
func (p *pump) next(ctx context.Context) (int, error) {
	f, limit := p.flow, p.flow.topic.Load().Batch
	p.dog.at("reader of the home log")
	if f.log.Head().Sequence > p.read {
		p.dog.resume()
	}
	items, err := p.reader.Next(ctx, p.batch.room(limit))
	if err != nil || len(items) == 0 {
		return 0, err
	}
	pace := f.source.cfg.Pace
	if p.batch.pass == nil {
		p.batch.pass = f.source.cfg.Enter()
		p.linger.Reset(pace.Of(gapLinger))
	}
	if p.batch.pass.Stale() || !f.judgedUnder(p.batch.pass.Revision()) {
		return 0, errAgain
	}
	before := p.batch.records
	if err := f.judge(&p.batch, items); err != nil {
		return 0, err
	}
	if before == 0 && p.batch.records > 0 {
		linger := pace.Of(limit.Linger)
		if f.member {
			linger = 0 // producers wait for it
		}
		p.linger.Reset(linger)
	}
	p.read = items[len(items)-1].Sequence
	return len(items), nil
}

// judgedUnder reports whether the tally's counts are of this revision.
func (f *flow) judgedUnder(revision string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.tally.known && f.tally.revision == revision
}

func (p *pump) more() <-chan struct{} { return p.flow.moreAfter(p.read) }

// moreAfter is closed when there is more to read. A reader that gave nothing though
// the head is further is asked again after a while; the watchdog ends that.
func (f *flow) moreAfter(read uint64) <-chan struct{} {
	if f.log.Head().Sequence > read {
		slow := make(chan struct{})
		time.AfterFunc(f.source.cfg.Pace.Of(pollReader), func() { close(slow) })
		return slow
	}
	return f.log.Changed(read)
}

// send hands the batch over, unless the policy has changed since it was judged.
func (p *pump) send(ctx context.Context) error {
	b := p.batch
	defer p.batch.leave()
	p.linger.Stop()
	if b.pass.Stale() {
		return errAgain
	}
	f := p.flow
	out := sent{last: b.last, items: len(b.items), records: b.records, bytes: b.bytes}
	for i := range b.items {
		switch g := b.items[i].Gap; {
		case g == nil:
		case g.Side == sideEgress:
			out.gaps = append(out.gaps, *g)
		case g.Kind == regions.Expired || g.Kind == regions.Purged:
			out.lost = append(out.lost, *g)
		}
	}
	f.mu.Lock()
	alone := len(f.inflight) == 0
	f.inflight = append(f.inflight, out)
	f.inItems += out.items
	f.inBytes += out.bytes
	incarnation := f.cursor.Incarnation
	f.mu.Unlock()
	if incarnation == "" {
		incarnation = f.log.Head().Incarnation
	}
	p.dog.resume()
	p.dog.at("link")
	err := p.sendWhile(ctx, b.pass, regions.MirrorBatch{Incarnation: incarnation, Serial: b.pass.Serial(), Revision: b.pass.Revision(), Items: b.items})
	if alone {
		p.dog.progress() // the answer has the whole time, however long the credits took
	}
	return err
}

// sendWhile gives the send up when the policy changes while it waits for the link's
// credits: the batch is judged anew, and an activation need not wait for the link.
func (p *pump) sendWhile(ctx context.Context, pass Pass, b regions.MirrorBatch) error {
	ctx, cancel := context.WithCancelCause(ctx)
	var watcher sync.WaitGroup
	defer watcher.Wait()
	defer cancel(nil)
	watcher.Go(func() {
		tick := time.NewTicker(p.flow.source.cfg.Pace.Of(pollStale))
		defer tick.Stop()
		for !pass.Stale() {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
		}
		cancel(errAgain)
	})
	if err := p.stream.Send(ctx, b); err != nil {
		return cause(ctx, err)
	}
	return nil
}

// rest waits for records or replies; a flow that has had neither for a while lets go
// of its stream, reader and goroutine.
func (p *pump) rest(ctx context.Context) error {
	f := p.flow
	var idle <-chan time.Time
	if batches, _, _ := p.outstanding(); batches > 0 {
		p.dog.at("target's reply")
	} else if f.log.Head().Sequence <= p.read {
		p.dog.pause()
		f.setTrouble(trouble{})
		timer := time.NewTimer(f.source.cfg.Pace.Of(idleAfter))
		defer timer.Stop()
		idle = timer.C
	} else {
		p.dog.resume()
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-f.kick:
		return p.recheck()
	case <-idle:
		return errIdle
	case <-p.replied:
	case <-p.more():
	}
	return nil
}

// recheck is what a nudge asks for in mid-session.
func (p *pump) recheck() error {
	f := p.flow
	if !f.source.linkUp(f.target) {
		return errAgain
	}
	return f.checkHello()
}

// receive takes in replies until one of them, or the stream, ends the session.
func (p *pump) receive(ctx context.Context) error {
	for {
		r, err := p.stream.Recv(ctx)
		if err != nil {
			return err
		}
		if r.Refused != "" {
			return p.flow.refused(r)
		}
		if err := p.confirm(r.Cursor); err != nil {
			return err
		}
		select {
		case p.replied <- struct{}{}:
		default:
		}
	}
}

// confirm takes a reply to a batch. One that does not fit what was sent on this stream is no
// correct node's.
func (p *pump) confirm(c regions.Cursor) error {
	f := p.flow
	err := f.checkLedger(c)
	if err == nil && !f.confirmed(c) {
		err = errOddReply
	}
	if err != nil {
		f.source.cfg.Refused.Add(f.target, regions.LaneMirror, regions.Impossible)
		return err
	}
	f.source.cfg.Confirmed(f.id, f.target, c)
	p.dog.progress()
	return nil
}

// confirmed moves the cursor to where the target says it is, if that can be.
func (f *flow) confirmed(c regions.Cursor) bool {
	head := f.log.Head()
	f.mu.Lock()
	defer f.mu.Unlock()
	n := len(f.inflight)
	most := f.cursor.Sequence
	if n > 0 {
		most = f.inflight[n-1].last
	}
	if c.Sequence < f.cursor.Sequence || c.Sequence > most || c.Epoch.Compare(head.Epoch) > 0 {
		return false
	}
	f.confirmLocked(c)
	return true
}

// confirmLocked moves the cursor to where the target says it is. f.mu is held.
func (f *flow) confirmLocked(c regions.Cursor) {
	m := f.source.cfg.Metrics
	n := 0
	for ; n < len(f.inflight) && f.inflight[n].last <= c.Sequence; n++ {
		s := f.inflight[n]
		f.inItems -= s.items
		f.inBytes -= s.bytes
		m.Confirmed(f.id, f.target, s.records, s.bytes)
		for _, g := range s.gaps {
			m.Withheld(f.id, f.target, sideEgress, g.Code, g.Count())
		}
		f.noteLost(s.lost)
	}
	f.inflight = append(f.inflight[:0], f.inflight[n:]...)
	if c.Sequence > f.cursor.Sequence {
		f.rebuilt.Store(false)
		f.attempt.Store(0)
		f.trouble = trouble{}
	}
	f.cursor = c
	f.heard = f.source.cfg.Clock.Now()
	f.tally.confirm(c.Sequence)
}
