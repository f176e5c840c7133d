package council

import (
	"context"
	"net"
	"sync"
	"time"

	"github.com/hashicorp/raft"
)

// Lines connects the councils of the regions. Its connections are encrypted and both ends
// have shown a certificate of kind region. Implementations are safe for concurrent use.
type Lines interface {
	// Dial opens a connection to a region's council, and fails if whoever answers is not
	// that region.
	Dial(ctx context.Context, region string) (net.Conn, error)
	// Accept waits for the next connection and names the region at its other end, as its
	// certificate does. It fails once the lines are closed.
	Accept() (conn net.Conn, region string, err error)
	// Close ends Accept. It leaves open connections alone.
	Close() error
}

// region is a voter's address in the voters' protocol: its name, nothing else.
type region string

func (region) Network() string  { return "region" }
func (r region) String() string { return string(r) }

// ballots hands the connections of the voters' protocol to it.
type ballots struct {
	self   string
	dial   func(ctx context.Context, region string) (net.Conn, error)
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func newBallots(self string, dial func(context.Context, string) (net.Conn, error)) *ballots {
	return &ballots{self: self, dial: dial, conns: make(chan net.Conn), closed: make(chan struct{})}
}

// Dial opens a connection to another voter.
func (b *ballots) Dial(to raft.ServerAddress, timeout time.Duration) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	return b.dial(ctx, string(to))
}

// Accept waits for a connection that offer brings.
func (b *ballots) Accept() (net.Conn, error) {
	select {
	case c := <-b.conns:
		return c, nil
	case <-b.closed:
		return nil, net.ErrClosed
	}
}

// offer hands a connection over, or closes it.
func (b *ballots) offer(c net.Conn) {
	select {
	case b.conns <- c:
	case <-b.closed:
		_ = c.Close() // nobody is left to read it
	}
}

// Close ends Accept.
func (b *ballots) Close() error {
	b.once.Do(func() { close(b.closed) })
	return nil
}

// Addr is the voter's own name.
func (b *ballots) Addr() net.Addr { return region(b.self) }
