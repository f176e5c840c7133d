package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"domicile/api/client"
	"domicile/chaos/ports"
	"domicile/gateway/node"
	"domicile/regions/identity"
)

// stopWithin is how long a node may take to stop.
const stopWithin = 15 * time.Second

// Region is one region of a lab, of one node or of three. It is safe for concurrent use.
type Region struct {
	Name string
	// Dir holds everything the region writes; of a region of one it is its node's.
	Dir string

	lab      *Lab
	identity *identity.Identity
	gateways []*Gateway
}

// Gateways are the region's nodes, by name.
func (r *Region) Gateways() []*Gateway { return r.gateways }

// Holder is the node that has the region's logs open, nil if none has. A region of one
// needs only run.
func (r *Region) Holder() *Gateway {
	for _, g := range r.gateways {
		if n := g.Node(); n != nil && (len(r.gateways) == 1 || n.Gates() != nil) {
			return g
		}
	}
	return nil
}

// Node is the running node that has the region's logs open, else any that runs; nil while
// the region is stopped.
func (r *Region) Node() *node.Node {
	if g := r.Holder(); g != nil {
		if n := g.Node(); n != nil {
			return n
		}
	}
	for _, g := range r.gateways {
		if n := g.Node(); n != nil {
			return n
		}
	}
	return nil
}

// Door opens a client for the region's producers and consumers, at every node that runs:
// the principal dev. attempts is as in client.Config. The caller closes it. The addresses
// stay the same after a restart.
func (r *Region) Door(attempts int) (*client.Client, error) {
	var doors []string
	for _, g := range r.gateways {
		if n := g.Node(); n != nil {
			doors = append(doors, n.Door())
		}
	}
	if len(doors) == 0 {
		return nil, fmt.Errorf("%s is not running", r.Name)
	}
	return client.New(client.Config{Addresses: doors, Attempts: attempts})
}

// Desk opens a client for the region's operators, at Node. The caller closes it.
func (r *Region) Desk() (*client.Client, error) {
	n := r.Node()
	if n == nil {
		return nil, fmt.Errorf("%s is not running", r.Name)
	}
	return client.New(client.Config{Addresses: []string{n.Admin()}})
}

// Data is the directory of the disk of the region's node, of three the first one's.
func (r *Region) Data() string { return r.gateways[0].Data() }

// Start starts the nodes that are not running, at the same time.
func (r *Region) Start(ctx context.Context) error {
	return r.each(func(g *Gateway) error { return g.Start(ctx) })
}

// Stop stops the nodes that run, gracefully and at the same time.
func (r *Region) Stop(ctx context.Context) error {
	return r.each(func(g *Gateway) error { return g.Stop(ctx) })
}

func (r *Region) each(do func(*Gateway) error) error {
	errs := make(chan error, len(r.gateways))
	for _, g := range r.gateways {
		go func() { errs <- do(g) }()
	}
	var all []error
	for range r.gateways {
		all = append(all, <-errs)
	}
	return errors.Join(all...)
}

// Restart stops the region and starts it again on the same files and addresses.
func (r *Region) Restart(ctx context.Context) error {
	if err := r.Stop(ctx); err != nil {
		return err
	}
	return r.Start(ctx)
}

// settle gives the region its nodes, each with a directory and addresses, and returns its
// entry in the manifest.
func (r *Region) settle(names ...string) (entry string, err error) {
	var links []string
	members := map[string]string{}
	for _, name := range names {
		g := &Gateway{Name: name, Dir: filepath.Join(r.Dir, name), region: r}
		if g.link, err = ports.Listen(); err != nil {
			return "", err
		}
		r.gateways = append(r.gateways, g)
		g.address = g.link.Addr().String()
		links = append(links, fmt.Sprintf("%s: %q", name, g.address))
		for i := range g.ports {
			if g.ports[i], err = ports.Free(); err != nil {
				return "", err
			}
		}
		if err := os.MkdirAll(g.Data(), 0o700); err != nil {
			return "", err
		}
	}
	if len(names) == 1 {
		return fmt.Sprintf("{link: %q}", r.gateways[0].address), nil
	}
	for _, g := range r.gateways {
		g.drop() // who holds no seat does not listen, and nobody must wait there
		if members[g.Name], err = ports.Free(); err != nil {
			return "", err
		}
	}
	for _, g := range r.gateways {
		g.cluster = node.Cluster{Listen: members[g.Name], Members: members}
	}
	return "{gateways: {" + strings.Join(links, ", ") + "}}", nil
}
