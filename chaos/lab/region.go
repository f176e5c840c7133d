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
	"time"

	"domicile/api/client"
	"domicile/gateway/node"
	"domicile/regions"
	"domicile/regions/approval"
	"domicile/regions/identity"
)

// stopWithin is how long a region may take to stop.
const stopWithin = 15 * time.Second

// Region is one region of a lab. It is safe for concurrent use.
type Region struct {
	Name string
	// Dir holds everything the region writes: data, log, and what callers put there.
	Dir string

	lab      *Lab
	identity *identity.Identity
	address  string    // of its links, the same after a restart
	ports    [3]string // of door, admin and metrics

	mu   sync.Mutex
	link net.Listener // kept from the search for a free port until the first start
	node *node.Node   // nil: not running
	log  *os.File
	last node.Listen // addresses of the last start; empty before the first
}

// Node is the running node, nil while the region is stopped.
func (r *Region) Node() *node.Node {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.node
}

// Door opens a client for the region's producers and consumers: the principal dev.
// attempts is as in client.Config. The caller closes it. The address stays the same
// after a restart.
func (r *Region) Door(attempts int) (*client.Client, error) {
	n := r.Node()
	if n == nil {
		return nil, fmt.Errorf("%s is not running", r.Name)
	}
	return client.New(client.Config{Addresses: []string{n.Door()}, Attempts: attempts})
}

// Desk opens a client for the region's operators. The caller closes it.
func (r *Region) Desk() (*client.Client, error) {
	n := r.Node()
	if n == nil {
		return nil, fmt.Errorf("%s is not running", r.Name)
	}
	return client.New(client.Config{Addresses: []string{n.Admin()}})
}

// Data is the directory of the node's disk.
func (r *Region) Data() string { return filepath.Join(r.Dir, "data") }

// Start starts the region's node on the files it has. It does nothing when the node
// runs already.
func (r *Region) Start(ctx context.Context) (err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.node != nil {
		return nil
	}
	r.log, err = os.OpenFile(filepath.Join(r.Dir, "node.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("open the log of %s: %w", r.Name, err)
	}
	f, err := regions.LoadManifest(r.manifest())
	if err != nil {
		return errors.Join(err, r.log.Close())
	}
	n, err := node.New(r.config(), f, r.seams())
	if err == nil {
		if err = n.Start(ctx); err == nil {
			r.node = n
			r.last = node.Listen{Door: n.Door(), Admin: n.Admin(), Metrics: n.Metrics(), Link: r.address}
			return nil
		}
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopWithin)
		defer cancel()
		err = errors.Join(err, n.Close(closing))
	}
	return errors.Join(fmt.Errorf("start %s: %w", r.Name, err), r.log.Close())
}

// Stop stops the node gracefully. It does nothing when the node is not running.
func (r *Region) Stop(ctx context.Context) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.node == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopWithin)
	defer cancel()
	err := r.node.Close(ctx)
	r.node = nil
	if err = errors.Join(err, r.log.Close()); err != nil {
		return fmt.Errorf("stop %s: %w", r.Name, err)
	}
	return nil
}

// Restart stops the node and starts it again on the same files and address.
func (r *Region) Restart(ctx context.Context) error {
	if err := r.Stop(ctx); err != nil {
		return err
	}
	return r.Start(ctx)
}

// drop lets go of a port that no node was started on.
func (r *Region) drop() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.link != nil {
		r.link.Close()
		r.link = nil
	}
}

func (r *Region) config() node.Config {
	c := node.NewConfig()
	c.Region, c.Data, c.Policies, c.Federation = r.Name, r.Data(), r.lab.policy, r.manifest()
	c.Operators = approval.Rules{{Match: "*", Roles: []string{approval.Operator, approval.Incident, approval.Compliance}}}
	c.Listen = r.last
	if c.Listen.Door == "" {
		c.Listen = node.Listen{Door: r.ports[0], Admin: r.ports[1], Metrics: r.ports[2], Link: r.address}
	}
	if r.lab.options.Config != nil {
		r.lab.options.Config(r.Name, &c)
	}
	return c
}

// seams is what the lab replaces: certificate, logger, the first link listener. The
// log is at debug level: its lines are part of what must hold no foreign record.
func (r *Region) seams() node.Seams {
	s := node.Seams{
		Pace:     r.lab.options.Pace,
		Identity: r.identity,
		Logger:   slog.New(slog.NewJSONHandler(r.log, &slog.HandlerOptions{Level: slog.LevelDebug})),
		Dev:      true,
		Version:  "lab",
		Listen:   r.listen,
	}
	if r.lab.options.Seams != nil {
		r.lab.options.Seams(r.Name, &s)
	}
	return s
}

// listen hands out the listener that was opened when the address was chosen, once.
// It is called from within Start, which holds the lock.
func (r *Region) listen(ctx context.Context, network, address string) (net.Listener, error) {
	if address == r.address && r.link != nil {
		listener := r.link
		r.link = nil
		return listener, nil
	}
	return (&net.ListenConfig{}).Listen(ctx, network, address)
}
