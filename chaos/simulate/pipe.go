package simulate

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"
)

// buffered is how many bytes a pipe holds in one direction before its writer waits.
const buffered = 4 << 20

// waiting is how many connections a listener lets wait to be accepted.
const waiting = 128

// network is pipes for sockets: within it a listener is found by the address it was opened
// with, and nothing else is reached. What waits on it waits on channels alone, so that
// virtual time can pass. It is safe for concurrent use.
type network struct {
	mu        sync.Mutex
	listeners map[string]*listener
	calls     int
}

func newNetwork() *network { return &network{listeners: map[string]*listener{}} }

// Listen opens a listener at exactly this address.
func (n *network) Listen(_ context.Context, kind, address string) (net.Listener, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	at := placeOf(kind, address)
	if n.listeners[address] != nil {
		return nil, &net.OpError{Op: "listen", Net: kind, Addr: at, Err: syscall.EADDRINUSE}
	}
	l := &listener{network: n, address: address, at: at, calls: make(chan net.Conn, waiting), closed: make(chan struct{})}
	n.listeners[address] = l
	return l, nil
}

// Dial connects to the listener at an address, or is refused.
func (n *network) Dial(ctx context.Context, kind, address string) (net.Conn, error) {
	n.mu.Lock()
	l := n.listeners[address]
	n.calls++
	here := placeOf(kind, fmt.Sprintf("127.0.0.1:%d", 32768+n.calls%28000))
	n.mu.Unlock()
	refused := &net.OpError{Op: "dial", Net: kind, Addr: placeOf(kind, address), Err: syscall.ECONNREFUSED}
	if l == nil {
		return nil, refused
	}
	out, in := newHalf(), newHalf()
	near := &pipe{in: in, out: out, local: here, remote: l.at}
	far := &pipe{in: out, out: in, local: l.at, remote: here}
	select {
	case l.calls <- far:
		return near, nil
	case <-l.closed:
		return nil, refused
	case <-ctx.Done():
		return nil, &net.OpError{Op: "dial", Net: kind, Addr: l.at, Err: ctx.Err()}
	}
}

// placeOf is an address as sockets have it where it is an IP address, else its name.
func placeOf(kind, address string) net.Addr {
	host, port, err := net.SplitHostPort(address)
	if ip := net.ParseIP(host); err == nil && ip != nil {
		if number, err := net.LookupPort(kind, port); err == nil {
			return &net.TCPAddr{IP: ip, Port: number}
		}
	}
	return place(address)
}

// place is the address of a host that has no IP address here.
type place string

// Network is tcp, as of the socket that it stands for.
func (place) Network() string { return "tcp" }

// String is host:port.
func (p place) String() string { return string(p) }

type listener struct {
	network *network
	address string
	at      net.Addr
	calls   chan net.Conn
	once    sync.Once
	closed  chan struct{}
}

// Accept waits for the next connection.
func (l *listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.calls:
		return c, nil
	case <-l.closed:
		return nil, &net.OpError{Op: "accept", Net: "tcp", Addr: l.at, Err: net.ErrClosed}
	}
}

// Close ends the listener; who waits to be accepted is hung up on.
func (l *listener) Close() error {
	l.once.Do(func() {
		l.network.mu.Lock()
		delete(l.network.listeners, l.address)
		l.network.mu.Unlock()
		close(l.closed)
		for {
			select {
			case c := <-l.calls:
				c.Close()
			default:
				return
			}
		}
	})
	return nil
}

// Addr is where it listens.
func (l *listener) Addr() net.Addr { return l.at }

// half is one direction of a pipe.
type half struct {
	mu      sync.Mutex
	bytes   bytes.Buffer
	ended   bool          // its writer has closed it
	gone    bool          // its reader has
	changed chan struct{} // closed at the next change
}

func newHalf() *half { return &half{changed: make(chan struct{})} }

// stir wakes whoever waits for a change. mu is held.
func (h *half) stir() {
	close(h.changed)
	h.changed = make(chan struct{})
}

func (h *half) read(b []byte, late <-chan struct{}) (int, error) {
	for {
		h.mu.Lock()
		switch {
		case h.gone:
			h.mu.Unlock()
			return 0, net.ErrClosed
		case over(late):
			h.mu.Unlock()
			return 0, os.ErrDeadlineExceeded
		case h.bytes.Len() > 0 || len(b) == 0:
			n, _ := h.bytes.Read(b)
			h.stir()
			h.mu.Unlock()
			return n, nil
		case h.ended:
			h.mu.Unlock()
			return 0, io.EOF
		}
		changed := h.changed
		h.mu.Unlock()
		select {
		case <-changed:
		case <-late:
		}
	}
}

func (h *half) write(b []byte, late <-chan struct{}) (written int, err error) {
	for {
		h.mu.Lock()
		switch {
		case h.ended:
			h.mu.Unlock()
			return written, net.ErrClosed
		case h.gone:
			h.mu.Unlock()
			return written, syscall.EPIPE
		case over(late):
			h.mu.Unlock()
			return written, os.ErrDeadlineExceeded
		}
		if room := min(buffered-h.bytes.Len(), len(b)-written); room > 0 {
			h.bytes.Write(b[written : written+room])
			written += room
			h.stir()
		}
		changed := h.changed
		h.mu.Unlock()
		if written == len(b) {
			return written, nil
		}
		select {
		case <-changed:
		case <-late:
		}
	}
}

func over(late <-chan struct{}) bool {
	select {
	case <-late:
		return true
	default:
		return false
	}
}

// pipe is one end of a connection.
type pipe struct {
	in, out       *half
	local, remote net.Addr
	reading       deadline
	writing       deadline
}

// Read reads what the other end wrote; io.EOF once that has closed and all is read.
func (p *pipe) Read(b []byte) (int, error) {
	n, err := p.in.read(b, p.reading.wait())
	return n, p.wrap("read", err)
}

// Write hands bytes to the other end, and waits while too many lie there unread.
func (p *pipe) Write(b []byte) (int, error) {
	n, err := p.out.write(b, p.writing.wait())
	return n, p.wrap("write", err)
}

func (p *pipe) wrap(op string, err error) error {
	if err == nil || err == io.EOF { //nolint:errorlint // callers of a connection compare io.EOF itself
		return err
	}
	return &net.OpError{Op: op, Net: "tcp", Source: p.local, Addr: p.remote, Err: err}
}

// Close ends both directions. What was written before can still be read at the other end.
func (p *pipe) Close() error {
	p.out.mu.Lock()
	if !p.out.ended {
		p.out.ended = true
		p.out.stir()
	}
	p.out.mu.Unlock()
	p.in.mu.Lock()
	if !p.in.gone {
		p.in.gone = true
		p.in.bytes.Reset()
		p.in.stir()
	}
	p.in.mu.Unlock()
	p.reading.set(time.Time{})
	p.writing.set(time.Time{})
	return nil
}

// LocalAddr is this end's address.
func (p *pipe) LocalAddr() net.Addr { return p.local }

// RemoteAddr is the other end's address.
func (p *pipe) RemoteAddr() net.Addr { return p.remote }

// SetDeadline bounds reads and writes, also those that wait now.
func (p *pipe) SetDeadline(t time.Time) error {
	p.reading.set(t)
	p.writing.set(t)
	return nil
}

// SetReadDeadline bounds reads.
func (p *pipe) SetReadDeadline(t time.Time) error { p.reading.set(t); return nil }

// SetWriteDeadline bounds writes.
func (p *pipe) SetWriteDeadline(t time.Time) error { p.writing.set(t); return nil }

// deadline closes a channel at an instant. The zero value has none.
type deadline struct {
	mu    sync.Mutex
	timer *time.Timer
	turn  int           // which setting counts
	late  chan struct{} // who waits at any setting waits on the same, until it is closed
}

func (d *deadline) wait() <-chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.late == nil {
		d.late = make(chan struct{})
	}
	return d.late
}

// set moves the deadline, also of those who wait already; the zero time is none.
func (d *deadline) set(t time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.timer != nil {
		d.timer.Stop()
		d.timer = nil
	}
	d.turn++
	if d.late == nil || over(d.late) {
		d.late = make(chan struct{})
	}
	if t.IsZero() {
		return
	}
	if left := time.Until(t); left > 0 {
		turn := d.turn
		d.timer = time.AfterFunc(left, func() { d.pass(turn) })
		return
	}
	close(d.late)
}

func (d *deadline) pass(turn int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.turn == turn && !over(d.late) {
		close(d.late)
	}
}
