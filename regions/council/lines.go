package council

import (
	"context"
	"net"
	"strings"
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

// address is a voter's in the voters' protocol: its region, and of one that joined the random
// name of its folder. Two voters of one region, of which one has lost its vote and does not
// know it, are told apart by it.
type address string

func (address) Network() string  { return "region" }
func (a address) String() string { return string(a) }

func addressOf(region, born string) string {
	if born == "" {
		return region
	}
	return region + "/" + born
}

func (a address) parts() (region, born string) {
	region, born, _ = strings.Cut(string(a), "/")
	return region, born
}

// ballots hands the connections of the voters' protocol to it.
type ballots struct {
	self   string
	dial   func(ctx context.Context, to address) (net.Conn, error)
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func newBallots(self string, dial func(context.Context, address) (net.Conn, error)) *ballots {
	return &ballots{self: self, dial: dial, conns: make(chan net.Conn), closed: make(chan struct{})}
}

// Dial opens a connection to another voter.
func (b *ballots) Dial(to raft.ServerAddress, timeout time.Duration) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	return b.dial(ctx, address(to))
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

// Addr is the voter's own address.
func (b *ballots) Addr() net.Addr { return address(b.self) }
