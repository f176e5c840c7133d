package nft

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"domicile/api"
	"domicile/regions"
	"domicile/regions/link"
)

// within bounds one call of nft, and one look-up of an address.
const within = 3 * time.Second

// Config is what a Filter works with. All of it is required but Node and Run.
type Config struct {
	Federation *regions.Federation
	Self, Node string            // region, and the node in one of three
	Open       func() []link.End // connections of the links that are open now
	Boot       regions.BootClock
	Logger     *slog.Logger
	Run        Program // nil: the host's own nft
}

// Program calls nft with a script and arguments, and answers what it printed.
type Program func(ctx context.Context, script string, args ...string) (string, error)

// Filter holds cuts of this node's links in the kernel's packet filter, those of one drill
// at a time. What it makes is one table, named after the drill; nothing else of the host's
// rules is touched. It is safe for concurrent use.
type Filter struct {
	Config
	prefix string // of the names of this node's tables

	mu   sync.Mutex
	held *held // nil: nothing
}

type held struct {
	cuts  []link.Cut
	table string
	pairs []pair
	lease time.Duration
	ends  time.Duration // on the boot clock
}

// missed refuses if one of the connections is with a peer that is cut off, and runs between
// addresses that the table does not have.
func (h *held) missed(open []link.End) error {
	return seen(h.pairs, slices.DeleteFunc(slices.Clone(open), func(e link.End) bool {
		return !slices.ContainsFunc(h.cuts, func(c link.Cut) bool { return c.Peer == e.Peer })
	}))
}

// New is a filter that holds nothing. Sweep removes what an earlier run left.
func New(c Config) *Filter {
	if c.Run == nil {
		c.Run = run
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "%q %q %q", c.Federation.Name(), c.Self, c.Node))
	return &Filter{Config: c, prefix: fmt.Sprintf("domicile-drill/%x/", sum[:4])}
}

// Check refuses, with the reason, the cuts of a drill that could not be held here now. It
// changes nothing but to remove what an earlier run of the node has left.
func (f *Filter) Check(cuts []link.Cut) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	if err := f.sweep(ctx); err != nil {
		return unable(f.Self, err, "the node needs the program nft, and root or CAP_NET_ADMIN")
	}
	pairs, err := f.plan(ctx, cuts)
	if err != nil {
		return err
	}
	if _, err := f.Run(ctx, table(f.prefix+cuts[0].Drill, cuts[0], pairs, time.Minute), "--check", "-f", "-"); err != nil {
		return unable(f.Self, err, "the kernel does not take the rules")
	}
	return nil
}

func unable(region string, err error, why string) error {
	return &api.Error{Code: api.BadRequest, Op: "cut with nftables", Region: region, Field: "gate", Value: "nftables", Err: err, Hint: why + "; gate: process needs none of it"}
}

// plan is the pairs of addresses of a drill's cuts.
func (f *Filter) plan(ctx context.Context, cuts []link.Cut) ([]pair, error) {
	where, err := f.resolve(ctx)
	if err != nil {
		return nil, err
	}
	var peers []string
	for _, c := range cuts {
		peers = append(peers, c.Peer)
	}
	open := f.Open()
	var out []pair
	for _, peer := range peers {
		pairs, err := where.apart(f.Self, peer, peers)
		if err == nil {
			err = seen(pairs, slices.DeleteFunc(slices.Clone(open), func(e link.End) bool { return e.Peer != peer }))
		}
		if err != nil {
			return nil, err
		}
		out = append(out, pairs...)
	}
	return out, nil
}

// resolve looks every address of the manifest up.
func (f *Filter) resolve(ctx context.Context) (book, error) {
	links := f.Federation.Witnesses(f.Self)
	for _, name := range f.Federation.Regions() {
		r, _ := f.Federation.Region(name)
		links[name] = r.Links()
	}
	out := book{}
	for name, addresses := range links {
		for _, a := range addresses {
			host, text, err := net.SplitHostPort(a)
			port, bad := strconv.ParseUint(text, 10, 16)
			var ips []netip.Addr
			if err = errors.Join(err, bad); err == nil {
				ips, err = net.DefaultResolver.LookupNetIP(ctx, "ip", host)
			}
			if err != nil {
				return nil, &api.Error{Code: api.BadRequest, Op: "cut with nftables", Region: name, Field: "gate", Value: a, Err: err, Hint: "the link's address has no IP address that is known here"}
			}
			for _, ip := range ips {
				out[name] = append(out[name], netip.AddrPortFrom(ip.Unmap(), uint16(port)))
			}
		}
	}
	return out, nil
}

// Hold cuts, all or nothing. The cuts are of one drill, with one mode and the same
// directions; their ID and Left are not looked at, and neither are their planes: a packet
// filter takes all of them.
func (f *Filter) Hold(cuts []link.Cut, lease time.Duration) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.held != nil {
		return &api.Error{Code: api.Conflict, Op: "cut with nftables", Region: f.Self, Field: "drill", Value: f.held.cuts[0].Drill, Hint: "it is held still"}
	}
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	pairs, err := f.plan(ctx, cuts)
	if err != nil {
		return err
	}
	h := &held{cuts: cuts, table: f.prefix + cuts[0].Drill, pairs: pairs, lease: lease, ends: f.Boot() + lease}
	if _, err := f.Run(ctx, table(h.table, cuts[0], pairs, lease), "-f", "-"); err != nil {
		f.remove(h.table) // it may have been made before ctx ended
		return unable(f.Self, err, "the kernel did not take the rules")
	}
	f.held = h
	return nil
}

// RenewFor begins the lease anew, which ends after most at the latest. False: it has ended
// already, here or in the kernel, or a link of a peer that is cut off is open beside it.
func (f *Filter) RenewFor(most time.Duration) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	h := f.held
	if h == nil || f.Boot() >= h.ends {
		return false
	}
	// With the seat of a region of three the links come to a node that had none to look at.
	if err := h.missed(f.Open()); err != nil {
		f.Logger.Warn("a drill's cut misses a link", "table", h.table, "err", err)
		return false
	}
	ctx, cancel := context.WithTimeout(context.Background(), h.ends-f.Boot())
	defer cancel()
	lease := min(h.lease, most)
	ends := f.Boot() + lease
	if _, err := f.Run(ctx, renewal(h.table, h.cuts[0], h.pairs, lease), "-f", "-"); err != nil {
		f.Logger.Warn("the kernel's rules of a drill were not renewed", "table", h.table, "err", err)
		return false
	}
	h.ends = ends
	return true
}

// Heal removes what is held. Should the kernel not do so, it ends there with its lease, and
// the table is removed by the next Sweep.
func (f *Filter) Heal() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if h := f.held; h != nil {
		f.held = nil
		f.remove(h.table)
	}
}

// Active lists the cuts that are held.
func (f *Filter) Active() []link.Cut {
	f.mu.Lock()
	defer f.mu.Unlock()
	var out []link.Cut
	if h := f.held; h != nil && f.Boot() < h.ends {
		for _, c := range h.cuts {
			c.Left = h.ends - f.Boot()
			out = append(out, c)
		}
	}
	return out
}

// Sweep removes what an earlier run of this node has left: tables in which nothing is cut
// any more, or that cut still, until the lease of whoever died ends.
func (f *Filter) Sweep() {
	f.mu.Lock()
	defer f.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	if err := f.sweep(ctx); err != nil { // then nothing was ever made from here, or it ends by itself
		f.Logger.Debug("no packet filter that could be looked at", "err", err)
	}
}

func (f *Filter) sweep(ctx context.Context) error {
	list, err := f.Run(ctx, "", "list", "tables", "inet")
	if err != nil || f.held != nil {
		return err
	}
	for line := range strings.Lines(list) {
		if name := strings.TrimPrefix(strings.TrimSpace(line), "table inet "); strings.HasPrefix(name, f.prefix) {
			f.remove(name)
		}
	}
	return nil
}

// remove deletes one table of this filter's.
func (f *Filter) remove(name string) {
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	// Added first, as one that is not there can't be deleted.
	if _, err := f.Run(ctx, "add table inet "+name+"\ndelete table inet "+name+"\n", "-f", "-"); err != nil {
		f.Logger.Error("a table of a drill could not be removed; what it cuts ends with its lease", "table", name, "err", err)
	}
}

// run calls nft with a script.
func run(ctx context.Context, script string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "nft", args...)
	cmd.Stdin = strings.NewReader(script)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("nft: %w: %s", err, strings.TrimSpace(string(out)))
	}
	return string(out), nil
}
