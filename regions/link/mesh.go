package link

import (
	"context"
	"errors"
	"maps"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"

	"domicile/api"
	"domicile/api/wire"
	"domicile/regions"
	"domicile/regions/identity"
)

// Scaled by Config.Pace.
const (
	beatEvery     = time.Second
	dialTimeout   = time.Second
	helloTimeout  = 2 * time.Second
	acceptTimeout = 3 * time.Second
	forwardWithin = 10 * time.Second // deadline of a forward that names none, and the longest a peer may ask for
	closePoll     = 10 * time.Millisecond
	closeWithin   = 3 * time.Second // after the context of Close; an append to a copy may be under way
)

const maxAccepted = 256 // connections accepted at a time

// Mesh is all links of one region. Safe for concurrent use.
type Mesh struct {
	cfg       Config
	dial      func(ctx context.Context, network, address string) (net.Conn, error)
	gates     *ends
	peers     map[string]*peerLink // fixed
	server    *grpc.Server
	calls     []grpc.DialOption // of every lane; fixed
	listener  net.Listener
	refusals  identity.Refusals
	accepting map[Plane]*councils // by plane, of those that carry connections; fixed

	closing  atomic.Bool
	serving  atomic.Int64 // forwards taken from peers and not answered yet
	cancel   context.CancelFunc
	wg       sync.WaitGroup
	closeOne sync.Once
	closed   chan struct{}
}

// New makes a mesh; Start sets it to work. It fails with ConfigInvalid when a
// required field is missing.
func New(cfg Config) (*Mesh, error) {
	for field, missing := range map[string]bool{
		"Self": cfg.Self == "", "Identity": cfg.Identity == nil, "Listener": cfg.Listener == nil && !cfg.CouncilOnly, "Hello": cfg.Hello == nil && !cfg.CouncilOnly,
		"Handler": cfg.Handler == nil && !cfg.CouncilOnly, "Clock": cfg.Clock == nil, "Logger": cfg.Logger == nil,
	} {
		if missing {
			return nil, &api.Error{Code: api.ConfigInvalid, Op: "make links", Field: field, Hint: "it is required"}
		}
	}
	if name := cfg.Identity.Name(); name.Name != cfg.Self || name.Kind != identity.Region {
		return nil, &api.Error{Code: api.ConfigInvalid, Op: "make links", Field: "certificate", Value: name.String(),
			Hint: "this node is region " + cfg.Self + ": give it a certificate of kind region with that name"}
	}
	m := &Mesh{cfg: cfg, dial: cfg.Dial, peers: map[string]*peerLink{}, closed: make(chan struct{}),
		accepting: map[Plane]*councils{}}
	for _, plane := range Planes() {
		if _, perPeer := plane.stream(); perPeer > 0 {
			m.accepting[plane] = &councils{perPeer: perPeer, open: map[*councilConn]string{}}
		}
	}
	if m.dial == nil {
		m.dial = (&net.Dialer{}).DialContext
	}
	for name, addresses := range allPeers(cfg) {
		if name == cfg.Self {
			return nil, &api.Error{Code: api.ConfigInvalid, Op: "make links", Field: "peers", Value: name, Hint: "a region has no link with itself"}
		}
		if len(addresses) == 0 {
			return nil, &api.Error{Code: api.ConfigInvalid, Op: "make links", Field: "peers", Value: name, Hint: "it has no address"}
		}
		m.peers[name] = newPeerLink(m, name, addresses)
		m.peers[name].witness = cfg.Witnesses[name] != nil
	}
	if cfg.Gates == nil {
		cfg.Gates = NewGates(cfg.Boot, func(peer string) bool { return m.peers[peer] != nil })
	}
	m.gates = cfg.Gates.attach(m.gateChanged)
	if cfg.Listener != nil {
		m.listener = newGatedListener(cfg.Listener, m.gates, cfg.Clock, maxAccepted)
	}
	accepts, calls := hooked(cfg.Hooks)
	m.calls = calls
	m.server = grpc.NewServer(append(accepts, grpc.Creds(laneCredentials{m}), grpc.ConnectionTimeout(cfg.Pace.Of(acceptTimeout)),
		grpc.ForceServerCodecV2(wire.Codec()), grpc.MaxRecvMsgSize(maxMessage), grpc.MaxSendMsgSize(maxMessage),
		grpc.InitialWindowSize(httpWindow), grpc.InitialConnWindowSize(httpWindow),
		grpc.MaxConcurrentStreams(4096), grpc.WaitForHandlers(true))...)
	s := &service{mesh: m}
	m.server.RegisterService(s.described(), s)
	return m, nil
}

func allPeers(cfg Config) map[string][]string {
	all := maps.Clone(cfg.Witnesses)
	if all == nil {
		all = map[string][]string{}
	}
	maps.Copy(all, cfg.Peers)
	return all
}

// Start begins to listen and to dial, once. It returns at once; Close ends what it began,
// and so does the end of ctx.
func (m *Mesh) Start(ctx context.Context) {
	ctx, m.cancel = context.WithCancel(ctx)
	m.wg.Go(func() {
		if err := m.server.Serve(m.listener); err != nil && !errors.Is(err, grpc.ErrServerStopped) && !m.closing.Load() {
			m.cfg.Logger.Error("the link listener ended", "err", err)
		}
	})
	for _, p := range m.peers {
		if m.cfg.CouncilOnly || p.witness {
			m.wg.Go(func() { p.guard(ctx) })
			continue
		}
		m.wg.Go(func() { p.dialLoop(ctx) })
		m.wg.Go(func() { p.monitor(ctx) })
	}
	m.wg.Go(func() { // a context that ends must not leave the listener open
		<-ctx.Done()
		m.closing.Store(true)
		m.closeStreams()
		m.closeGates() // before the server: a goodbye must not wait in a black hole
		m.server.Stop()
	})
}

// Close refuses new forwards, lets those that are under way finish until ctx ends,
// then ends every link and waits for the mesh's goroutines. It may be called more
// than once; every call waits. It outlasts ctx by a few seconds at most: if a sink's
// append, which may not be broken off, has not ended by then, Close says so with
// Timeout and leaves it to its own bound. No peer is served by that time.
func (m *Mesh) Close(ctx context.Context) error {
	m.closeOne.Do(func() {
		m.closing.Store(true)
		m.drain(ctx)
		if m.cancel == nil { // never started
			m.closeStreams()
			m.closeGates()
			if m.listener != nil {
				m.listener.Close()
			}
		} else {
			m.cancel()
		}
		go func() {
			m.wg.Wait()
			close(m.closed)
		}()
	})
	select {
	case <-m.closed:
		return nil
	default:
	}
	patience := time.NewTimer(m.cfg.Pace.Of(closeWithin))
	defer patience.Stop()
	select {
	case <-m.closed:
		return nil
	case <-patience.C:
		return errStillAppending(m.cfg.Self)
	}
}

func (m *Mesh) closeGates() {
	m.gates.detach()
	if m.cfg.Gates == nil {
		m.gates.Close()
	}
}

func (m *Mesh) closeStreams() {
	for _, s := range m.accepting {
		s.close()
	}
}

func errStillAppending(self string) error {
	return &api.Error{Code: api.ShuttingDown, Op: "close links", Region: self, Hint: "the links are closed, but an append to a copy has not ended yet; it ends within a bound of its own"}
}

// drain waits until no forward is under way in either direction. Nothing announces
// that, so it looks again every few milliseconds.
func (m *Mesh) drain(ctx context.Context) {
	tick := time.NewTicker(closePoll)
	defer tick.Stop()
	for m.busy() && ctx.Err() == nil {
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
}

func (m *Mesh) busy() bool {
	if m.serving.Load() > 0 {
		return true
	}
	for _, p := range m.peers {
		if s := p.current(); s != nil && s.forwards.count() > 0 {
			return true
		}
	}
	return false
}

// Status is what is known of the link with a peer; false for a region that has none.
func (m *Mesh) Status(peer string) (regions.LinkStatus, bool) {
	p, ok := m.peers[peer]
	if !ok || p.witness {
		return regions.LinkStatus{}, false
	}
	return p.status(), true
}

// Statuses are those of all links, sorted by peer.
func (m *Mesh) Statuses() []regions.LinkStatus {
	all := make([]regions.LinkStatus, 0, len(m.peers))
	for _, name := range slices.Sorted(maps.Keys(m.peers)) {
		if p := m.peers[name]; !p.witness {
			all = append(all, p.status())
		}
	}
	return all
}

// Gates are the fault gates under the links.
func (m *Mesh) Gates() *Gates { return m.gates.Gates }

// HelloChanged tells every peer that Config.Hello now answers something else.
func (m *Mesh) HelloChanged() {
	for _, p := range m.peers {
		if s := p.current(); s != nil {
			signal(s.helloDue)
		}
	}
}

func (m *Mesh) gateChanged(peer string) {
	if p, ok := m.peers[peer]; ok {
		signal(p.kick)
		signal(p.changed)
	}
}

// hello is ours, with the fields filled in that only the link knows.
func (m *Mesh) hello() regions.Hello {
	h := m.cfg.Hello()
	h.Region, h.CertificateEnds, h.TakesTails = m.cfg.Self, m.cfg.Identity.Ends(), m.cfg.Tails != nil
	if h.WireVersion == 0 {
		h.WireVersion, h.OldestWire = regions.WireVersion, regions.OldestWireVersion
	}
	return h
}

// signal wakes whoever waits on a channel of capacity one, now or the next time.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
