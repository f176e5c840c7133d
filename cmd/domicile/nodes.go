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
	Status          *pb.StatusResponse
	Trust           *identity.Identity // nil: the context names no certificates
	Others          []*regionNode      // of a region of three, each once
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
	open := func(address, cert, key string, attempts int) (*client.Client, error) {
		config := client.Config{Addresses: strings.Split(strings.ReplaceAll(address, " ", ""), ","), Attempts: attempts}
		if c.CA != "" {
			id, err := identity.Load(identity.Files{Cert: under(cert), Key: under(key), CA: under(c.CA)}, regions.NewSteadyClock())
			if err != nil {
				return nil, err
			}
			config.TLS, n.Trust = id.ClientTLS(identity.Region, ""), id
		}
		return client.New(config)
	}
	var err error
	if n.Admin, err = open(c.Admin, firstOf(c.AdminCert, c.Cert), firstOf(c.AdminKey, c.Key), 0); err != nil {
		return nil, err
	}
	if n.Door, err = open(c.Door, c.Cert, c.Key, 1); err != nil {
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
	for region, name := range met {
		if nodes[region] == nil {
			return nil, asked(&api.Error{Code: api.NotReady, Op: "find regions", Region: region, Field: "context", Value: name,
				Hint: "no node that the contexts name has the region's logs open: name its other nodes too, or wait"})
		}
	}
	return nodes, nil
}
