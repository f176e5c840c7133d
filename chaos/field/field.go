package field

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"domicile/chaos/lab"
	"domicile/deploy"
	"domicile/gateway/node"
	"domicile/regions"
	"domicile/regions/identity"
	"domicile/regions/strict"
)

// The ports of every node, each on the node's own address.
const (
	doorPort = 7400 + iota
	linkPort
	adminPort
	metricsPort
	clusterPort
)

// validity of the certificates: longer than any test.
const validity = 60 * 24 * time.Hour

// diskMiB is how large a node's disk is when nothing else is asked for.
const diskMiB = 128

// gateways are the names of the nodes of a quorum region.
var gateways = []string{"a", "b", "c"}

// Options say how a field is built. The zero value is the example federation at real
// pace, one node a region.
type Options struct {
	// Parent is where the field's directory is made; "": the system's temporary one.
	Parent string
	// Manifest is the federation, of solo regions; nil: the example. The link
	// addresses in it are replaced.
	Manifest []byte
	// Quorum lists the regions that get three nodes.
	Quorum []string
	// Pace scales the nodes' intervals.
	Pace regions.Pace
	// DiskMiB is the size of each node's disk; 0: 128.
	DiskMiB int
	// Break names a mechanism of every node that is off, NoBarrier, so that a check can
	// be seen to fail.
	Break string
}

// Field is a federation of processes. Its methods are for one goroutine, unless they
// say otherwise; nodes may be used from any.
type Field struct {
	Federation *regions.Federation

	options Options
	root    string
	nodes   []*Node
	web     *http.Client
	paths   *paths
}

// Open makes namespaces' packet filter, directory, disks, certificates and
// configuration; no node runs yet. When it fails nothing is left behind.
func Open(ctx context.Context, o Options) (_ *Field, err error) {
	if o.Pace == 0 {
		o.Pace = 1
	}
	if o.DiskMiB == 0 {
		o.DiskMiB = diskMiB
	}
	root, err := os.MkdirTemp(o.Parent, "domicile-field-")
	if err != nil {
		return nil, fmt.Errorf("make the field's directory: %w", err)
	}
	f := &Field{options: o, root: root, web: &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}}
	defer func() {
		if err != nil {
			err = errors.Join(err, f.Close(ctx))
		}
	}()
	if f.paths, err = openPaths(ctx); err != nil {
		return nil, err
	}
	if err = f.found(); err != nil {
		return nil, err
	}
	for _, n := range f.nodes {
		if err = n.disk.make(ctx, o.DiskMiB); err != nil {
			return nil, err
		}
	}
	return f, nil
}

// found writes the federation's files: manifest, policies, and for each node its
// configuration and certificates.
func (f *Field) found() error {
	founding, err := lab.Found(f.options.Manifest, validity, f.plan)
	if err != nil {
		return err
	}
	f.Federation = founding.Federation
	if err := os.WriteFile(f.manifest(), founding.Manifest, 0o600); err != nil {
		return err
	}
	if err := deploy.WritePolicies(f.Policies()); err != nil {
		return err
	}
	for _, n := range f.nodes {
		if err := n.settle(founding.Authority); err != nil {
			return fmt.Errorf("settle %s: %w", n.Name, err)
		}
	}
	return nil
}

// plan gives the nodes of a region their names and addresses, and returns the
// region's entry in the manifest.
func (f *Field) plan(region string, number int, _ *identity.Authority) (entry string, err error) {
	add := func(name, gateway string, n int) string {
		node := &Node{Name: name, Region: region, number: number, Gateway: gateway, Host: fmt.Sprintf("127.0.%d.%d", number, n), field: f, Dir: filepath.Join(f.root, name)}
		node.disk = &disk{dir: node.Dir}
		f.nodes = append(f.nodes, node)
		return node.at(linkPort)
	}
	if !slices.Contains(f.options.Quorum, region) {
		return fmt.Sprintf("{link: %q}", add(region, "", 1)), nil
	}
	var entries []string
	for i, g := range gateways {
		entries = append(entries, fmt.Sprintf("%s: %q", g, add(region+"."+g, g, i+1)))
	}
	return "{gateways: {" + strings.Join(entries, ", ") + "}}", nil
}

func (f *Field) manifest() string { return filepath.Join(f.root, "federation.yaml") }

// Policies is the policy directory that every node reads.
func (f *Field) Policies() string { return filepath.Join(f.root, "policies") }

// Nodes lists all nodes, by region and name.
func (f *Field) Nodes() []*Node { return slices.Clone(f.nodes) }

// Pace is that of every node.
func (f *Field) Pace() regions.Pace { return f.options.Pace }

// Node returns a node by name: that of its region, and of a quorum region's gateway
// region.a. It panics on a name that does not exist: a test's typing error.
func (f *Field) Node(name string) *Node {
	for _, n := range f.nodes {
		if n.Name == name {
			return n
		}
	}
	panic("field: no node " + name)
}

// Of lists the nodes of a region.
func (f *Field) Of(region string) []*Node {
	return slices.DeleteFunc(f.Nodes(), func(n *Node) bool { return n.Region != region })
}

// Start starts every node that does not run. It does not wait for them.
func (f *Field) Start() error {
	var errs []error
	for _, n := range f.nodes {
		errs = append(errs, n.Start())
	}
	return errors.Join(errs...)
}

// Stop stops every node gracefully, all at the same time, and waits.
func (f *Field) Stop(ctx context.Context) error {
	errs := make(chan error, len(f.nodes))
	for _, n := range f.nodes {
		go func() { errs <- n.Stop(ctx) }()
	}
	var all []error
	for range f.nodes {
		all = append(all, <-errs)
	}
	return errors.Join(all...)
}

// Settle writes all disks out to their images. No node may run.
func (f *Field) Settle(ctx context.Context) error {
	err := f.unmount(ctx)
	for _, n := range f.nodes {
		err = errors.Join(err, n.disk.attach(ctx))
	}
	return err
}

func (f *Field) unmount(ctx context.Context) error {
	var errs []error
	for _, n := range f.nodes {
		errs = append(errs, n.disk.unmount(ctx))
	}
	return errors.Join(errs...)
}

// Close kills what still runs, unmounts the disks and removes everything.
func (f *Field) Close(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
	defer cancel()
	for _, n := range f.nodes {
		n.Kill()
	}
	errs := []error{f.unmount(ctx)}
	f.web.CloseIdleConnections()
	if f.paths != nil {
		errs = append(errs, f.paths.close(ctx))
	}
	return errors.Join(append(errs, os.RemoveAll(f.root))...)
}

// settle writes a node's directory.
func (n *Node) settle(authority *identity.Authority) error {
	if err := os.MkdirAll(n.Dir, 0o700); err != nil {
		return err
	}
	cert, key, err := authority.Issue(identity.Region, n.Region, time.Now(), validity, n.Host)
	if err != nil {
		return err
	}
	c := node.NewConfig()
	c.Region, c.Federation, c.Policies, c.Data = n.Region, n.field.manifest(), n.field.Policies(), n.Data()
	c.Listen = node.Listen{Door: n.at(doorPort), Link: n.at(linkPort), Admin: n.at(adminPort), Metrics: n.at(metricsPort)}
	c.TLS = node.TLS{CA: filepath.Join(n.Dir, "ca.pem"), Certificate: filepath.Join(n.Dir, "node.pem"), Key: filepath.Join(n.Dir, "node.key")}
	// The log is part of what must hold no foreign record.
	c.Log = node.Log{Level: "debug", JSON: true}
	if n.Gateway != "" {
		c.Node, c.Cluster = n.Gateway, node.Cluster{Listen: n.at(clusterPort), Members: n.field.Members(n.Region)}
	}
	yaml, err := strict.Encode(c)
	if err != nil {
		return err
	}
	for path, data := range map[string][]byte{c.TLS.CA: authority.CertPEM(), c.TLS.Certificate: cert, c.TLS.Key: key, n.config(): yaml} {
		if err := os.WriteFile(path, data, 0o600); err != nil {
			return err
		}
	}
	return nil
}

// Members lists where the nodes of a quorum region reach each other, by gateway.
func (f *Field) Members(region string) map[string]string {
	members := map[string]string{}
	for _, n := range f.Of(region) {
		members[n.Gateway] = n.at(clusterPort)
	}
	return members
}
