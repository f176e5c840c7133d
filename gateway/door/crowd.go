package door

import (
	"net"
	"sync"
	"sync/atomic"
)

// maxConnections bounds the connections of one door; more are closed at once, and what
// is open goes on.
const maxConnections = 1_024

// crowd is a listener that lets in so many connections at a time.
type crowd struct {
	net.Listener
	most int64
	open atomic.Int64
	full func() // a connection was turned away
}

// Accept waits for the next connection that there is room for.
func (c *crowd) Accept() (net.Conn, error) {
	for {
		conn, err := c.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if c.open.Add(1) <= c.most {
			return &member{Conn: conn, leave: sync.OnceFunc(func() { c.open.Add(-1) })}, nil
		}
		c.open.Add(-1)
		_ = conn.Close()
		c.full()
	}
}

type member struct {
	net.Conn
	leave func()
}

// Close makes room for another.
func (m *member) Close() error {
	m.leave()
	return m.Conn.Close()
}
