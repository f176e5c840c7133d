package node

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strings"
	"sync"
	"time"

	"domicile/api"
	"domicile/gateway"
	"domicile/gateway/admin"
	"domicile/gateway/door"
	"domicile/mirror"
	"domicile/policy"
	"domicile/regions"
	"domicile/regions/fabric"
	"domicile/regions/identity"
	"domicile/regions/link"
)

// Node is one running gateway with its store. Start it once, and Close it once Start
// has returned. The other methods are for a node that was started, from any goroutine.
type Node struct {
	cfg        Config
	seams      Seams
	federation *regions.Federation
	bootID     string
	logger     *slog.Logger

	identity *identity.Identity
	fabric   *fabric.Fabric
	logs     *logBook
	gate     *policy.Gate
	policies *policies
	mesh     *link.Mesh
	links    net.Addr // where the mesh listens
	source   *mirror.Source
	target   *mirror.Target
	gateway  *gateway.Gateway
	admin    *admin.Admin
	pages    net.Listener // of /metrics and health
	door     *door.Server
	desk     *door.Server // the operators' door

	cancel context.CancelFunc // ends the node's own loops
	loops  sync.WaitGroup
	undo   []func(context.Context) error // what Close does, last first
	once   sync.Once
	err    error
}

// New checks the configuration against the manifest. Nothing is opened before Start.
func New(c Config, f *regions.Federation, s Seams) (*Node, error) {
	if err := c.Validate(f, s.Dev); err != nil {
		return nil, err
	}
	// This setting has the HTTP/2 library write what it sends and receives to standard
	// error: records in transit would come to rest in a log.
	if strings.Contains(os.Getenv("GODEBUG"), "http2debug=2") {
		return nil, &api.Error{Code: api.ConfigInvalid, Op: "start node", Field: "GODEBUG", Value: "http2debug=2",
			Hint: "start without it: it writes what records hold to standard error"}
	}
	s.complete(c)
	boot := make([]byte, 8)
	if _, err := rand.Read(boot); err != nil {
		return nil, err
	}
	return &Node{cfg: c, seams: s, federation: f, bootID: hex.EncodeToString(boot),
		logger: s.Logger.With("region", c.Region)}, nil
}

// Start opens everything in the order in which one part needs the other, and closes
// what it opened if a step fails. The door opens last: who can reach it finds a node
// that works. ctx bounds the start, not the life of the node.
func (n *Node) Start(ctx context.Context) error {
	life, cancel := context.WithCancel(context.WithoutCancel(ctx))
	n.cancel = cancel
	for _, step := range []struct {
		name string
		run  func(context.Context) error
	}{
		{"certificate", n.openIdentity},
		{"store", n.openStore},
		{"policy", n.openPolicy},
		{"links", n.openLinks},
		{"admin", n.openAdmin},
		{"mirror", n.openMirror},
		{"gateway", n.openGateway},
		{"doors", n.openDoors},
	} {
		if err := step.run(ctx); err != nil {
			closing, done := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
			defer done()
			return errors.Join(fmt.Errorf("start %s: %w", step.name, err), n.Close(closing))
		}
	}
	// Who is told of a new policy is there now; before, no load but the first may run.
	n.policies.changed = func() { n.mesh.HelloChanged(); n.source.PolicyChanged() }
	n.loops.Go(func() { n.policies.watch(life, n.seams.Pace.Of(candidateEvery)) })
	n.mesh.Start(life)
	n.source.Start()
	n.admin.Start()
	n.desk.Start()
	n.door.Start()
	n.logger.Info("serving", "door", n.Door(), "link", n.Link(), "admin", n.Admin(), "metrics", n.Metrics())
	return nil
}

// onClose notes how to undo a step. Close runs these in reverse.
func (n *Node) onClose(f func(context.Context) error) { n.undo = append(n.undo, f) }

// Close stops taking records, lets those in flight find their outcome, and closes
// the parts in reverse. What is undecided when ctx ends is told OUTCOME_UNKNOWN. No
// part may use up more than half of the time that is left: whatever hangs before the
// store, which goes last, must not make its next start an unclean one.
func (n *Node) Close(ctx context.Context) error {
	n.once.Do(func() {
		var errs []error
		for i := len(n.undo) - 1; i >= 0; i-- {
			step, cancel := half(ctx)
			if i == 0 {
				step = ctx
			}
			if err := n.undo[i](step); err != nil {
				errs = append(errs, err)
			}
			cancel()
		}
		if n.cancel != nil {
			n.cancel()
		}
		n.loops.Wait()
		n.err = errors.Join(errs...)
	})
	return n.err
}

// half is a context with half of the time that ctx has left.
func half(ctx context.Context) (context.Context, context.CancelFunc) {
	end, bounded := ctx.Deadline()
	if !bounded {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, time.Until(end)/2)
}

func (n *Node) openIdentity(context.Context) error {
	if n.identity = n.seams.Identity; n.identity != nil {
		return nil
	}
	var err error
	n.identity, err = identity.Load(identity.Files{Cert: n.cfg.TLS.Certificate, Key: n.cfg.TLS.Key, CA: n.cfg.TLS.CA}, n.seams.Clock)
	return err
}

func (n *Node) openStore(ctx context.Context) error {
	var err error
	n.fabric, err = fabric.Open(ctx, fabric.Config{
		Region: n.cfg.Region, Federation: n.federation.Name(), Dir: n.cfg.Data, MaxStore: int64(n.cfg.MaxStore),
		Clock: n.seams.Clock, Pace: n.seams.Pace, Logger: n.logger, Hooks: n.seams.Hooks.Fabric,
	})
	if err != nil {
		return err
	}
	n.onClose(n.fabric.Close)
	n.logs = newLogBook(n.cfg.Region, n.federation, n.fabric)
	return n.logs.open(ctx)
}

// openPolicy loads the policy. A bad one does not keep the node from starting:
// readers of global records, mirrors and operators are served, and every publish is
// refused until a good one is loaded.
func (n *Node) openPolicy(ctx context.Context) error {
	n.gate = policy.NewGate(n.federation, n.cfg.Region, n.seams.Hooks.Policy)
	n.policies = newPolicies(n.cfg.Policies, n.federation, n.gate, n.logger)
	n.policies.follow = n.seams.FollowPolicies
	if _, err := n.policies.load(ctx); err != nil {
		n.logger.Error("no policy is active: every record is refused until a good one is loaded")
	}
	return nil
}

func (n *Node) openLinks(ctx context.Context) error {
	listener, err := n.listen(ctx, "listen.link", n.cfg.Listen.Link)
	if err != nil {
		return err
	}
	n.links = listener.Addr()
	addresses := map[string][]string{}
	for _, peer := range n.federation.Peers(n.cfg.Region) {
		r, _ := n.federation.Region(peer)
		addresses[peer] = r.Links()
	}
	n.mesh, err = link.New(link.Config{
		Self: n.cfg.Region, Peers: addresses, Identity: n.identity, Listener: listener, Dial: n.seams.Dial, Hello: n.hello,
		Handler: (*peers)(n), Clock: n.seams.Clock, Boot: n.seams.Boot, Pace: n.seams.Pace, Logger: n.logger,
	})
	if err != nil {
		return errors.Join(err, listener.Close())
	}
	n.onClose(func(ctx context.Context) error { n.mesh.Close(ctx); return nil })
	return nil
}

func (n *Node) openMirror(ctx context.Context) error {
	enter := func() mirror.Pass { return n.gate.Enter() }
	var err error
	n.target, err = mirror.NewTarget(mirror.TargetConfig{
		Self: n.cfg.Region, Federation: n.federation, Link: n.mesh.Status, Enter: enter,
		Copy: func(ctx context.Context, id api.LogID, _ api.Epoch) (regions.CopyLog, error) {
			return n.logs.copyOf(ctx, id)
		},
		Clock: n.seams.Clock, Pace: n.seams.Pace, Logger: n.logger, Metrics: n.admin.Mirror(),
	})
	if err != nil {
		return err
	}
	n.source, err = mirror.NewSource(mirror.SourceConfig{
		Self: n.cfg.Region, Federation: n.federation, HomeLogs: n.logs.allHomes, Link: n.mesh.Status, Enter: enter,
		OpenMirror: n.mesh.OpenMirror, Clock: n.seams.Clock, Pace: n.seams.Pace, Logger: n.logger, Metrics: n.admin.Mirror(), Hooks: n.seams.Hooks.Mirror,
	})
	if err != nil {
		return err
	}
	n.onClose(n.source.Close)
	n.target.Start(ctx)
	return nil
}

func (n *Node) openGateway(context.Context) error {
	var err error
	n.gateway, err = gateway.New(gateway.Config{
		Self: n.cfg.Region, Federation: n.federation, Placement: n.federation, Gate: n.gate, Homes: n.logs.home, Logs: n.logs.ofTopic,
		Links: n.mesh, Lags: (*lags)(n), Clock: n.seams.Clock, Pace: n.seams.Pace, Counters: n.admin,
	})
	if err != nil {
		return err
	}
	n.onClose(n.gateway.Close)
	return nil
}

// Door is where producers and consumers connect, host:port, once started.
func (n *Node) Door() string { return n.door.Addr().String() }

// Admin is where operators connect, host:port, once started.
func (n *Node) Admin() string { return n.desk.Addr().String() }

// Metrics is where /metrics, /healthz and /readyz are served, host:port, once started.
func (n *Node) Metrics() string { return n.pages.Addr().String() }

// Link is where other regions connect, host:port, once started.
func (n *Node) Link() string { return n.links.String() }

// Gates is the fault gate under this region's links.
func (n *Node) Gates() *link.Gates { return n.mesh.Gates() }

// Reload loads the policy directory again, or keeps the active policy and says why.
func (n *Node) Reload(ctx context.Context) error {
	_, err := n.policies.load(ctx)
	return err
}

// listen opens a listener of ours.
func (n *Node) listen(ctx context.Context, field, address string) (net.Listener, error) {
	l, err := n.seams.Listen(ctx, "tcp", address)
	if err != nil {
		return nil, &api.Error{Code: api.ConfigInvalid, Op: "listen", Field: field, Value: address, Err: err, Hint: "choose a free address"}
	}
	return l, nil
}
