package link

import (
	"cmp"
	"context"
	"errors"
	"net"
	"slices"
	"sync"
	"time"

	"domicile/api"
)

const councilQueue = 16 // accepted, and not taken yet

// stream is the protocol of a plane that carries connections as they are, told in TLS so
// that no other is spoken there, and how many of them one peer may have in each direction;
// "" for the planes of the session.
func (p Plane) stream() (protocol string, perPeer int) {
	switch p {
	case Council:
		return "domicile-council", 32
	case Gossip:
		return "domicile-gossip", 8
	}
	return "", 0
}

// Of a connection on which nothing passes: a peer that vanished is known within half a
// minute, before the next request has to run into its deadline.
var councilKeepAlive = net.KeepAliveConfig{Enable: true, Idle: 15 * time.Second, Interval: 5 * time.Second, Count: 3}

// StreamLane carries connections of the placement authority, or of gossip, between the
// regions that have a link: encrypted, both ends verified as regions, under the fault gates, not paced. It
// stands and falls apart from the links' sessions. Safe for concurrent use.
type StreamLane struct {
	mesh  *Mesh
	plane Plane
	queue chan *councilConn
	done  chan struct{}
	once  sync.Once
}

// Council makes a lane of the placement authority. Any number may dial; one at a time accepts.
func (m *Mesh) Council() *StreamLane { return m.stream(Council) }

// Gossip makes a lane of gossip, like Council.
func (m *Mesh) Gossip() *StreamLane { return m.stream(Gossip) }

func (m *Mesh) stream(plane Plane) *StreamLane {
	return &StreamLane{mesh: m, plane: plane, queue: make(chan *councilConn, councilQueue), done: make(chan struct{})}
}

// Dial opens a connection to a region's end of the lane, within ctx and a few seconds at most. Its
// error is an *api.Error with code AuthorityUnreachable that says why. That the peer has
// taken our certificate shows only at the first read.
func (l *StreamLane) Dial(ctx context.Context, region string) (net.Conn, error) {
	p := l.mesh.peers[region]
	switch {
	case p == nil:
		return nil, councilUnreachable(region, nil, "the manifest has no link between it and this region")
	case l.mesh.closing.Load():
		return nil, councilUnreachable(region, net.ErrClosed, "this region is shutting down")
	}
	select {
	case p.streams[l.plane] <- struct{}{}:
	default:
		return nil, councilUnreachable(region, nil, "too many connections to it are open")
	}
	conn, err := p.dialStream(ctx, l.plane)
	if err != nil {
		<-p.streams[l.plane]
		hint := "try again, or another voter"
		if api.CodeOf(err) == api.PermissionDenied {
			hint = "it runs no voter, or its version has no council lane, or it has no link with this region: its log says which"
		}
		return nil, councilUnreachable(region, err, hint)
	}
	conn.gone = func() { <-p.streams[l.plane] }
	return conn, nil
}

func councilUnreachable(region string, why error, hint string) error {
	return &api.Error{Code: api.AuthorityUnreachable, Op: "dial council", Region: region, Err: why, Hint: hint}
}

// dialStream tries the address that answered last and then the others, once each.
func (p *peerLink) dialStream(ctx context.Context, plane Plane) (*councilConn, error) {
	whys := make(reasons, len(p.addresses))
	at := int(p.councilAt.Load())
	for i := range p.addresses {
		n := (at + i) % len(p.addresses)
		raw, conn, err := p.shake(ctx, plane, p.addresses[n])
		if err == nil {
			p.councilAt.Store(int32(n))
			state := conn.ConnectionState()
			raw.state.Store(&state)
			return newCouncilConn(p.mesh.cfg.Hooks.above(p.name, plane, conn), raw), nil
		}
		if whys[n] = err; ctx.Err() != nil {
			break
		}
	}
	return nil, whys
}

// Accept waits for the next connection and names the region at its other end, as its
// certificate does. While nobody has called it, peers are refused; from then on they are
// taken, until Close or the end of the mesh, after which it fails. It also fails while
// another lane of this mesh accepts.
func (l *StreamLane) Accept() (conn net.Conn, region string, err error) {
	if err := l.mesh.accepting[l.plane].takeOver(l); err != nil {
		return nil, "", err
	}
	select {
	case c := <-l.queue:
		peer, _ := c.raw.who()
		return c, peer, nil
	case <-l.done:
		return nil, "", net.ErrClosed
	}
}

// Close ends Accept, and the connections that it had not given out yet. It leaves the
// others alone; those end with the mesh.
func (l *StreamLane) Close() error {
	l.mesh.accepting[l.plane].leave(l)
	return nil
}

// councilConn is one connection of the lane.
type councilConn struct {
	net.Conn
	raw  *gatedConn
	once sync.Once
	gone func() // frees what counts the connection
}

func newCouncilConn(conn net.Conn, raw *gatedConn) *councilConn {
	if c, ok := raw.Conn.(*net.TCPConn); ok {
		_ = c.SetKeepAliveConfig(councilKeepAlive) // the deadlines of who uses it remain
	}
	return &councilConn{Conn: conn, raw: raw}
}

// Close ends the connection at once, without TLS's goodbye: that would wait in a black hole.
func (c *councilConn) Close() error {
	err := net.ErrClosed
	c.once.Do(func() {
		err = c.raw.Close()
		c.gone()
	})
	return err
}

// SetDeadline goes past the gated connection's own: gRPC, which has accepted it, sets that
// one once more when it is done.
func (c *councilConn) SetDeadline(t time.Time) error { return c.raw.setDeadline(t) }

// councils is what the peers have opened on the lane, and who takes it.
type councils struct {
	perPeer int

	mu     sync.Mutex
	taker  *StreamLane // nil: nobody accepts
	closed bool
	open   map[*councilConn]string // accepted → peer
}

var (
	errNoSeat      = &api.Error{Code: api.NotReady, Op: "link handshake", Field: "lane", Hint: "another gateway speaks for this region"}
	errNoLink      = &api.Error{Code: api.PermissionDenied, Op: "link handshake", Field: "lane", Hint: "a witness speaks of the placement of logs and of nothing else"}
	errNoVoter     = &api.Error{Code: api.NotReady, Op: "link handshake", Field: "lane", Hint: "this region runs no voter of the placement authority, or does not gossip"}
	errCouncilBusy = &api.Error{Code: api.Overloaded, Op: "link handshake", Field: "lane", Hint: "whoever takes the lane's connections does not keep up with new ones"}
	errTwoCouncils = errors.New("the lane's connections are accepted already")
)

func (s *councils) takeOver(l *StreamLane) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-l.done:
		return net.ErrClosed
	default:
	}
	switch {
	case s.closed:
		return net.ErrClosed
	case s.taker != nil && s.taker != l:
		return errTwoCouncils
	}
	s.taker = l
	return nil
}

func (s *councils) leave(l *StreamLane) {
	s.mu.Lock()
	if s.taker == l {
		s.taker = nil
	}
	l.once.Do(func() { close(l.done) })
	s.mu.Unlock()
	for { // nobody adds to it any more
		select {
		case c := <-l.queue:
			_ = c.Close() // nobody is left to read it
		default:
			return
		}
	}
}

// close is for good.
func (s *councils) close() {
	s.mu.Lock()
	s.closed = true
	taker := s.taker
	s.mu.Unlock()
	if taker != nil {
		s.leave(taker)
	}
}

// accepts reports whether somebody takes connections.
func (s *councils) accepts() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.taker != nil
}

// take hands a verified connection to whoever accepts. One more than a peer may have open
// replaces the one of it that has said nothing for longest: what it has forgotten, or what
// died without a word, must not keep it out.
func (s *councils) take(conn net.Conn, raw *gatedConn, peer string) error {
	c := newCouncilConn(conn, raw)
	c.gone = func() { s.forget(c) }
	var replaced *councilConn
	err := func() error {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.taker == nil {
			return errNoVoter
		}
		if theirs := s.ofPeer(peer); len(theirs) >= s.perPeer {
			replaced = slices.MinFunc(theirs, func(a, b *councilConn) int { return cmp.Compare(a.raw.lastRead.Load(), b.raw.lastRead.Load()) })
		}
		select {
		case s.taker.queue <- c:
			s.open[c] = peer
			return nil
		default:
			return errCouncilBusy
		}
	}()
	if err == nil && replaced != nil {
		_ = replaced.Close() // its user sees it end
	}
	return err
}

func (s *councils) ofPeer(peer string) (theirs []*councilConn) {
	for c, p := range s.open {
		if p == peer {
			theirs = append(theirs, c)
		}
	}
	return theirs
}

func (s *councils) forget(c *councilConn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.open, c)
}
