package link

import (
	"net"
	"os"
	"sync"
	"time"

	"domicile/regions"
)

// What one lane may have on its way: bytes that were written and that the peer has not
// read yet.
const (
	firstPaced = 4 << 10     // bytes, before anything is measured; at 50 kbit/s 0.7 s of line
	leastPaced = 3 << 10     // bytes
	receiptFor = 1 << 10     // bytes that are worth a receipt: always less than leastPaced leaves free
	pacedFor   = time.Second // the window is what moves in this time, a round trip included
)

// pacer holds what is written to what the peer can take in, so that no queue builds up between
// the two that a heartbeat would have to wait in: not in this machine's socket, and not
// in the network. It goes by the peer's receipts, since only they tell what has got
// through everything in between: on the data lane the number of bytes that it has read
// from the connection, on the control lane its answer to the heartbeat behind a frame.
// Against a peer that sends none it holds nothing.
type pacer struct {
	clock regions.Clock

	mu       sync.Mutex
	on       bool
	written  int64 // all bytes of this connection, handshake included
	received int64 // of these, as the peer says
	window   int
	limited  bool // somebody had to wait during this measurement
	rate     rate
	changed  chan struct{} // closed and replaced when there may be room
}

// newPacer begins with a rate too: the first measurement counts as little as any other, since
// what moved in no time while little was sent is part of it.
func newPacer(clock regions.Clock) *pacer {
	return &pacer{clock: clock, window: firstPaced, rate: rate{perSecond: firstPaced / pacedFor.Seconds()}, changed: make(chan struct{})}
}

// start begins to hold. What was written before has been answered, so it has arrived.
func (p *pacer) start() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.on, p.received = true, p.written
}

// stop holds nothing any more: the peer tells nothing.
func (p *pacer) stop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.on = false
	p.wakeLocked()
}

// take waits until some of n bytes may be written, and answers how many.
func (p *pacer) take(n int, closed <-chan struct{}, dl *deadline) (int, error) {
	for {
		granted, changed := p.try(n)
		if granted > 0 {
			return granted, nil
		}
		select {
		case <-changed:
		case <-closed:
			return 0, net.ErrClosed
		case <-dl.done():
			return 0, os.ErrDeadlineExceeded
		}
	}
}

func (p *pacer) try(n int) (int, <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.on {
		room := p.window - int(p.written-p.received)
		if room < min(n, receiptFor) {
			p.limited = true
			return 0, p.changed
		}
		n = min(n, room)
		if p.written == p.received {
			p.rate.begin(p.clock.Now())
		}
	}
	p.written += int64(n)
	return n, nil
}

// receipt books that the peer has read all bytes up to the total one.
func (p *pacer) receipt(total int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := min(total, p.written) - p.received
	if !p.on || n <= 0 {
		return
	}
	if p.rate.add(int(n), true, p.limited, p.window, p.clock.Now()) {
		p.limited = false
		p.window = p.rate.window(pacedFor, leastPaced, maxWindow)
	}
	p.received += n
	p.wakeLocked()
}

func (p *pacer) wakeLocked() {
	close(p.changed)
	p.changed = make(chan struct{})
}

// room says whether one more message may be written, and if not, what is closed when
// that may have changed. Messages are not cut: the last one may exceed the window.
func (p *pacer) room() (bool, <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	free := int(p.written-p.received) < p.window
	p.limited = p.limited || !free
	return free, p.changed
}

// wrote books a whole message. It answers whether a receipt is wanted now: what is on
// its way is more than half of what may be.
func (p *pacer) wrote(n int) (wanted bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.written == p.received {
		p.rate.begin(p.clock.Now())
	}
	p.written += int64(n)
	return int(p.written-p.received) > p.window/2
}

// holds is how many bytes the line holds: a message of more keeps the others waiting.
func (p *pacer) holds() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.on {
		return maxWindow
	}
	return p.window
}

// position is how many bytes were written, and how many of them have arrived as far
// as is known. telling: the peer sends receipts.
func (p *pacer) position() (written, received int64, telling bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.written, p.received, p.on
}

// receipts counts what is read from an accepted data connection and says when that is
// worth telling.
type receipts struct {
	mu    sync.Mutex
	total int64
	told  int64
	due   chan struct{} // cap 1
}

func newReceipts() *receipts { return &receipts{due: make(chan struct{}, 1)} }

func (r *receipts) read(n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.total += int64(n)
	if r.total-r.told >= receiptFor {
		signal(r.due)
	}
}

// tell is the number to put into the next answer.
func (r *receipts) tell() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.told = r.total
	return r.total
}
