package gossip

import (
	"bytes"
	"context"
	"encoding/binary"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/memberlist"

	"domicile/regions"
)

// wires are the lines of some regions, in memory.
type wires struct {
	region string
	net    map[string]chan pipe
	done   chan struct{}
	once   *sync.Once
}

type pipe struct {
	net.Conn
	from string
}

func (w wires) Dial(ctx context.Context, region string) (net.Conn, error) {
	near, far := net.Pipe()
	select {
	case w.net[region] <- pipe{far, w.region}:
		return near, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (w wires) Accept() (net.Conn, string, error) {
	select {
	case c := <-w.net[w.region]:
		return c.Conn, c.from, nil
	case <-w.done:
		return nil, "", net.ErrClosed
	}
}

func (w wires) Close() error {
	w.once.Do(func() { close(w.done) })
	return nil
}

// pools are open ones of some regions, and what each counts.
func pools(t testing.TB, names ...string) (out []*Pool, refused []*regions.PeerRefusals) {
	t.Helper()
	lines, gateways := map[string]chan pipe{}, map[string][]string{}
	for _, name := range names {
		lines[name], gateways[name] = make(chan pipe), []string{""}
	}
	for _, name := range names {
		r := regions.NewPeerRefusals(regions.NewSteadyClock(), slog.New(slog.DiscardHandler))
		p, err := Open(t.Context(), Config{Region: name, Gateways: gateways, Lines: wires{name, lines, make(chan struct{}), &sync.Once{}},
			Ours: func() Word { return Word{Manifest: "m"} }, Refused: r, Clock: regions.NewSteadyClock(), Pace: 0.05,
			Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = p.Close() })
		out, refused = append(out, p), append(refused, r)
	}
	return out, refused
}

func until(t testing.TB, what string, done func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(time.Minute); !done(); <-tick.C {
		if time.Now().After(end) {
			t.Fatal(what + ": not within a minute")
		}
	}
}

// raw writes msgpack by hand: text, then values that are a number, a text, bytes or a bool.
func raw(kind byte, pairs ...any) []byte {
	b := []byte{kind, 0x80 | byte(len(pairs)/2)}
	for _, v := range pairs {
		switch v := v.(type) {
		case int:
			b = binary.BigEndian.AppendUint32(append(b, 0xce), uint32(v))
		case string:
			b = append(append(b, 0xd9, byte(len(v))), v...)
		case []byte:
			b = append(append(b, 0xc4, byte(len(v))), v...)
		case bool:
			b = append(b, map[bool]byte{false: 0xc2, true: 0xc3}[v])
		}
	}
	return b
}

func compound(parts ...[]byte) []byte {
	b := []byte{kindCompound, byte(len(parts))}
	for _, p := range parts {
		b = binary.BigEndian.AppendUint16(b, uint16(len(p)))
	}
	return append(b, bytes.Join(parts, nil)...)
}

var (
	at     = []byte(addressOf("us-east"))
	spoken = []byte{1, 5, 2, 0, 0, 0}
	honest = map[string][]byte{
		"ping": raw(kindPing, "SeqNo", 7, "Node", "eu-west", "SourceAddr", at, "SourcePort", port, "SourceNode", "us-east"),
		"ask": raw(kindIndirect, "SeqNo", 7, "Target", at, "Port", port, "Node", "eu-west", "Nack", true, "SourceAddr",
			at, "SourcePort", port, "SourceNode", "us-east"),
		"ack":     raw(kindAck, "SeqNo", 7, "Payload", []byte{}),
		"nack":    raw(kindNack, "SeqNo", 7),
		"suspect": raw(kindSuspect, "Incarnation", 1, "Node", "eu-west", "From", "us-east"),
		"alive":   raw(kindAlive, "Incarnation", 1<<32-1, "Node", "us-east", "Addr", at, "Port", port, "Meta", []byte{}, "Vsn", spoken),
		"dead":    raw(kindDead, "Incarnation", 1, "Node", "us-east", "From", "us-east"),
		"two":     compound(raw(kindNack, "SeqNo", 7), raw(kindAck, "SeqNo", 7)),
	}
)

// Packets that memberlist's own goroutines, or the reading of their kind here, must never see.
func lies() map[string][]byte {
	ping := honest["ping"]
	return map[string][]byte{
		"the packet that ended a process": {7, 0, 0x41},
		"empty":                           {},
		"a kind alone":                    {kindPing},
		"a compound of nothing":           {kindCompound, 0},
		"a compound without lengths":      {kindCompound, 3, 0, 1},
		"an empty part":                   compound(nil, ping),
		"a part that is cut off":          compound(ping)[:20],
		"bytes after the parts":           append(compound(ping), 0),
		"a compound in a compound":        compound(compound(ping)),
		"user message":                    {8, 1, 2, 3},
		"compressed":                      {9, 0x82, 0xa4, 'A', 'l', 'g', 'o', 0, 0xa3, 'B', 'u', 'f', 0xc6, 0xc0, 0, 0, 0},
		"encrypted":                       {10, 0, 0, 0, 1, 0},
		"a label":                         {244, 1, 'x', kindPing},
		"an exchange as a packet":         {kindState, 0x80},
		"a checksum that is wrong":        append([]byte{kindCRC, 0, 0, 0, 0}, ping...),
		"no record":                       {kindPing, 0x93, 1, 2, 3},
		"bytes after a message":           append(slices.Clone(ping), 0),
		"a field twice":                   raw(kindNack, "SeqNo", 1, "SeqNo", 1),
		"a field that is none":            raw(kindNack, "SeqNo", 1, "seqno", 1),
		"a text of 4 GiB":                 append(raw(kindDead, "Node", ""), 0xdb, 0xff, 0xff, 0xff, 0xff)[1:],
		"a payload":                       raw(kindAck, "SeqNo", 1, "Payload", []byte{1}),
		"another port":                    raw(kindAlive, "Incarnation", 1, "Node", "us-east", "Addr", at, "Port", 80, "Vsn", spoken),
		"an address of IPv4":              raw(kindAlive, "Incarnation", 1, "Node", "us-east", "Addr", at[:4], "Port", port, "Vsn", spoken),
		"what it says beyond its name": raw(kindAlive, "Incarnation", 1, "Node", "us-east", "Addr", at, "Port", port,
			"Meta", []byte("x"), "Vsn", spoken),
		"versions that nobody speaks": raw(kindAlive, "Incarnation", 1, "Node", "us-east", "Addr", at, "Port", port,
			"Vsn", []byte{9, 9, 9, 9, 9, 9}),
		"a name that clears a screen": raw(kindDead, "Incarnation", 1, "Node", "\x1b[2J", "From", "us-east"),
		"a name of 201 bytes":         raw(kindDead, "Incarnation", 1, "Node", string(bytes.Repeat([]byte("a"), 201)), "From", "us-east"),
		"a number below 0":            {kindNack, 0x81, 0xa5, 'S', 'e', 'q', 'N', 'o', 0xd0, 0x80},
	}
}

func TestFA7_APacketIsWhatANodeSendsOrNothing(t *testing.T) {
	for name, b := range honest {
		if first, err := readPacket(b); err != nil || name != "two" && first != b[0] {
			t.Errorf("%s: %d %v", name, first, err)
		}
	}
	for name, b := range lies() {
		if first, err := readPacket(b); err == nil {
			t.Errorf("%s is taken, as kind %d", name, first)
		}
	}
}

func exchanged(nodes int, states ...[]byte) []byte {
	b := raw(kindState, "Nodes", nodes, "UserStateLen", 0, "Join", true)
	return append(b, bytes.Join(states, nil)...)
}

func state(name string) []byte {
	return raw(0, "Name", name, "Addr", []byte(addressOf("us-east")), "Port", port, "Meta", []byte{}, "Incarnation", 1,
		"State", 0, "Vsn", spoken)[1:]
}

func TestFA7_AnExchangeIsBoundedBeforeItIsBuffered(t *testing.T) {
	good := exchanged(2, state("us-east"), state("eu-west"))
	if got, err := readState(bytes.NewReader(append(slices.Clone(good), "more"...))); err != nil || !bytes.Equal(got, good) {
		t.Errorf("%q, %v", got, err)
	}
	endless := io.MultiReader(bytes.NewReader(exchanged(maxStates)), endlessly(state(string(bytes.Repeat([]byte("a"), maxName)))))
	for name, in := range map[string]io.Reader{
		"compressed, 3 GiB":    io.MultiReader(bytes.NewReader(lies()["compressed"]), zeros{}),
		"a user message":       io.MultiReader(bytes.NewReader([]byte{8}), zeros{}),
		"a million members":    io.MultiReader(bytes.NewReader(exchanged(1<<20)), zeros{}),
		"state of a user":      bytes.NewReader(raw(kindState, "Nodes", 0, "UserStateLen", 1, "Join", true)),
		"more than it may be":  endless,
		"a member of no name":  bytes.NewReader(exchanged(1, state(""))),
		"fewer than it claims": bytes.NewReader(exchanged(2, state("us-east"))),
	} {
		counted := &counting{in: in}
		if _, err := readState(counted); err == nil || counted.n > maxState {
			t.Errorf("%s: %d bytes are read, and %v", name, counted.n, err)
		}
	}
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) { clear(b); return len(b), nil }

func endlessly(b []byte) io.Reader {
	return io.MultiReader(bytes.NewReader(bytes.Repeat(b, 1+2*maxState/len(b))))
}

type counting struct {
	in io.Reader
	n  int
}

func (c *counting) Read(b []byte) (int, error) {
	n, err := c.in.Read(b)
	c.n += n
	return n, err
}

// What memberlist really sends is taken: two members meet, find out that a third has died and
// that one leaves, and none of it is refused.
func TestFA7_WhatNodesSendIsTaken(t *testing.T) {
	p, refused := pools(t, "ap-south", "eu-west", "us-east")
	for _, one := range p {
		until(t, "all three are seen", func() bool { return len(one.Members()) == 3 })
	}
	_ = p[2].Shutdown() // it dies without a word
	until(t, "a member that died is noticed", func() bool { return len(p[0].Members()) == 2 && len(p[1].Members()) == 2 })
	if err := p[0].Close(); err != nil {
		t.Error(err)
	}
	until(t, "a member that left is noticed", func() bool { return len(p[1].Members()) == 1 })
	for i, r := range refused {
		if got := r.Totals(); len(got) > 0 {
			t.Errorf("%s refuses %v", p[i].name, got)
		}
	}
}

// A thousand packets and exchanges at random, and a thousand that are right but for what they
// say, through a pool at work: no process ends, and it goes on.
func TestFA7_AThousandLiesInGossip(t *testing.T) {
	p, refused := pools(t, "eu-west", "us-east")
	until(t, "both are seen", func() bool { return len(p[0].Members()) == 2 })
	random := rand.New(rand.NewPCG(7, 0x41))
	said := slices.Collect(func(yield func([]byte) bool) {
		for _, b := range lies() {
			if !yield(b) {
				return
			}
		}
	})
	for range 1000 {
		b := make([]byte, random.IntN(300))
		for i := range b {
			b[i] = byte(random.Uint32())
		}
		if len(b) > 0 {
			b[0] %= 16
		}
		said = append(said, b)
		lie := raw(kindAlive, "Incarnation", random.IntN(1<<32), "Node", string(rune('a'+random.IntN(26)))+".us-east",
			"Addr", at, "Port", port, "Vsn", spoken)
		if random.IntN(2) == 0 {
			lie = raw(byte(3+2*random.IntN(2)), "Incarnation", random.IntN(1<<32), "Node", []string{"eu-west", "us-east",
				"ap-south"}[random.IntN(3)], "From", "us-east")
		}
		said = append(said, compound(lie, lie))
	}
	c, err := wires{region: "us-east", net: p[0].cfg.Lines.(wires).net}.Dial(t.Context(), "eu-west")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Write(append([]byte{packets, 7}, "us-east"...)); err != nil {
		t.Fatal(err)
	}
	for _, b := range said {
		if _, err := c.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(b))), b...)); err != nil {
			t.Fatal(err)
		}
	}
	until(t, "they are counted", func() bool {
		got := refused[0].Totals()
		return len(got) > 0 && got[0].Peer == "us-east" && got[0].Reason == regions.Malformed && got[0].Count >= 1000
	})
	if n := len(p[0].Members()); n > 2+strangersPerRegion {
		t.Errorf("%d members", n)
	}
}

// memory is a stream that gives out what was put into it and drops what it is given.
type memory struct {
	*bytes.Reader
	net.Conn
	closed chan struct{}
}

func (m memory) Read(b []byte) (int, error)       { return m.Reader.Read(b) }
func (m memory) Write(b []byte) (int, error)      { return len(b), nil }
func (m memory) Close() error                     { close(m.closed); return nil }
func (m memory) SetDeadline(time.Time) error      { return nil }
func (m memory) SetReadDeadline(time.Time) error  { return nil }
func (m memory) SetWriteDeadline(time.Time) error { return nil }
func (m memory) RemoteAddr() net.Addr             { return &net.TCPAddr{IP: addressOf("us-east"), Port: port} }

// Whatever bytes come as a packet are refused, or memberlist lives with them.
func FuzzPacket(f *testing.F) {
	for _, b := range honest {
		f.Add(b)
	}
	for _, b := range lies() {
		f.Add(b)
	}
	p, _ := pools(f, "eu-west", "us-east")
	f.Fuzz(func(_ *testing.T, b []byte) {
		if _, err := readPacket(b); err == nil {
			p[0].in <- &memberlist.Packet{Buf: slices.Clone(b), From: &net.TCPAddr{IP: addressOf("us-east"), Port: port}, Timestamp: time.Now()}
		}
	})
}

// Whatever bytes come as an exchange are refused within the bound, or memberlist lives with them.
func FuzzExchange(f *testing.F) {
	f.Add(exchanged(2, state("us-east"), state("eu-west")))
	f.Add(exchanged(2, state("us-east")))
	f.Add(lies()["compressed"])
	p, _ := pools(f, "eu-west", "us-east")
	f.Fuzz(func(t *testing.T, b []byte) {
		m := memory{Reader: bytes.NewReader(b), closed: make(chan struct{})}
		e := &exchange{Conn: m, pool: p[0], region: "us-east"}
		err := e.fill()
		if err != nil {
			if n := len(b) - m.Len(); n > maxState {
				t.Errorf("%d bytes are read", n)
			}
			return
		}
		p[0].streams <- e
		<-m.closed
	})
}
