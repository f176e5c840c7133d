package simulate

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	"domicile/api/client"
	"domicile/chaos/drill"
	"domicile/gateway/node"
	"domicile/regions"
	"domicile/regions/approval"
	"domicile/regions/council"
	"domicile/regions/identity"
)

// validity of the certificates, in the simulation's own time.
const validity = 365 * 24 * time.Hour

// maxStore is what each node may store, in bytes: more than a simulation writes.
const maxStore = 1 << 40

// world is a federation of real nodes that reach each other over pipes. It is made and used
// within the bubble, and ends with its process.
type world struct {
	federation *regions.Federation
	authority  *identity.Authority
	net        *network
	root       string // folder of everything that nodes write
	policies   string
	boot       regions.BootClock
	logger     *slog.Logger
}

// found makes the federation of a manifest with voters, folders and certificates, and starts
// nothing.
func found(root, policies string, manifest []byte, logger *slog.Logger) (*world, error) {
	f, err := regions.ParseManifest("federation.yaml", manifest)
	if err != nil {
		return nil, err
	}
	began := time.Now()
	w := &world{federation: f, net: newNetwork(), root: root, policies: policies, logger: logger, boot: func() time.Duration { return time.Since(began) }}
	if w.authority, err = identity.NewCA(f.Name(), began, validity); err != nil {
		return nil, err
	}
	for _, name := range w.names() {
		if err := os.MkdirAll(w.data(name), 0o700); err != nil {
			return nil, err
		}
		if err := os.WriteFile(w.manifest(name), manifest, 0o600); err != nil {
			return nil, err
		}
	}
	voters, birth := f.Voters(), rand.Text()
	for _, v := range voters {
		if err := council.Create(council.Birth{Dir: node.CouncilDir(w.data(v)), Region: v, Authority: birth, Voters: voters, Actor: "simulation", Reason: "the manifest names them"}); err != nil {
			return nil, err
		}
	}
	return w, nil
}

// names are those of all nodes: the regions', and the witness's if there is one.
func (w *world) names() []string {
	names := append([]string{}, w.federation.Regions()...)
	if v, ok := w.federation.Witness(); ok {
		names = append(names, v.Name)
	}
	return names
}

func (w *world) data(name string) string     { return filepath.Join(w.root, name, "data") }
func (w *world) manifest(name string) string { return filepath.Join(w.root, name, "federation.yaml") }

// start starts all nodes at once, and answers how a drill reaches the regions.
func (w *world) start(ctx context.Context) (map[string]*drill.Node, error) {
	names := w.names()
	nodes, errs := make([]*drill.Node, len(names)), make(chan error, len(names))
	for i, name := range names {
		go func() {
			var err error
			if nodes[i], err = w.startOne(ctx, name, i+1); err != nil {
				err = fmt.Errorf("start %s: %w", name, err)
			}
			errs <- err
		}()
	}
	var all []error
	for range names {
		all = append(all, <-errs)
	}
	out := map[string]*drill.Node{}
	for i := range w.federation.Regions() {
		out[names[i]] = nodes[i]
	}
	return out, errors.Join(all...)
}

// startOne starts one node; number gives it addresses of its own for door and desk. The
// links are where the manifest has them.
func (w *world) startOne(ctx context.Context, name string, number int) (*drill.Node, error) {
	f, err := regions.LoadManifest(w.manifest(name))
	if err != nil {
		return nil, err
	}
	s, err := w.seams(name)
	if err != nil {
		return nil, err
	}
	at := func(port int) string { return fmt.Sprintf("127.77.0.%d:%d", number, port) }
	c := node.NewConfig()
	c.Region, c.Data, c.Policies, c.Federation, c.DevClass, c.MaxStore = name, w.data(name), w.policies, w.manifest(name), class, maxStore
	c.Operators = approval.Rules{{Match: "*", Roles: []string{approval.Operator, approval.Incident, approval.Compliance}}}
	c.Listen = node.Listen{Door: at(1), Admin: at(2), Metrics: at(3)}
	if witness, ok := f.Witness(); ok && witness.Name == name {
		c.Listen.Link = witness.Link
		n, err := node.NewWitness(c, f, s)
		if err != nil {
			return nil, err
		}
		return nil, n.Start(ctx)
	}
	region, _ := f.Region(name)
	c.Listen.Link = region.Link
	n, err := node.New(c, f, s)
	if err != nil {
		return nil, err
	}
	if err := n.Start(ctx); err != nil {
		return nil, err
	}
	out := &drill.Node{Region: name, Place: region.Boundary, Address: at(2)}
	if out.Admin, err = client.New(client.Config{Addresses: []string{at(2)}, Dial: w.dial}); err != nil {
		return nil, err
	}
	out.Door, err = client.New(client.Config{Addresses: []string{at(1)}, Attempts: 1, Dial: w.dial})
	return out, err
}

// seams are what of the world a node can't have in virtual time.
func (w *world) seams(name string) (node.Seams, error) {
	clock := regions.NewSteadyClock()
	cert, key, err := w.authority.Issue(identity.Region, name, clock.Now(), validity)
	if err != nil {
		return node.Seams{}, err
	}
	who, err := identity.New(cert, key, w.authority.CertPEM(), clock)
	s := node.Seams{
		Clock: clock, Boot: w.boot, Dial: w.net.Dial, Listen: w.net.Listen, PacketFilter: noFilter,
		Logger: w.logger, Identity: who, Dev: true, Version: "simulated",
	}
	s.Hooks.Fabric.Sync = func(*os.File) error { return nil } // nothing here outlives the process
	return s, err
}

// dial is how the controller reaches a region: with a way to go.
func (w *world) dial(ctx context.Context, address string) (net.Conn, error) {
	c, err := w.net.Dial(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	return &distant{Conn: c, closed: make(chan struct{})}, nil
}

// way is how long what the controller asks is on its way. Without it a cut would hold in the
// very instant in which it is asked for, and nobody could say of a record of that instant
// whether it came before. It is no multiple of any time that the drill counts in.
const way = 1371 * time.Microsecond

// distant is a connection on which what is written takes its time.
type distant struct {
	net.Conn
	once   sync.Once
	closed chan struct{}
}

// Write waits until the bytes are there.
func (d *distant) Write(b []byte) (int, error) {
	arrives := time.NewTimer(way)
	defer arrives.Stop()
	select {
	case <-arrives.C:
	case <-d.closed:
		return 0, net.ErrClosed
	}
	return d.Conn.Write(b)
}

// Close ends the connection, and writes under way.
func (d *distant) Close() error {
	d.once.Do(func() { close(d.closed) })
	return d.Conn.Close()
}

// noFilter keeps simulated nodes off the host's packet filter.
func noFilter(context.Context, string, ...string) (string, error) {
	return "", errors.New("a simulation has no packet filter")
}
