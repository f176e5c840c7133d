package main

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"domicile/api"
	"domicile/api/client"
	pb "domicile/api/domicile/v1"
	"domicile/regions"
	"domicile/regions/identity"
)

// regionNode is one region of the federation, as a command speaks to it.
type regionNode struct {
	Context, Region string
	Address         string         // of its operators' door
	Admin, Door     *client.Client // as operator, and as producer and consumer, which tries once
	Desk            *client.Client // of a region of three: whichever of its nodes answers operators
	Status          *pb.StatusResponse
	Trust           *identity.Identity   // nil: the context names no certificates
	Shown           []*identity.Identity // of Admin and of Door; none: the same
	Others          []*regionNode        // of a region of three, each once

	desk, door client.Config // of Admin and Door
}

// name is the node's in its region; "" where that has one.
func (n *regionNode) name() string { return n.Status.GetSeat().GetNode() }

// firstAnswer bounds the first question to a node.
const firstAnswer = 10 * time.Second

// everyRegion opens clients for each region that the contexts reach, at the node that
// holds its seat, by the region's name. contexts are the names to use; none: all there
// are. Every context has to answer: a command about the federation says nothing about half
// of it. The caller calls done.
func (a *app) everyRegion(ctx context.Context, contexts []string) (nodes map[string]*regionNode, done func(), err error) {
	all, done, err := a.everyNode(contexts)
	if err != nil {
		return nil, nil, err
	}
	if nodes, err = seated(ctx, all); err != nil {
		done()
		return nil, nil, err
	}
	return nodes, done, nil
}

// everyNode opens clients for each node that the contexts name, and asks none of them. The
// caller calls done.
func (a *app) everyNode(contexts []string) (all []*regionNode, done func(), err error) {
	f, path, err := a.loadContexts()
	if err != nil {
		return nil, nil, err
	}
	if len(contexts) == 0 {
		contexts = f.names()
	}
	if len(contexts) == 0 {
		return nil, nil, &api.Error{Code: api.ConfigInvalid, Op: "find regions", Field: "contexts", Value: path, Hint: "name a node of each region: domicile context add"}
	}
	done = func() {
		for _, n := range all {
			n.Admin.Close()
			n.Door.Close()
			if n.Desk != nil {
				n.Desk.Close()
			}
		}
	}
	for _, name := range contexts {
		c, err := f.get(name)
		if err == nil {
			var n *regionNode
			if n, err = openNode(name, c, filepath.Dir(path)); err == nil {
				all = append(all, n)
			}
		}
		if err != nil {
			done()
			return nil, nil, err
		}
	}
	return all, done, nil
}

// openNode makes the clients of one context, whose paths are relative to dir.
func openNode(name string, c namedContext, dir string) (*regionNode, error) {
	under := func(p string) string {
		if p == "" || filepath.IsAbs(p) {
			return p
		}
		return filepath.Join(dir, p)
	}
	n := &regionNode{Context: name, Address: c.Admin}
	open := func(config *client.Config, address, cert, key string) (*client.Client, error) {
		config.Addresses = strings.Split(strings.ReplaceAll(address, " ", ""), ",")
		if c.CA != "" {
			id, err := identity.Load(identity.Files{Cert: under(cert), Key: under(key), CA: under(c.CA)}, regions.NewSteadyClock())
			if err != nil {
				return nil, err
			}
			config.TLS, n.Trust, n.Shown = id.ClientTLS(identity.Region, ""), id, append(n.Shown, id)
		}
		return client.New(*config)
	}
	n.door.Attempts = 1
	var err error
	if n.Admin, err = open(&n.desk, c.Admin, firstOf(c.AdminCert, c.Cert), firstOf(c.AdminKey, c.Key)); err != nil {
		return nil, err
	}
	if n.Door, err = open(&n.door, c.Door, c.Cert, c.Key); err != nil {
		n.Admin.Close()
	}
	return n, err
}

// seated asks all nodes at once for their status, and keeps of each region the one that
// has its logs open.
func seated(ctx context.Context, all []*regionNode) (map[string]*regionNode, error) {
	ctx, cancel := context.WithTimeout(ctx, firstAnswer)
	defer cancel()
	errs := make([]error, len(all))
	var group sync.WaitGroup
	for i, n := range all {
		group.Go(func() { n.Status, errs[i] = n.Admin.Status(ctx) })
	}
	group.Wait()
	nodes, met := map[string]*regionNode{}, map[string]string{}
	for i, n := range all {
		if errs[i] != nil {
			return nil, asked(fmt.Errorf("context %s: %w", n.Context, errs[i]))
		}
		n.Region = n.Status.GetRegion()
		met[n.Region] = n.Context
		if n.Status.GetSeat().GetOpen() {
			nodes[n.Region] = n
		}
	}
	for _, n := range all {
		if at := nodes[n.Region]; at != nil && n.name() != at.name() && !slices.ContainsFunc(at.Others, func(o *regionNode) bool { return o.name() == n.name() }) {
			at.Others = append(at.Others, n)
		}
	}
	for _, n := range nodes {
		if err := n.widen(); err != nil {
			return nil, err
		}
	}
	for region, name := range met {
		if nodes[region] == nil {
			return nil, asked(&api.Error{Code: api.NotReady, Op: "find regions", Region: region, Field: "context", Value: name,
				Hint: "no node that the contexts name has the region's logs open: name its other nodes too, or wait"})
		}
	}
	return nodes, nil
}

// widen has the region's own clients reach all of its nodes that the contexts name, its own
// first: the seat moves, and a node may be lost.
func (n *regionNode) widen() (err error) {
	if len(n.Others) == 0 {
		return nil
	}
	for _, o := range n.Others {
		n.desk.Addresses, n.door.Addresses = append(n.desk.Addresses, o.desk.Addresses...), append(n.door.Addresses, o.door.Addresses...)
	}
	door, err := client.New(n.door)
	if err != nil {
		return err
	}
	n.Door.Close()
	n.Door = door
	n.Desk, err = client.New(n.desk)
	return err
}
