package link

import (
	"context"
	"crypto/tls"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"domicile/regions"
)

// gatedConn is a connection with the fault gate in it. Traffic that a black hole
// holds waits here until the cut ends, a deadline passes or the connection closes;
// then it goes on, as it would after a real outage.
type gatedConn struct {
	net.Conn
	gates  *ends
	origin regions.Direction // Out: we dialed it, In: we accepted it
	clock  regions.Clock
	began  time.Time
	closed chan struct{}
	once   sync.Once
	freed  sync.Once
	onGone func() // frees what counts the connection

	lastRead atomic.Int64 // clock, Unix ns; 0: nothing yet

	readDL, writeDL deadline

	kept []byte // read, but held until its reader's deadline had passed

	pacer    *pacer    // of a data connection that was dialed; else nil
	receipts *receipts // of one that was accepted; counts whatever lane it turns out to be

	// Of one that was accepted, or that is the council's; once hands were shaken; not changed.
	state atomic.Pointer[tls.ConnectionState]
	// Of one that was accepted.
	run        atomic.Pointer[string] // whose hello was accepted on it; nil: nothing else is served yet
	dispatched atomic.Bool            // gRPC has no more say in it

	mu    sync.Mutex
	peer  string
	plane Plane
}

func newGatedConn(c net.Conn, g *ends, clock regions.Clock, origin regions.Direction, onGone func()) *gatedConn {
	gc := &gatedConn{Conn: c, gates: g, origin: origin, clock: clock, began: clock.Now(), closed: make(chan struct{}), onGone: onGone}
	if origin == regions.In {
		gc.receipts = newReceipts()
	}
	gc.readDL.init()
	gc.writeDL.init()
	g.add(gc)
	return gc
}

// identify says whose link and which lane this is. An accepted connection is nobody's
// until its first TLS message has named both.
func (c *gatedConn) identify(peer string, plane Plane) {
	c.mu.Lock()
	c.peer, c.plane = peer, plane
	c.mu.Unlock()
}

func (c *gatedConn) who() (peer string, plane Plane) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.peer, c.plane
}

// pass waits until the gate lets traffic of this direction through.
func (c *gatedConn) pass(dir regions.Direction, dl *deadline) error {
	for {
		peer, plane := c.who()
		mode, changed := c.gates.verdict(peer, plane, dir, c.origin)
		switch mode {
		case "":
			return nil
		case Reject:
			c.Close()
			return errCut
		}
		select {
		case <-changed:
		case <-c.closed:
			return net.ErrClosed
		case <-dl.done():
			return os.ErrDeadlineExceeded
		}
	}
}

// Read holds back what arrived while a black hole is there, also when the read
// itself began before the cut. One goroutine reads at a time, as TLS does.
func (c *gatedConn) Read(p []byte) (int, error) {
	if err := c.pass(regions.In, &c.readDL); err != nil {
		return 0, err
	}
	if len(c.kept) > 0 {
		n := copy(p, c.kept)
		c.kept = c.kept[n:]
		c.count(n)
		return n, nil
	}
	n, err := c.Conn.Read(p)
	if gateErr := c.pass(regions.In, &c.readDL); gateErr != nil {
		c.kept = append(c.kept, p[:n]...)
		return 0, gateErr
	}
	c.count(n)
	return n, err
}

func (c *gatedConn) count(n int) {
	if n > 0 {
		c.lastRead.Store(c.clock.Now().UnixNano())
		if c.receipts != nil {
			c.receipts.read(n)
		}
	}
}

// Write goes in parts where a pacer holds it back. One goroutine writes at a time, as
// TLS does.
func (c *gatedConn) Write(p []byte) (int, error) {
	for done := 0; ; {
		part := p[done:]
		if c.pacer != nil && len(part) > 0 {
			n, err := c.pacer.take(len(part), c.closed, &c.writeDL)
			if err != nil {
				return done, err
			}
			part = part[:n]
		}
		if err := c.pass(regions.Out, &c.writeDL); err != nil {
			return done, err
		}
		n, err := c.Conn.Write(part)
		if done += n; err != nil || done == len(p) {
			return done, err
		}
	}
}

func (c *gatedConn) Close() error {
	err := net.ErrClosed
	c.once.Do(func() {
		close(c.closed)
		c.gates.remove(c)
		err = c.Conn.Close()
		c.readDL.stop()
		c.writeDL.stop()
		c.free()
	})
	return err
}

func (c *gatedConn) free() {
	c.freed.Do(func() {
		if c.onGone != nil {
			c.onGone()
		}
	})
}

// dispatch takes an accepted connection away from gRPC, with its deadlines and from what
// counts its connections.
func (c *gatedConn) dispatch() {
	c.dispatched.Store(true)
	_ = c.setDeadline(time.Time{}) // if it fails, so does all that follows
	c.free()
}

func (c *gatedConn) SetDeadline(t time.Time) error {
	if c.dispatched.Load() {
		return nil
	}
	return c.setDeadline(t)
}

func (c *gatedConn) setDeadline(t time.Time) error {
	c.readDL.set(t)
	c.writeDL.set(t)
	return c.Conn.SetDeadline(t)
}

func (c *gatedConn) SetReadDeadline(t time.Time) error {
	c.readDL.set(t)
	return c.Conn.SetReadDeadline(t)
}

func (c *gatedConn) SetWriteDeadline(t time.Time) error {
	c.writeDL.set(t)
	return c.Conn.SetWriteDeadline(t)
}

// deadline is a connection deadline that can be waited on.
type deadline struct {
	mu    sync.Mutex
	timer *time.Timer
	past  chan struct{} // closed once the deadline has passed
}

func (d *deadline) init() { d.past = make(chan struct{}) }

func (d *deadline) done() <-chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.past
}

// set is in wall time, as net.Conn has it.
func (d *deadline) set(t time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.timer != nil {
		d.timer.Stop()
		d.timer = nil
	}
	select {
	case <-d.past:
		d.past = make(chan struct{})
	default:
	}
	if t.IsZero() {
		return
	}
	past := d.past
	if wait := time.Until(t); wait > 0 {
		d.timer = time.AfterFunc(wait, func() { d.pass(past) })
	} else {
		close(past)
	}
}

func (d *deadline) pass(past chan struct{}) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.past == past {
		select {
		case <-past:
		default:
			close(past)
		}
	}
}

func (d *deadline) stop() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.timer != nil {
		d.timer.Stop()
		d.timer = nil
	}
}

// gatedListener wraps what it accepts, at most limit connections at a time: the rest
// is closed at once, so that a flood of connections costs no memory here.
type gatedListener struct {
	net.Listener
	gates *ends
	clock regions.Clock
	slots chan struct{}
}

func newGatedListener(l net.Listener, g *ends, clock regions.Clock, limit int) *gatedListener {
	return &gatedListener{Listener: l, gates: g, clock: clock, slots: make(chan struct{}, limit)}
}

func (l *gatedListener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		select {
		case l.slots <- struct{}{}:
			return newGatedConn(c, l.gates, l.clock, regions.In, func() { <-l.slots }), nil
		default:
			c.Close()
		}
	}
}

// dialGated opens a connection to a peer through the gate. A black hole holds the
// dial until ctx ends, as a lost SYN would.
func dialGated(ctx context.Context, dial func(context.Context, string, string) (net.Conn, error), g *ends, clock regions.Clock, peer string, plane Plane, address string) (*gatedConn, error) {
	for {
		mode, changed := g.verdict(peer, plane, regions.Out, regions.Out)
		if mode == "" {
			break
		}
		if mode == Reject {
			return nil, errCut
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	c, err := dial(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	gc := newGatedConn(c, g, clock, regions.Out, nil)
	gc.identify(peer, plane)
	return gc, nil
}
