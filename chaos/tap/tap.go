// Package tap listens in on the links of a federation from above TLS, on all lanes. It
// looks for the tokens of records in what each region says to each other one, keeps which
// went where, and nothing of the bytes. Only Go code can put it there: it is a hook of
// regions/link.
package tap

import (
	"cmp"
	"net"
	"slices"
	"sync"
	"time"

	"domicile/chaos/canary"
	"domicile/regions"
	"domicile/regions/link"
)

// Line is one direction of one lane between two regions.
type Line struct {
	From, To string
	Lane     link.Plane
}

// Crossing is a token that was seen on a line.
type Crossing struct {
	Line
	// Call is the last part of the gRPC method it was in, answerCall in an answer to one;
	// "": the lane has no calls, or it was in none.
	Call  string
	Token int         // index in the set
	Form  canary.Form // in which it was seen first
	At    time.Time   // first
}

// Traffic sums what went over a line.
type Traffic struct {
	Line
	Conns  int    // connections
	Bytes  uint64 // handed to TLS
	Opaque uint64 // messages, blocks of headers and connections that could not be searched to their end
}

// answerCall is the call of a message that answers one: which, only its other direction says.
const answerCall = "answer"

// Tap notes what crosses. Safe for concurrent use.
type Tap struct {
	watcher *canary.Watcher
	clock   regions.Clock

	mu    sync.Mutex
	seen  map[sight]*Crossing
	lines map[Line]*Traffic
}

type sight struct {
	Line
	call  string
	token int
}

// New is a tap that looks for the tokens of a set. Those that are added later have to be in
// it before anybody sends them.
func New(tokens *canary.Set, clock regions.Clock) *Tap {
	return &Tap{watcher: canary.NewWatcher(tokens), clock: clock, seen: map[sight]*Crossing{}, lines: map[Line]*Traffic{}}
}

// Hooks put the tap on all connections of one region's node, for what it sends.
func (t *Tap) Hooks(region string) link.Hooks {
	return link.Hooks{Above: func(peer string, plane link.Plane, c net.Conn) net.Conn {
		line := Line{region, peer, plane}
		t.sum(line, func(s *Traffic) { s.Conns++ })
		return &conn{Conn: c, port: &port{tap: t, line: line, speech: t.speech(line)}}
	}}
}

// speech is what understands the bytes of a lane.
func (t *Tap) speech(line Line) speech {
	if line.Lane == link.Control || line.Lane == link.Data {
		return newFrames(t.watcher)
	}
	return plain{t.watcher.Trail()}
}

// Crossings lists what was seen so far: by line, call and token, each once.
func (t *Tap) Crossings() []Crossing {
	t.mu.Lock()
	defer t.mu.Unlock()
	list := make([]Crossing, 0, len(t.seen))
	for _, c := range t.seen {
		list = append(list, *c)
	}
	slices.SortFunc(list, func(a, b Crossing) int {
		return cmp.Or(compareLines(a.Line, b.Line), cmp.Compare(a.Call, b.Call), cmp.Compare(a.Token, b.Token))
	})
	return list
}

// Lines lists the sums of all lines that carried anything.
func (t *Tap) Lines() []Traffic {
	t.mu.Lock()
	defer t.mu.Unlock()
	list := make([]Traffic, 0, len(t.lines))
	for _, l := range t.lines {
		list = append(list, *l)
	}
	slices.SortFunc(list, func(a, b Traffic) int { return compareLines(a.Line, b.Line) })
	return list
}

func compareLines(a, b Line) int {
	return cmp.Or(cmp.Compare(a.From, b.From), cmp.Compare(a.To, b.To), cmp.Compare(a.Lane, b.Lane))
}

func (t *Tap) sum(line Line, add func(*Traffic)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.lines[line] == nil {
		t.lines[line] = &Traffic{Line: line}
	}
	add(t.lines[line])
}

func (t *Tap) saw(line Line, call string, token int, form canary.Form) {
	t.mu.Lock()
	defer t.mu.Unlock()
	key := sight{line, call, token}
	if t.seen[key] == nil {
		t.seen[key] = &Crossing{Line: line, Call: call, Token: token, Form: form, At: t.clock.Now()}
	}
}

// conn is a connection whose writes are looked through before they are sent: what may have
// left counts as having left.
type conn struct {
	net.Conn
	port *port
}

// Write looks first.
func (c *conn) Write(p []byte) (int, error) {
	c.port.said(p)
	return c.Conn.Write(p)
}

// port is one connection's way out.
type port struct {
	tap  *Tap
	line Line

	mu     sync.Mutex // whoever speaks on a connection says one thing at a time; this holds them to it
	speech speech
}

func (p *port) said(b []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var found []sight
	var forms []canary.Form
	opaque := p.speech.hear(b, func(call string, token int, form canary.Form) {
		found, forms = append(found, sight{p.line, call, token}), append(forms, form)
	})
	for i, s := range found {
		p.tap.saw(s.Line, s.call, s.token, forms[i])
	}
	p.tap.sum(p.line, func(s *Traffic) { s.Bytes += uint64(len(b)); s.Opaque += opaque })
}

// speech takes the bytes of one direction of a connection in order, in pieces of any size.
type speech interface {
	// hear calls found for each token, and returns how much more could not be searched.
	hear(b []byte, found func(call string, token int, form canary.Form)) (opaque uint64)
}

// plain is a lane that carries bytes as they are.
type plain struct{ trail *canary.Trail }

func (p plain) hear(b []byte, found func(string, int, canary.Form)) uint64 {
	p.trail.Look(b, func(token int, form canary.Form) { found("", token, form) })
	return 0
}
