package client

import (
	"context"
	"crypto/x509"
	"math/rand/v2"
	"net"
	"sync"
	"time"
)

// A client that lost its door waits up to spread before it dials again, and after an
// attempt that failed pauseBetween, give or take a fifth. The shortest pause is no
// shorter than the spread, so that the attempts of many clients that lost one door in
// the same moment stay as far apart as their first ones are.
const (
	spread       = 2 * time.Second
	pauseBetween = spread * 5 / 4
)

// redialer dials for one client. Safe for concurrent use.
type redialer struct {
	dial  func(ctx context.Context, address string) (net.Conn, error)
	shown func() *x509.Certificate

	mu   sync.Mutex
	from time.Time // no dial before; zero: nothing was lost yet
	open map[*doorConn]bool
}

func (r *redialer) connect(ctx context.Context, address string) (net.Conn, error) {
	r.mu.Lock()
	wait := time.Until(r.from)
	r.mu.Unlock()
	if wait > 0 {
		timer := time.NewTimer(wait)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	c, err := r.dial(ctx, address)
	if err != nil {
		return nil, err
	}
	d := &doorConn{Conn: c, redialer: r, shown: r.shown()}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.open[d] = true
	return d, nil
}

func (r *redialer) closed(c *doorConn, lost bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.open, c)
	if lost {
		r.from = time.Now().Add(rand.N(spread))
	}
}

// doorConn tells when it is closed, which gRPC does as soon as it is of no use.
type doorConn struct {
	net.Conn
	once     sync.Once
	redialer *redialer
	shown    *x509.Certificate // that it was opened with; nil: not known
}

func (c *doorConn) Close() error {
	c.once.Do(func() { c.redialer.closed(c, true) })
	return c.Conn.Close()
}

// renew closes a connection that nobody lost: the next is opened at once.
func (c *doorConn) renew() {
	c.once.Do(func() { c.redialer.closed(c, false) })
	_ = c.Conn.Close()
}
