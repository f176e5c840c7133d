package gossip

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/memberlist"

	"domicile/api"
	"domicile/regions"
)

// Lines are connections with the regions that have a link with this one, by name; the name at
// the other end is that of a verified certificate. Implementations are safe for concurrent
// use.
type Lines interface {
	Dial(ctx context.Context, region string) (net.Conn, error)
	Accept() (conn net.Conn, region string, err error)
	// Close ends Accept.
	Close() error
}

// Config is what a Pool works with. All of it is required but Gateway and Refused.
type Config struct {
	Region, Gateway string
	Gateways        map[string][]string // gateways by the manifest, of this region and of each that has a link with it; [""]: one without a name
	Lines           Lines
	Ours            func() Word           // what this node says of itself now; its Name is filled in
	Refused         *regions.PeerRefusals // nil: nobody counts
	Clock           regions.Clock
	Pace            regions.Pace
	Logger          *slog.Logger
}

// At pace 1. What is never joined again by memberlist itself is by round.
const (
	roundEvery  = 15 * time.Second
	probeEvery  = 2 * time.Second
	forgetDead  = 60 * time.Second
	tellWithin  = 3 * time.Second
	leaveWithin = 500 * time.Millisecond
)

// Pool is this node's part in the gossip. It is safe for concurrent use. Its methods that
// memberlist calls are not for others.
type Pool struct {
	cfg       Config
	name      string
	peers     []string          // regions, sorted; fixed
	byAddress map[string]string // address → region; fixed
	roster    *roster
	list      *memberlist.Memberlist
	lies      atomic.Uint64

	life    context.Context
	end     context.CancelFunc
	work    sync.WaitGroup
	once    sync.Once
	probes  probes
	out     map[string]chan []byte // by region; fixed
	in      chan *memberlist.Packet
	streams chan net.Conn

	mu     sync.Mutex
	closed bool
	conns  map[*tracked]struct{}
	heard  map[string]said   // by region
	flows  map[string]window // of packets, by region
}

var _ memberlist.NodeAwareTransport = (*Pool)(nil)

// Open begins to gossip. Close ends it.
func Open(ctx context.Context, cfg Config) (*Pool, error) {
	p := &Pool{cfg: cfg, name: Name(cfg.Gateway, cfg.Region), byAddress: map[string]string{}, out: map[string]chan []byte{},
		in: make(chan *memberlist.Packet, queued), streams: make(chan net.Conn), conns: map[*tracked]struct{}{}, heard: map[string]said{}, flows: map[string]window{}}
	if _, ok := cfg.Gateways[cfg.Region]; !ok || len(p.name) > 200 {
		return nil, &api.Error{Code: api.ConfigInvalid, Op: "gossip", Field: "region", Value: cfg.Region, Hint: "the manifest has no such region"}
	}
	p.life, p.end = context.WithCancel(ctx)
	for region := range cfg.Gateways {
		p.byAddress[addressOf(region).String()] = region
		if region != cfg.Region {
			p.peers = append(p.peers, region)
			p.out[region] = make(chan []byte, queued)
		}
	}
	slices.Sort(p.peers)
	p.roster = newRoster(p.name, cfg.Gateways, 2*cfg.Pace.Of(forgetDead), cfg.Clock.Now)
	var err error
	if p.list, err = memberlist.Create(p.settings()); err != nil {
		return nil, errors.Join(err, p.Shutdown())
	}
	p.work.Go(p.accept)
	for _, region := range p.peers {
		p.work.Go(func() { p.send(region) })
		p.work.Go(func() { p.tell(region) })
	}
	return p, nil
}

// settings are memberlist's, between its profiles for near and for far networks.
func (p *Pool) settings() *memberlist.Config {
	c, pace := memberlist.DefaultWANConfig(), p.cfg.Pace
	c.Name, c.Transport, c.Alive = p.name, p, p.roster
	c.BindPort, c.AdvertisePort = port, port
	c.ProbeInterval, c.ProbeTimeout, c.SuspicionMult, c.SuspicionMaxTimeoutMult = pace.Of(probeEvery), pace.Of(probeEvery/2), 4, 2
	c.PushPullInterval, c.GossipInterval, c.GossipToTheDeadTime = pace.Of(30*time.Second), pace.Of(500*time.Millisecond), pace.Of(forgetDead)
	c.AwarenessMaxMultiplier = 1                                // a probe takes no longer than probeEvery: Close waits for it
	c.TCPTimeout, c.DisableTcpPings = pace.Of(tellWithin), true // every packet is on TCP already
	c.EnableCompression, c.UDPBufferSize, c.HandoffQueueDepth = false, packetSize, 256
	c.Logger = slog.NewLogLogger(p.cfg.Logger.Handler(), slog.LevelDebug)
	return c
}

// Close says goodbye and ends what Open began, within some seconds: a probe that has no
// answer ends by its own time only. It may be called more than once; every call waits.
func (p *Pool) Close() (err error) {
	p.once.Do(func() {
		_ = p.list.Leave(p.cfg.Pace.Of(leaveWithin)) // nobody may be there to hear it
		err = p.list.Shutdown()
		p.work.Wait()
		p.probes.wait(p.cfg.Pace.Of(probeEvery))
	})
	return err
}

// Members lists the names that are alive as far as the gossip goes, this node's among them.
func (p *Pool) Members() []string {
	var out []string
	for _, n := range p.list.Members() {
		out = append(out, n.Name)
	}
	slices.Sort(out)
	return out
}

// Peers is how many regions could gossip with this one.
func (p *Pool) Peers() int { return len(p.peers) }

// Refused counts names that were not taken into the list and members whose certificate did
// not carry their name, in this run.
func (p *Pool) Refused() uint64 { return p.roster.turnedAway() + p.lies.Load() }

// Hints is what the last words of peers suggest to look at. What they said more than three
// rounds ago counts no more.
func (p *Pool) Hints() []string {
	now, old := p.cfg.Clock.Now(), 3*p.cfg.Pace.Of(roundEvery)
	p.mu.Lock()
	heard := maps.Clone(p.heard)
	p.mu.Unlock()
	maps.DeleteFunc(heard, func(_ string, s said) bool { return now.Sub(s.at) > old })
	return hints(p.ours(), heard, p.cfg.Gateways, now, p.cfg.Pace.Of(patience))
}

func (p *Pool) ours() Word {
	w := p.cfg.Ours()
	w.Name = p.name
	return w
}

// tell exchanges words with a region every round, sooner after a failure, and joins it if
// nobody of it is a member: memberlist forgets whom it holds for dead, and never comes back
// to it.
func (p *Pool) tell(region string) {
	next := time.NewTimer(0)
	defer next.Stop()
	for {
		select {
		case <-next.C:
		case <-p.life.Done():
			return
		}
		wait, err := roundEvery, p.exchange(region)
		if err == nil && !p.has(region) {
			_, err = p.list.Join([]string{hostPort(region)})
		}
		if err != nil {
			wait = roundEvery / 5
		}
		next.Reset(p.cfg.Pace.Of(wait))
	}
}

func (p *Pool) has(region string) bool {
	return slices.ContainsFunc(p.Members(), func(name string) bool { _, of := split(name); return of == region })
}

func (p *Pool) exchange(region string) error {
	ctx, cancel := context.WithTimeout(p.life, p.cfg.Pace.Of(tellWithin))
	defer cancel()
	c, err := p.open(ctx, region, words)
	if err != nil {
		return err
	}
	defer c.Close()
	if err := c.SetDeadline(p.until(tellWithin)); err != nil {
		return err
	}
	if err := writeWord(c, p.ours()); err != nil {
		return err
	}
	return p.hear(c, region, "")
}

// answer takes a word and gives one.
func (p *Pool) answer(c net.Conn, name string) error {
	if err := c.SetDeadline(p.until(tellWithin)); err != nil {
		return err
	}
	_, region := split(name)
	if err := p.hear(c, region, name); err != nil {
		return err
	}
	return writeWord(c, p.ours())
}

// hear keeps a region's word, if it is one of that region, and of the member that was named.
func (p *Pool) hear(c net.Conn, region, name string) error {
	w, err := readWord(c)
	if err != nil {
		return err
	}
	if _, of := split(w.Name); of != region || name != "" && w.Name != name {
		return errLiar
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.heard[region] = said{w, p.cfg.Clock.Now()}
	return nil
}
