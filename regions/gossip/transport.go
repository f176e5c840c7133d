package gossip

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"time"

	"github.com/hashicorp/memberlist"

	"domicile/regions"
)

// What a connection carries is told by its first byte, and by whom by a name behind it.
const (
	packets byte = 1 + iota // memberlist's packets, one frame each
	stream                  // one exchange of memberlist
	words                   // one word each way
)

const (
	port       = 7946    // of every member; a name for memberlist, nobody listens at it
	maxPacket  = 4 << 10 // bytes; memberlist sends at most packetSize
	packetSize = 1400
	queued     = 64 // packets for a region that have not left; more are dropped, as a network does
	headWithin = 3 * time.Second
	idle       = 2 * time.Minute // without a packet a connection is given up
	// Of one region; its nodes send a few.
	packetsPerSecond = 200
)

// addressOf is where memberlist has a region: an address of the range that no network
// routes, made of its name. Connections are opened by region, so that it leads nowhere else.
func addressOf(region string) net.IP {
	sum := sha256.Sum256([]byte(region))
	return append(net.IP{0xfd}, sum[:15]...)
}

func hostPort(region string) string {
	return net.JoinHostPort(addressOf(region).String(), strconv.Itoa(port))
}

// FinalAdvertiseAddr names this member's address.
func (p *Pool) FinalAdvertiseAddr(string, int) (net.IP, int, error) {
	return addressOf(p.cfg.Region), port, nil
}

// region is whose address that is.
func (p *Pool) region(addr string) (string, error) {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return "", err
	}
	if region, ok := p.byAddress[host]; ok {
		return region, nil
	}
	return "", fmt.Errorf("no linked region is at %s", addr)
}

// WriteTo queues a packet. What the queue has no room for is lost.
func (p *Pool) WriteTo(b []byte, addr string) (time.Time, error) {
	region, err := p.region(addr)
	if err != nil {
		return time.Time{}, err
	}
	if first, err := readPacket(b); err == nil {
		p.probes.sent(first)
	}
	if q := p.out[region]; q != nil && len(b) <= maxPacket {
		select {
		case q <- append([]byte(nil), b...):
		default:
		}
	}
	return p.cfg.Clock.Now(), nil
}

// WriteToAddress is WriteTo: the address says which region it is.
func (p *Pool) WriteToAddress(b []byte, a memberlist.Address) (time.Time, error) {
	return p.WriteTo(b, a.Addr)
}

// PacketCh gives the packets that came in.
func (p *Pool) PacketCh() <-chan *memberlist.Packet { return p.in }

// StreamCh gives the exchanges that others began.
func (p *Pool) StreamCh() <-chan net.Conn { return p.streams }

// DialTimeout begins an exchange.
func (p *Pool) DialTimeout(addr string, timeout time.Duration) (net.Conn, error) {
	region, err := p.region(addr)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(p.life, timeout)
	defer cancel()
	c, err := p.open(ctx, region, stream)
	if err != nil {
		return nil, err
	}
	return &exchange{Conn: c, pool: p, region: region}, nil
}

// DialAddressTimeout is DialTimeout.
func (p *Pool) DialAddressTimeout(a memberlist.Address, timeout time.Duration) (net.Conn, error) {
	return p.DialTimeout(a.Addr, timeout)
}

// Shutdown ends the transport: memberlist calls it first of all.
func (p *Pool) Shutdown() error {
	p.end()
	err := p.cfg.Lines.Close()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	for c := range p.conns {
		_ = c.Conn.Close()
	}
	return err
}

// open dials a region and says what the connection is for and who speaks.
func (p *Pool) open(ctx context.Context, region string, kind byte) (net.Conn, error) {
	raw, err := p.cfg.Lines.Dial(ctx, region)
	if err != nil {
		return nil, err
	}
	c, err := p.track(raw)
	if err != nil {
		return nil, err
	}
	_ = c.SetDeadline(p.until(headWithin)) // the write says what is wrong
	if _, err := c.Write(append([]byte{kind, byte(len(p.name))}, p.name...)); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, c.SetDeadline(time.Time{})
}

// until is the instant by which a socket has to be done: sockets go by the machine's clock.
func (p *Pool) until(d time.Duration) time.Time { return time.Now().Add(p.cfg.Pace.Of(d)) }

// tracked is a connection that ends with the pool.
type tracked struct {
	net.Conn
	pool *Pool
}

func (p *Pool) track(raw net.Conn) (*tracked, error) {
	c := &tracked{raw, p}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, errors.Join(net.ErrClosed, raw.Close())
	}
	p.conns[c] = struct{}{}
	return c, nil
}

// Close ends it.
func (c *tracked) Close() error {
	c.pool.mu.Lock()
	delete(c.pool.conns, c)
	c.pool.mu.Unlock()
	return c.Conn.Close()
}

// accept takes what other regions open, until the lane is closed.
func (p *Pool) accept() {
	for {
		raw, region, err := p.cfg.Lines.Accept()
		if err != nil {
			if p.life.Err() == nil {
				p.cfg.Logger.Error("gossip takes no connections any more", "err", err)
			}
			return
		}
		if c, err := p.track(raw); err == nil {
			p.work.Go(func() { p.serve(c, region) })
		}
	}
}

var errLiar = errors.New("gossip: the name is not that of the certificate")

// serve takes one connection. Its certificate says of which region it is; a name of another
// one is a lie, and ends it.
func (p *Pool) serve(c *tracked, region string) {
	kind, name, err := p.head(c)
	if _, of := split(name); err == nil && of != region {
		err = errLiar
	}
	if err == nil {
		switch kind {
		case stream:
			e := &exchange{Conn: c, pool: p, region: region}
			_ = c.SetDeadline(p.until(headWithin)) // the read says what is wrong
			if err = e.fill(); err != nil {
				break
			}
			_ = c.SetDeadline(time.Time{}) // memberlist sets its own
			select {
			case p.streams <- e: // memberlist closes it
				return
			case <-p.life.Done():
			}
		case packets:
			err = p.receive(c, region)
		case words:
			err = p.answer(c, name)
		}
	}
	_ = c.Close()
	switch {
	case errors.Is(err, errLiar):
		p.lies.Add(1)
		p.cfg.Refused.Add(region, regions.LaneGossip, regions.NotTheirs)
		p.cfg.Logger.Warn("a member gossips under a name that its certificate does not carry", "region", region, "err", err)
	default:
		p.refuse(region, err)
	}
}

// refuse counts what no node of ours sends; an end of a connection is none of it.
func (p *Pool) refuse(region string, err error) {
	switch {
	case errors.Is(err, errTooLong):
		p.cfg.Refused.Add(region, regions.LaneGossip, regions.TooLarge)
	case errors.Is(err, errMalformed):
		p.cfg.Refused.Add(region, regions.LaneGossip, regions.Malformed)
	}
}

// exchange is a stream on which memberlist hears one exchange of members, which was checked
// before a byte of it is given out, and nothing else.
type exchange struct {
	net.Conn
	pool   *Pool
	region string
	state  *bytes.Reader // nil: not read yet
}

func (e *exchange) fill() error {
	state, err := readState(e.Conn)
	if err != nil {
		return err
	}
	e.state = bytes.NewReader(state)
	return nil
}

// Read gives out what was checked; it reads it first on a stream that this node opened.
func (e *exchange) Read(b []byte) (int, error) {
	if e.state == nil {
		if err := e.fill(); err != nil {
			e.pool.refuse(e.region, err)
			return 0, err
		}
	}
	return e.state.Read(b)
}

func (p *Pool) head(c net.Conn) (kind byte, name string, err error) {
	if err := c.SetDeadline(p.until(headWithin)); err != nil {
		return 0, "", err
	}
	var head [2]byte
	if _, err := io.ReadFull(c, head[:]); err != nil {
		return 0, "", err
	}
	text := make([]byte, head[1])
	if _, err := io.ReadFull(c, text); err != nil {
		return 0, "", err
	}
	return head[0], string(text), c.SetDeadline(time.Time{})
}

// receive hands packets to memberlist that a node of ours may have sent; what it does not keep
// up with is lost, and so is what a region sends beyond packetsPerSecond: memberlist answers
// some of them with a goroutine each.
func (p *Pool) receive(c net.Conn, region string) error {
	from := &net.TCPAddr{IP: addressOf(region), Port: port}
	r := bufio.NewReaderSize(c, maxPacket)
	for {
		if err := c.SetReadDeadline(p.until(idle)); err != nil {
			return err
		}
		var head [2]byte
		if _, err := io.ReadFull(r, head[:]); err != nil {
			return err
		}
		b := make([]byte, binary.BigEndian.Uint16(head[:]))
		if len(b) > maxPacket {
			return errTooLong
		}
		if _, err := io.ReadFull(r, b); err != nil {
			return err
		}
		first, err := readPacket(b)
		if err != nil {
			p.refuse(region, err)
			continue
		}
		if !p.flow(region) {
			continue
		}
		p.probes.heard(first)
		select {
		case p.in <- &memberlist.Packet{Buf: b, From: from, Timestamp: p.cfg.Clock.Now()}:
		case <-p.life.Done():
			return net.ErrClosed
		default:
		}
	}
}

// flow reports whether a region may send one more packet now.
func (p *Pool) flow(region string) bool {
	now := p.cfg.Clock.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	w := p.flows[region]
	if now.Sub(w.since) >= time.Second || now.Before(w.since) {
		w = window{since: now}
	}
	w.packets++
	p.flows[region] = w
	return w.packets <= packetsPerSecond
}

// window is what came in a second.
type window struct {
	since   time.Time
	packets int
}

// send carries a region's packets over one connection, which is opened when there is
// something to say. After a failure packets are dropped for a while.
func (p *Pool) send(region string) {
	var c net.Conn
	var failed time.Time
	defer func() {
		if c != nil {
			_ = c.Close()
		}
	}()
	for {
		var b []byte
		select {
		case b = <-p.out[region]:
		case <-p.life.Done():
			return
		}
		now := p.cfg.Clock.Now()
		if c == nil {
			if !failed.IsZero() && now.Sub(failed) < p.cfg.Pace.Of(time.Second) {
				continue
			}
			ctx, cancel := context.WithTimeout(p.life, p.cfg.Pace.Of(headWithin))
			var err error
			c, err = p.open(ctx, region, packets)
			cancel()
			if err != nil {
				c, failed = nil, now
				continue
			}
		}
		_ = c.SetWriteDeadline(p.until(headWithin)) // the write says what is wrong
		if _, err := c.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(b))), b...)); err != nil {
			_ = c.Close()
			c, failed = nil, now
		}
	}
}
