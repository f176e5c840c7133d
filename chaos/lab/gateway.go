package lab

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync"

	"domicile/gateway/node"
	"domicile/policy/opa"
	"domicile/regions"
	"domicile/regions/approval"
)

// shared lets the nodes of all labs of a process ask the rules of one policy once: most tests
// start several nodes on the example's.
var shared = new(opa.Shared)

// Gateway is one node of a region of a lab. It is safe for concurrent use.
type Gateway struct {
	Name string // in a region of three; "" in a region of one
	// Dir holds everything the node writes: data, log, and what callers put there.
	Dir string

	region  *Region
	cluster node.Cluster // of a region of three
	address string       // of its links, the same after a restart
	ports   [3]string    // of door, admin and metrics

	mu   sync.Mutex
	link net.Listener // kept from the search for a free port until the first start
	node *node.Node   // nil: not running
	log  *os.File
	last node.Listen // addresses of the last start; empty before the first
}

// Node is the running node, nil while it is stopped.
func (g *Gateway) Node() *node.Node {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.node
}

// Data is the directory of the node's disk.
func (g *Gateway) Data() string { return filepath.Join(g.Dir, "data") }

// Start starts the node on the files it has. It does nothing when it runs already.
func (g *Gateway) Start(ctx context.Context) (err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.node != nil {
		return nil
	}
	if err = g.openLog(); err != nil {
		return err
	}
	f, err := regions.LoadManifest(g.region.manifest())
	if err != nil {
		return errors.Join(err, g.log.Close())
	}
	n, err := node.New(g.config(), f, g.seams())
	if err == nil {
		if err = n.Start(ctx); err == nil {
			g.node = n
			g.last = node.Listen{Door: n.Door(), Admin: n.Admin(), Metrics: n.Metrics(), Link: g.address}
			return nil
		}
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopWithin)
		defer cancel()
		err = errors.Join(err, n.Close(closing))
	}
	return errors.Join(fmt.Errorf("start %s: %w", g.title(), err), g.log.Close())
}

// Stop stops the node gracefully. It does nothing when it is not running.
func (g *Gateway) Stop(ctx context.Context) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.node == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopWithin)
	defer cancel()
	err := g.node.Close(ctx)
	g.node = nil
	if err = errors.Join(err, g.log.Close()); err != nil {
		return fmt.Errorf("stop %s: %w", g.title(), err)
	}
	return nil
}

func (g *Gateway) title() string {
	if g.Name == "" {
		return g.region.Name
	}
	return g.region.Name + "/" + g.Name
}

func (g *Gateway) openLog() (err error) {
	if g.log, err = os.OpenFile(filepath.Join(g.Dir, "node.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600); err != nil {
		return fmt.Errorf("open the log of %s: %w", g.title(), err)
	}
	return nil
}

// drop lets go of a port that no node was started on.
func (g *Gateway) drop() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.link != nil {
		g.link.Close()
		g.link = nil
	}
}

func (g *Gateway) config() node.Config {
	r := g.region
	c := node.NewConfig()
	c.Region, c.Node, c.Cluster = r.Name, g.Name, g.cluster
	c.Data, c.Policies, c.Federation = g.Data(), r.lab.policy, r.manifest()
	c.Operators = approval.Rules{{Match: "*", Roles: []string{approval.Operator, approval.Incident, approval.Compliance}}}
	c.Listen = g.last
	if c.Listen.Door == "" {
		c.Listen = node.Listen{Door: g.ports[0], Admin: g.ports[1], Metrics: g.ports[2], Link: g.address}
	}
	if r.lab.options.Config != nil {
		r.lab.options.Config(r.Name, &c)
	}
	return c
}

// seams is what the lab replaces: certificate, logger, the first link listener. The
// log is at debug level: its lines are part of what must hold no foreign record.
func (g *Gateway) seams() node.Seams {
	r := g.region
	s := node.Seams{
		Pace:     r.lab.options.Pace,
		Identity: r.identity,
		Logger:   slog.New(slog.NewJSONHandler(g.log, &slog.HandlerOptions{Level: slog.LevelDebug})),
		Dev:      true,
		Policies: shared,
		Version:  "lab",
		Listen:   g.listen,
	}
	if r.lab.options.Seams != nil {
		r.lab.options.Seams(r.Name, &s)
	}
	return s
}

// listen hands out the listener that was opened when the address was chosen, once.
// It is called from within Start, which holds the lock.
func (g *Gateway) listen(ctx context.Context, network, address string) (net.Listener, error) {
	if address == g.address && g.link != nil {
		listener := g.link
		g.link = nil
		return listener, nil
	}
	return (&net.ListenConfig{}).Listen(ctx, network, address)
}
