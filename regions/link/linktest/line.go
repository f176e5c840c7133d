// Package linktest is the bad line that tests put under a link: narrow, long, one-way,
// silent, or all of it. It works on real sockets and takes no privileges.
package linktest

import (
	"context"
	"net"
	"sync"
	"time"
)

// Way is a direction of a line.
type Way int

// The two ways, seen from the end whose dialer is Dial(There).
const (
	There Way = iota
	Back
)

func (w Way) other() Way { return 1 - w }

const (
	packet    = 1400     // bytes that travel as one on a narrow line
	wideChunk = 16 << 10 // and on a line without a rate
	underway  = 512      // packets of one connection and way that wait to be delivered
)

// Line is the path between two regions: every connection that was dialed over it
// shares one rate, for both ways together, behind one queue that is served in order.
// A sender blocks while the queue is full. Safe for concurrent use.
type Line struct {
	rate   int // bytes per second; 0: no limit
	queue  int // bytes that wait for their turn, over all connections
	oneWay time.Duration

	mu      sync.Mutex
	free    time.Time        // when everything in the queue has left it
	held    [2]chan struct{} // per way; nil: bytes pass. Closed by Release
	carried [2]int64
}

// NewLine makes a line that carries rate bytes a second (0: any), each after oneWay,
// with room for queue bytes that wait.
func NewLine(rate int, oneWay time.Duration, queue int) *Line {
	return &Line{rate: rate, queue: queue, oneWay: oneWay}
}

// Hold stops every byte of a way, on open connections and on new ones, without closing
// any; nothing is lost.
func (l *Line) Hold(ways ...Way) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, w := range ways {
		if l.held[w] == nil {
			l.held[w] = make(chan struct{})
		}
	}
}

// Release lets the bytes of a way go on.
func (l *Line) Release(ways ...Way) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, w := range ways {
		if l.held[w] != nil {
			close(l.held[w])
			l.held[w] = nil
		}
	}
}

// Carried is how many bytes were delivered one way.
func (l *Line) Carried(w Way) int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.carried[w]
}

// Dial is the dialer of the end whose bytes go w. It fits link.Config.Dial.
func (l *Line) Dial(w Way) func(ctx context.Context, network, address string) (net.Conn, error) {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		for _, way := range []Way{w, w.other()} { // a handshake needs both
			if err := l.pass(ctx.Done(), way); err != nil {
				return nil, context.Cause(ctx)
			}
		}
		c, err := (&net.Dialer{}).DialContext(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return newConn(l, c, w), nil
	}
}

// pass waits until the way is not held.
func (l *Line) pass(stop <-chan struct{}, w Way) error {
	for {
		l.mu.Lock()
		held := l.held[w]
		l.mu.Unlock()
		if held == nil {
			return nil
		}
		select {
		case <-held:
		case <-stop:
			return net.ErrClosed
		}
	}
}

// enter queues n bytes and answers when they arrive. It blocks while the queue is full.
func (l *Line) enter(stop <-chan struct{}, n int) (time.Time, error) {
	for {
		l.mu.Lock()
		now := time.Now()
		if l.free.Before(now) {
			l.free = now
		}
		if l.rate == 0 {
			l.mu.Unlock()
			return now.Add(l.oneWay), nil
		}
		waiting := int(l.free.Sub(now).Seconds() * float64(l.rate))
		if waiting == 0 || waiting+n <= l.queue {
			l.free = l.free.Add(l.takes(n))
			due := l.free.Add(l.oneWay)
			l.mu.Unlock()
			return due, nil
		}
		room := l.takes(waiting + n - l.queue)
		l.mu.Unlock()
		if err := wait(stop, room); err != nil {
			return time.Time{}, err
		}
	}
}

func (l *Line) takes(n int) time.Duration {
	return time.Duration(n) * time.Second / time.Duration(l.rate)
}

func (l *Line) chunk() int {
	if l.rate == 0 {
		return wideChunk
	}
	return packet
}

func wait(stop <-chan struct{}, d time.Duration) error {
	timer := time.NewTimer(max(d, time.Microsecond))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-stop:
		return net.ErrClosed
	}
}
