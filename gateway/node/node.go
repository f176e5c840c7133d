package node

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"domicile/api"
	pb "domicile/api/domicile/v1"
	"domicile/gateway/admin"
	"domicile/gateway/door"
	"domicile/gateway/drill"
	"domicile/gateway/failover"
	"domicile/gateway/handover"
	"domicile/gateway/placer"
	"domicile/policy"
	"domicile/policy/traffic"
	"domicile/regions"
	"domicile/regions/council"
	"domicile/regions/fabric"
	"domicile/regions/identity"
	"domicile/regions/link"
)

// Node is one running gateway with its store. Start it once, and Close it once Start
// has returned. The other methods are for a node that was started, from any goroutine.
//
// What is here lives as long as the node. What needs the region's logs is a turn, and
// lives while this node holds the region's seat.
type Node struct {
	cfg        Config
	seams      Seams
	federation *regions.Federation
	bootID     string
	logger     *slog.Logger

	identity *identity.Identity
	fabric   *fabric.Fabric
	seats    Seats
	placer   *placer.Placer // nil: the manifest names no voters
	placings *admin.Placements
	gate     *policy.Gate
	policies *policies
	traffic  *traffic.Book // nil: it could not be opened
	admin    *admin.Admin
	moves    *admin.Failover       // of logs
	stock    failover.Stock        // which tags they hold
	gates    *link.Gates           // under the links of every turn
	fabrics  *link.Fabrics         // of the peers
	refused  *regions.PeerRefusals // what other regions said that no correct node says
	drills   *drill.Desk           // what is cut on purpose
	siblings *siblings             // the signed policies of the region's other nodes
	pages    net.Listener          // of /metrics and health
	quotas   *door.Quotas          // of what is published in the region
	checked  atomic.Bool           // a person gave their word for the clock that this run began with
	out      *handover.Out         // to the holder of the seat; nil in a solo region
	door     *door.Server
	desk     *door.Server // the operators' door

	turn      atomic.Pointer[turn]  // nil: this node does not hold the seat, or is about to open
	unopened  atomic.Pointer[error] // why the last try to open a turn failed; nil: it did not
	voter     atomic.Pointer[council.Voter]
	delegate  atomic.Pointer[delegate] // in the placement authority; nil: none is open
	voterless atomic.Pointer[string]   // why the region's vote is not on this node, though it should be; "": it is, or need not
	link      atomic.Pointer[string]   // where the last turn's links listened
	unfollow  context.CancelFunc       // ends following the seat; nil: not begun
	following sync.WaitGroup

	acting sync.Mutex    // one change of topics, or opening of a turn, at a time
	audit  sync.Mutex    // one at a time
	asking chan struct{} // holds one for each question under way to another node

	life    context.Context // of the node's own loops
	cancel  context.CancelFunc
	open    context.Context // ends as soon as Close begins
	shut    context.CancelFunc
	loops   sync.WaitGroup
	closers closers // what Close runs
	once    sync.Once
	err     error
}

// New checks the configuration against the manifest. Nothing is opened before Start. The
// node has the manifest for itself: what it reloads changes nobody else's.
func New(c Config, f *regions.Federation, s Seams) (*Node, error) {
	if c.Witness(f) {
		return nil, &api.Error{Code: api.ConfigInvalid, Op: "start node", Field: "region", Value: c.Region, Hint: "it is the federation's witness, which holds no records: start it as one"}
	}
	return newNode(c, f, s)
}

func newNode(c Config, f *regions.Federation, s Seams) (*Node, error) {
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
	n := &Node{cfg: c, seams: s, federation: f.Snapshot(), bootID: hex.EncodeToString(boot), asking: make(chan struct{}, maxAsks), siblings: newSiblings(),
		logger: s.Logger.With("region", c.Region)}
	if c.Node != "" {
		n.logger = n.logger.With("node", c.Node)
	}
	n.refused = regions.NewPeerRefusals(s.Clock, n.logger)
	n.quotas = door.NewQuotas(n.federation, c.Principals, s.Clock)
	return n, nil
}

// Start opens everything in the order in which one part needs the other, and closes
// what it opened if a step fails. The door opens last: who can reach it finds a node
// that works. ctx bounds the start, not the life of the node.
func (n *Node) Start(ctx context.Context) error {
	n.life, n.cancel = context.WithCancel(context.WithoutCancel(ctx))
	n.open, n.shut = context.WithCancel(n.life)
	var first *turn
	if err := (steps{
		{"certificate", n.openIdentity},
		{"store", n.openStore},
		{"policy", n.openPolicy},
		{"placement", n.openPlacer},
		{"failover", n.openFailover},
		{"drills", n.openDrills},
		{"hand-over", n.openHandover},
		{"admin", n.openAdmin},
		{"turn", func(ctx context.Context) (err error) { first, err = n.firstTurn(ctx); return err }},
		{"doors", n.openDoors},
	}).run(ctx); err != nil {
		closing, done := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		defer done()
		return errors.Join(err, n.Close(closing))
	}
	n.loops.Go(func() { n.policies.watch(n.life, n.seams.Pace.Of(candidateEvery)) })
	n.loops.Go(func() { n.policies.foresee(n.open) })
	n.loops.Go(func() { n.countTraffic(n.life) })
	if n.cfg.Node != "" {
		n.loops.Go(func() { n.confer(n.open) })
	}
	n.admin.Start()
	n.desk.Start()
	n.door.Start()
	n.follow(first)
	n.logger.Info("serving", "door", n.Door(), "link", n.Link(), "admin", n.Admin(), "metrics", n.Metrics())
	return nil
}

// onClose notes how to undo a step. Close runs these in reverse.
func (n *Node) onClose(part string, end func(context.Context) error) { n.closers.add(part, end) }

// Close stops taking records, lets those in flight find their outcome, and closes
// the parts in reverse. What is undecided when ctx ends is told OUTCOME_UNKNOWN. In a region
// of three it first waits a bounded time until the others can do without this node.
func (n *Node) Close(ctx context.Context) error {
	n.once.Do(func() {
		n.spare(ctx)
		if n.shut != nil {
			n.shut()
		}
		n.err = n.closers.close(ctx, n.logger)
		if n.cancel != nil {
			n.cancel()
		}
		n.err = errors.Join(n.err, awaited(n.logger, "loops", func() error { n.loops.Wait(); return nil }))
	})
	return n.err
}

// spare waits, while this node still serves, until the region can do without it.
func (n *Node) spare(ctx context.Context) {
	if n.fabric == nil {
		return
	}
	if err := n.fabric.Spare(ctx); err != nil {
		n.logger.Warn("this node stops although the region needs it", "err", err)
	}
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
		Region: n.cfg.Region, Federation: n.federation.Name(), Dir: n.cfg.Data, Lodgers: []string{councilFolder, councilFolder + ".new", formerVoters}, MaxStore: int64(n.cfg.MaxStore),
		Clock: n.seams.Clock, Boot: n.seams.Boot, Evidence: n.clockEvidence, Pace: n.seams.Pace, Logger: n.logger, Hooks: n.seams.Hooks.Fabric,
		Cluster: n.cluster(),
	})
	if err != nil {
		return err
	}
	n.onClose("store", n.fabric.Close)
	if n.fabrics, err = link.OpenFabrics(filepath.Join(n.cfg.Data, peerFabrics), n.logger); err != nil {
		return err
	}
	n.seats = n.fabric.Seat
	if hook := n.seams.Hooks.Seat; hook != nil {
		n.seats = hook(n.seats)
	}
	return n.takeWord(ctx)
}

// openPolicy loads the policy. A bad one does not keep the node from starting:
// readers of global records, mirrors and operators are served, and every publish is
// refused until a good one is loaded.
func (n *Node) openPolicy(ctx context.Context) error {
	n.gate = policy.NewGate(n.federation, n.cfg.Region, n.seams.Hooks.Policy)
	n.openTraffic()
	n.policies = newPolicies(&n.cfg, n.federation, n.gate, (*ends)(n), n.logger)
	n.policies.follow, n.policies.shared = n.seams.FollowPolicies, n.seams.Policies
	n.policies.changed = func() {
		if t := n.turn.Load(); t != nil {
			t.policyChanged()
		}
		n.siblings.stir()
	}
	n.servePolicies()
	if err := n.policies.open(ctx); err != nil {
		n.logger.Error("no policy is active: every record is refused until a good one is", "err", err)
	}
	return nil
}

// Door is where producers and consumers connect, host:port, once started.
func (n *Node) Door() string { return n.door.Addr().String() }

// Admin is where operators connect, host:port, once started.
func (n *Node) Admin() string { return n.desk.Addr().String() }

// Metrics is where /metrics, /healthz and /readyz are served, host:port, once started.
func (n *Node) Metrics() string { return n.pages.Addr().String() }

// Link is where other regions connect while this node holds the seat, host:port, once
// started.
func (n *Node) Link() string {
	if bound := n.link.Load(); bound != nil {
		return *bound
	}
	return n.cfg.Listen.Link
}

// Gates is the fault gate under this region's links; nil while this node does not hold
// the region's seat.
func (n *Node) Gates() *link.Gates {
	if t := n.turn.Load(); t != nil {
		return t.mesh.Gates()
	}
	return nil
}

// Reload reads federation.yaml again and, unless that is the same, carries it out with
// the policy; else it loads the policy directory again. It keeps what is in force and
// says why if either is refused. A federation.yaml that is not there is no change.
func (n *Node) Reload(ctx context.Context) error {
	if next, err := regions.LoadManifest(n.cfg.Federation); !errors.Is(err, fs.ErrNotExist) && (err != nil || next.Digest() != n.federation.Digest() || len(n.shortens(next)) > 0) {
		_, err := n.reloadManifest(ctx, &pb.ReloadManifestRequest{})
		return err
	}
	ctx, cancel := n.whileOpen(ctx)
	defer cancel()
	_, err := n.policies.load(ctx)
	return err
}

// whileOpen is ctx, ended early when the node is closed: judging a policy can take longer
// than a stop may.
func (n *Node) whileOpen(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	unwatch := context.AfterFunc(n.open, cancel)
	return ctx, func() {
		unwatch()
		cancel()
	}
}

// listen opens a listener of ours.
func (n *Node) listen(ctx context.Context, field, address string) (net.Listener, error) {
	l, err := n.seams.Listen(ctx, "tcp", address)
	if err != nil {
		return nil, &api.Error{Code: api.ConfigInvalid, Op: "listen", Field: field, Value: address, Err: err, Hint: "choose a free address"}
	}
	return l, nil
}
