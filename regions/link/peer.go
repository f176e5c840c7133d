package link

import (
	"context"
	"crypto/tls"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"domicile/api"
	"domicile/regions"
	"domicile/regions/identity"
)

// peerLink is one region's end of the link with one peer: the session it dials, the
// control stream it accepts, and what both prove.
type peerLink struct {
	mesh      *Mesh
	name      string
	addresses []string // of the peer's gateways; whichever speaks for its region answers
	witness   bool     // it has the council's lane and no link
	address   string   // the one that is being tried, or that answered last; the dial loop's alone
	beat      time.Duration

	streams   map[Plane]chan struct{} // by plane: a place for each connection dialed there; fixed
	councilAt atomic.Int32            // the address that answered there last

	kick    chan struct{} // dial now
	changed chan struct{} // the status may have changed

	mu       sync.Mutex
	health   health
	offset   offsetEstimator
	session  *session        // dialed and past hello; nil: none
	inbound  *inboundControl // accepted; nil: none
	hello    *regions.Hello  // the peer's last accepted one
	greeted  time.Time       // when it was accepted; zero: what was opened on it has ended
	wire     int             // version agreed on with it
	heardAt  time.Time       // the last sign of life; zero: none in this run
	since    time.Time       // of up; zero: not known yet
	up       bool            // as of the last evaluation
	lastUp   time.Duration   // how long the link was last up
	outWhy   error           // why there is no session
	inWhy    error           // why the peer was last refused
	nextDial time.Time       // zero: dialing or connected

	deliver sync.Mutex // one round of watermarks at a time reaches the handler
}

func newPeerLink(m *Mesh, name string, addresses []string) *peerLink {
	beat := m.cfg.Pace.Of(beatEvery)
	p := &peerLink{mesh: m, name: name, addresses: addresses, address: addresses[0], beat: beat, health: health{beat: beat},
		streams: map[Plane]chan struct{}{}, kick: make(chan struct{}, 1), changed: make(chan struct{}, 1)}
	for plane := range m.accepting {
		_, perPeer := plane.stream()
		p.streams[plane] = make(chan struct{}, perPeer)
	}
	return p
}

func (p *peerLink) now() time.Time { return p.mesh.cfg.Clock.Now() }

func (p *peerLink) current() *session {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.session
}

// agreed is the version of the wire that is spoken with the peer; 0: no hello was accepted yet.
func (p *peerLink) agreed() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.wire
}

// dialLoop keeps one session to the peer, for as long as ctx lasts.
func (p *peerLink) dialLoop(ctx context.Context) {
	b := backoff{pace: p.mesh.cfg.Pace}
	for ctx.Err() == nil {
		s, err := p.connect(ctx)
		if err == nil {
			err = s.run(ctx)
		}
		timer := time.NewTimer(p.dialFailed(&b, err))
		select {
		case <-timer.C:
		case <-p.kick:
		case <-ctx.Done():
		}
		timer.Stop()
	}
}

// dialFailed books the end of an attempt or a session and answers how long to wait.
func (p *peerLink) dialFailed(b *backoff, err error) time.Duration {
	now := p.now()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.outWhy, p.health.answered = err, time.Time{}
	p.evaluate(now)
	if p.since.IsZero() {
		p.since = now // down is known now
	}
	wait := b.next(now, p.lastUp, p.health.in(now), rand.Float64())
	p.lastUp, p.nextDial = 0, now.Add(wait)
	signal(p.changed)
	return wait
}

// connect tries the address that answered last and then the others, once each.
func (p *peerLink) connect(ctx context.Context) (*session, error) {
	whys := make(reasons, len(p.addresses))
	at := slices.Index(p.addresses, p.address)
	for i := range p.addresses {
		n := (at + i) % len(p.addresses)
		p.address = p.addresses[n]
		s, err := p.connectTo(ctx)
		if err == nil {
			return s, nil
		}
		if whys[n] = err; ctx.Err() != nil {
			break
		}
	}
	return nil, whys
}

// reasons are why none of a peer's addresses took the call, one each, nil for one that
// was not tried. They stand in the order of the manifest: whichever was tried first,
// they read the same.
type reasons []error

func (r reasons) Error() string {
	var said []string
	for _, err := range r {
		if err != nil {
			said = append(said, err.Error())
		}
	}
	return strings.Join(said, "; ")
}

// Unwrap is for errors.As: the code of the first that has one is the link's.
func (r reasons) Unwrap() []error {
	return slices.DeleteFunc(slices.Clone(r), func(err error) bool { return err == nil })
}

// connectTo dials both lanes to the present address and exchanges hellos on both.
func (p *peerLink) connectTo(ctx context.Context) (*session, error) {
	s := newSession(p)
	for _, plane := range []Plane{Control, Data} {
		l, err := p.greet(ctx, plane)
		if err != nil {
			s.closeLanes()
			return nil, err
		}
		if plane == Control {
			s.control = l
			p.meet(ctx, l)
		} else {
			s.data = l
		}
	}
	return s, nil
}

// evaluate brings up and since to now. Callers hold mu.
func (p *peerLink) evaluate(now time.Time) {
	up := p.session != nil && p.health.up(now)
	if up == p.up {
		return
	}
	if !up {
		p.lastUp = now.Sub(p.since)
	}
	p.up, p.since = up, now
	signal(p.changed)
}

// status is what is known now.
func (p *peerLink) status() regions.LinkStatus {
	now := p.now()
	cut := p.mesh.gates.held(p.name)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.evaluate(now)
	s := regions.LinkStatus{
		Peer: p.name, Up: p.up, OutProven: p.session != nil && p.health.out(now), InProven: p.health.in(now),
		Since: p.since, Hello: p.hello, Cut: cut, Wire: p.wire,
	}
	s.LastHeard = p.heardAt
	s.Offset, s.OffsetErr, s.RTT, s.OffsetOK = p.offset.best(now)
	if p.session != nil {
		s.BytesOut = p.session.bytesOut()
	}
	if !s.Up {
		why := p.why(s)
		s.Reason = why.Error()
		var e *api.Error
		if errors.As(why, &e) {
			s.Code = e.Code
		}
	}
	return s
}

var (
	errNotTried   = errors.New("not tried yet")
	errUnheard    = errors.New("the peer's heartbeats do not reach us")
	errUnanswered = errors.New("our heartbeats are not answered")
	errPeerDeaf   = errors.New("the peer does not hear us both ways")
)

// why picks the reason that says most about a link that is not up.
func (p *peerLink) why(s regions.LinkStatus) error {
	switch {
	case !s.OutProven && p.outWhy != nil:
		return p.outWhy
	case !s.OutProven && p.session == nil:
		return errNotTried
	case !s.OutProven:
		return errUnanswered
	case !s.InProven && p.inWhy != nil:
		return p.inWhy
	case !s.InProven:
		return errUnheard
	}
	return errPeerDeaf
}

// unreachable is the refusal of a call that needs the link while it is down.
func (p *peerLink) unreachable(op string) error {
	now, cut := p.now(), p.mesh.gates.held(p.name)
	p.mu.Lock()
	defer p.mu.Unlock()
	e := &api.Error{Code: api.HomeUnreachable, Op: op, Region: p.name, RetryAfter: min(max(p.nextDial.Sub(now), p.beat/5), longestWait),
		Hint: "the link is down: send it again with the same id"}
	if !p.up && !p.since.IsZero() {
		e.For = now.Sub(p.since)
	}
	if cut != "" {
		e.Hint = "a fault gate holds the link (" + cut + "): send it again with the same id"
	}
	return e
}

// monitor watches what stays away, ends what has gone silent, and tells the node
// what has changed.
func (p *peerLink) monitor(ctx context.Context) {
	tick := time.NewTicker(p.beat / 4)
	defer tick.Stop()
	trust := time.NewTicker(p.beat)
	defer trust.Stop()
	var last regions.LinkStatus
	told := false
	for {
		select {
		case <-tick.C:
		case <-trust.C:
			p.endUntrusted()
		case <-p.changed:
		case <-ctx.Done():
			return
		}
		p.endSilent()
		s := p.status()
		if told && sameStatus(last, s) {
			continue
		}
		p.logChange(last, s, told)
		if s.Up && p.mesh.cfg.Fabrics.bound(p.name, s.Hello.FabricID) {
			p.mesh.wg.Go(p.mesh.cfg.Fabrics.keep) // a disk that hangs must not keep the monitor
		}
		last, told = s, true
		p.mesh.cfg.Handler.LinkChanged(s)
	}
}

// sameStatus leaves out what moves all the time.
func sameStatus(a, b regions.LinkStatus) bool {
	return a.Up == b.Up && a.OutProven == b.OutProven && a.InProven == b.InProven && a.Since.Equal(b.Since) &&
		a.Reason == b.Reason && a.Hello == b.Hello && a.Cut == b.Cut && a.OffsetOK == b.OffsetOK
}

func (p *peerLink) logChange(last, s regions.LinkStatus, told bool) {
	log := p.mesh.cfg.Logger
	if !told || last.Cut != s.Cut {
		if s.Cut != "" {
			log.Warn("a fault gate holds the link", "peer", p.name, "cut", s.Cut)
		} else if told {
			log.Info("no fault gate holds the link", "peer", p.name)
		}
	}
	switch {
	case s.Up && (!told || !last.Up):
		log.Info("link up", "peer", p.name)
	case s.Since.IsZero(): // nothing is known yet
	case !s.Up && (!told || last.Up || last.Reason != s.Reason):
		log.Warn("link not up", "peer", p.name, "out", s.OutProven, "in", s.InProven, "why", s.Reason)
	}
}

// guard ends what a peer without a link may not have open any more, until ctx ends.
func (p *peerLink) guard(ctx context.Context) {
	trust := time.NewTicker(p.beat)
	defer trust.Stop()
	for {
		select {
		case <-trust.C:
			p.endUntrusted()
		case <-ctx.Done():
			return
		}
	}
}

// endUntrusted holds every open connection with the peer, of any lane and whoever
// dialed it, against its certificate again: none outlives what opened it, whether
// heartbeats pass on it or not.
func (p *peerLink) endUntrusted() {
	if s := p.current(); s != nil {
		for _, l := range []*lane{s.control, s.data} {
			if err := p.verify(&l.state); err != nil {
				s.end(err)
			}
		}
	}
	p.mesh.gates.closeSome(p.name, func(c *gatedConn) bool {
		state := c.state.Load()
		if state == nil { // shaking hands, which is verified by itself, or a lane of the session
			return false
		}
		err := p.verify(state)
		if _, plane := c.who(); err != nil && p.mesh.accepting[plane] == nil {
			p.refused(err)
		}
		return err != nil
	})
}

func (p *peerLink) verify(s *tls.ConnectionState) error {
	_, err := p.mesh.cfg.Identity.Verify(*s, p.name, identity.Region)
	return err
}

// endSilent ends a session whose heartbeats or data lane get no answer, and drops
// accepted connections of a peer that has been silent for long; the council and gossip see to their own.
func (p *peerLink) endSilent() {
	now := p.now()
	p.mu.Lock()
	s, heardAt := p.session, p.heardAt
	answered := p.health.answered
	p.mu.Unlock()
	if s != nil {
		if answered.Before(s.began) {
			answered = s.began
		}
		switch {
		case over(answered, now, p.beat, missed):
			s.end(errUnanswered)
		case over(s.data.heard(now), now, p.beat, dataSilence):
			s.end(errDataSilent)
		}
	}
	p.mesh.gates.closeAccepted(p.name, func(c *gatedConn) bool {
		if _, plane := c.who(); p.mesh.accepting[plane] != nil {
			return false
		}
		quiet := heardAt
		if quiet.Before(c.began) {
			quiet = c.began
		}
		return over(quiet, now, p.beat, staleBeats)
	})
}
