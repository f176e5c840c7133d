package linktest

import (
	"io"
	"net"
	"sync"
	"time"
)

// conn is the dialing end of a connection over a line.
type conn struct {
	net.Conn // the real one, to the other end
	line     *Line
	out      Way
	stop     chan struct{}
	once     sync.Once
	work     sync.WaitGroup

	sending chan segment
	arrived *io.PipeReader

	mu     sync.Mutex
	failed error // why nothing can be sent any more
}

type segment struct {
	bytes []byte
	due   time.Time
}

func newConn(l *Line, real net.Conn, out Way) *conn {
	reader, writer := io.Pipe()
	c := &conn{Conn: real, line: l, out: out, stop: make(chan struct{}), sending: make(chan segment, underway), arrived: reader}
	arriving := make(chan segment, underway)
	c.work.Go(func() { c.fail(c.deliver(c.sending, out, real)) })
	c.work.Go(func() { c.receive(arriving) })
	c.work.Go(func() { writer.CloseWithError(c.deliver(arriving, out.other(), writer)) })
	return c
}

// Write queues; it returns when all of p is on the line, not when it has arrived.
func (c *conn) Write(p []byte) (int, error) {
	for done := 0; done < len(p); {
		part := p[done:min(len(p), done+c.line.chunk())]
		if err := c.put(c.sending, part); err != nil {
			return done, err
		}
		done += len(part)
	}
	return len(p), nil
}

func (c *conn) put(to chan<- segment, part []byte) error {
	due, err := c.line.enter(c.stop, len(part))
	if err != nil {
		return c.why(err)
	}
	select {
	case to <- segment{append([]byte(nil), part...), due}:
		return nil
	case <-c.stop:
		return c.why(net.ErrClosed)
	}
}

// receive takes what the other end has sent onto the line.
func (c *conn) receive(arriving chan<- segment) {
	defer close(arriving)
	b := make([]byte, c.line.chunk())
	for {
		n, err := c.Conn.Read(b)
		if n > 0 && c.put(arriving, b[:n]) != nil || err != nil {
			return
		}
	}
}

// deliver hands segments on when they are due, in order, while the way is not held.
func (c *conn) deliver(from <-chan segment, w Way, to io.Writer) error {
	for {
		select {
		case s, ok := <-from:
			if !ok {
				return io.EOF
			}
			if err := wait(c.stop, time.Until(s.due)); err != nil {
				return err
			}
			if err := c.line.pass(c.stop, w); err != nil {
				return err
			}
			if _, err := to.Write(s.bytes); err != nil {
				return err
			}
			c.line.mu.Lock()
			c.line.carried[w] += int64(len(s.bytes))
			c.line.mu.Unlock()
		case <-c.stop:
			return net.ErrClosed
		}
	}
}

func (c *conn) Read(p []byte) (int, error) { return c.arrived.Read(p) }

// fail keeps why sending has ended and ends the connection.
func (c *conn) fail(err error) {
	c.mu.Lock()
	c.failed = err
	c.mu.Unlock()
	c.once.Do(c.end)
}

func (c *conn) why(err error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.failed != nil {
		return c.failed
	}
	return err
}

func (c *conn) end() {
	close(c.stop)
	c.Conn.Close()
	c.arrived.Close()
}

// Close ends the connection at once, with what is underway, and waits for its
// goroutines.
func (c *conn) Close() error {
	c.once.Do(c.end)
	c.work.Wait()
	return nil
}

// Deadlines hold for the real connection only: what a link does under a deadline, its
// handshakes, it also bounds by closing.
func (c *conn) SetDeadline(t time.Time) error      { return nil }
func (c *conn) SetReadDeadline(t time.Time) error  { return nil }
func (c *conn) SetWriteDeadline(t time.Time) error { return nil }
