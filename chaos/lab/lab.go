// Package lab runs a whole federation in one process: real nodes on loopback
// sockets and free ports, real policies, temporary disks, certificates from an
// authority in memory. Regions can be stopped, restarted and cut off. The demo and
// the tests that need several regions start here.
package lab

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"time"

	"domicile/deploy"
	"domicile/gateway/node"
	"domicile/regions"
	"domicile/regions/council"
	"domicile/regions/identity"
)

// validity of the lab's certificates: it does not live that long.
const validity = 24 * time.Hour

// Options say how a lab is built. The zero value is the example federation at real
// pace.
type Options struct {
	// Parent is where the lab's directory is made; "": the system's temporary one.
	Parent string
	// Manifest is the federation; nil: the example. The link addresses in it are
	// replaced by free ones.
	Manifest []byte
	// Trios names the regions that run as three nodes; in the manifest they stand with one
	// link like the others. At a pace below 1 their seat is lost to every pause of the machine.
	Trios []string
	// Policies writes the policy directory that every region reads; nil: the example.
	Policies func(dir string) error
	// Pace scales all intervals.
	Pace regions.Pace
	// Config may change a region's node.yaml. It is asked again at each start of a node.
	Config func(region string, c *node.Config)
	// Seams may change what one region's node is made of, for example to break a
	// mechanism by its hook. It is asked again at each start of a node.
	Seams func(region string, s *node.Seams)
}

// Lab is a running federation. Its methods are for one goroutine; regions may be
// used from any.
type Lab struct {
	Federation *regions.Federation
	Authority  *identity.Authority

	options Options
	root    string
	policy  string
	regions map[string]*Region
	witness *Witness // nil: the manifest names none
	cuts    []cut
	web     *http.Client
}

// Open makes the lab's directory, certificates and addresses, and starts every
// region. When it fails nothing is left behind.
func Open(ctx context.Context, o Options) (_ *Lab, err error) {
	root, err := os.MkdirTemp(o.Parent, "domicile-lab-")
	if err != nil {
		return nil, fmt.Errorf("make the lab's directory: %w", err)
	}
	l := &Lab{options: o, root: root, policy: filepath.Join(root, "policies"), regions: map[string]*Region{},
		web: &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{MaxIdleConnsPerHost: 2}}}
	defer func() {
		if err != nil {
			err = errors.Join(err, l.Close(context.WithoutCancel(ctx))) // Stop has a deadline of its own
		}
	}()
	if o.Policies == nil {
		o.Policies = deploy.WritePolicies
	}
	if err = o.Policies(l.policy); err != nil {
		return nil, err
	}
	if err = l.found(); err != nil {
		return nil, err
	}
	if err = l.Start(ctx); err != nil {
		return nil, err
	}
	return l, nil
}

// found makes the federation: authority, addresses, regions, manifest.
func (l *Lab) found() error {
	founding, err := Found(l.options.Manifest, validity, l.settle)
	if err != nil {
		return err
	}
	l.Federation, l.Authority = founding.Federation, founding.Authority
	for _, r := range l.regions {
		err = errors.Join(err, os.WriteFile(r.manifest(), founding.Manifest, 0o600))
	}
	err = errors.Join(err, l.foundAuthority())
	if w, ok := l.Federation.Witness(); ok {
		l.witness = &Witness{at: l.regions[w.Name].gateways[0]}
		delete(l.regions, w.Name)
	}
	return err
}

// foundAuthority makes the voters that the manifest names.
func (l *Lab) foundAuthority() error {
	voters := l.Federation.Voters()
	name := rand.Text()
	for _, v := range voters {
		err := council.Create(council.Birth{Dir: node.CouncilDir(l.regions[v].Data()), Region: v, Authority: name, Voters: voters,
			Actor: "lab", Reason: "the manifest names them"})
		if err != nil {
			return err
		}
	}
	return nil
}

// settle gives one region its nodes and a certificate, and returns its
// entry in the manifest.
func (l *Lab) settle(name string, _ int, authority *identity.Authority) (entry string, err error) {
	r := &Region{Name: name, Dir: filepath.Join(l.root, name), lab: l}
	l.regions[name] = r
	names := []string{""}
	if slices.Contains(l.options.Trios, name) {
		names = []string{"a", "b", "c"}
	}
	if entry, err = r.settle(names...); err != nil {
		return "", err
	}
	cert, key, err := authority.Issue(identity.Region, name, time.Now(), validity, "127.0.0.1")
	if err != nil {
		return "", err
	}
	r.identity, err = identity.New(cert, key, authority.CertPEM(), regions.NewSteadyClock())
	return entry, err
}

// Policies is the policy directory that every region reads.
func (l *Lab) Policies() string { return l.policy }

// Region returns a region by name. It panics on a name that the manifest does not
// have: a test's typing error.
func (l *Lab) Region(name string) *Region {
	r, ok := l.regions[name]
	if !ok {
		panic("lab: no region " + name)
	}
	return r
}

// Regions lists all regions by name.
func (l *Lab) Regions() []*Region {
	var list []*Region
	for _, name := range l.Federation.Regions() {
		list = append(list, l.regions[name])
	}
	return list
}

// Start starts every region that is not running, at the same time, and the witness.
func (l *Lab) Start(ctx context.Context) error {
	var err error
	if l.witness != nil {
		err = l.witness.Start(ctx)
	}
	return errors.Join(err, l.each(func(r *Region) error { return r.Start(ctx) }))
}

// Stop stops every region, gracefully and at the same time, and the witness. The files stay.
func (l *Lab) Stop(ctx context.Context) error {
	err := l.each(func(r *Region) error { return r.Stop(ctx) })
	if l.witness != nil {
		err = errors.Join(err, l.witness.Stop(ctx))
	}
	return err
}

func (l *Lab) each(do func(*Region) error) error {
	errs := make(chan error, len(l.regions))
	for _, r := range l.regions {
		go func() { errs <- do(r) }()
	}
	var all []error
	for range l.regions {
		all = append(all, <-errs)
	}
	return errors.Join(all...)
}

// Close heals every cut, stops every region and removes the lab's directory.
func (l *Lab) Close(ctx context.Context) error {
	l.Heal() // what waits for an answer over a cut link need not wait for its deadline
	err := l.Stop(ctx)
	for _, r := range l.regions {
		for _, g := range r.gateways {
			g.drop()
		}
	}
	if l.witness != nil {
		l.witness.at.drop()
	}
	l.web.CloseIdleConnections()
	return errors.Join(err, os.RemoveAll(l.root))
}

// others lists regions other than self.
func (l *Lab) others(self string) []string {
	return slices.DeleteFunc(slices.Clone(l.Federation.Regions()), func(n string) bool { return n == self })
}
