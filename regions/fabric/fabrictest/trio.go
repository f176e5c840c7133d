package fabrictest

import (
	"context"
	"fmt"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"domicile/chaos/ports"
	"domicile/regions"
	"domicile/regions/fabric"
	"domicile/regions/identity"
)

// Nodes are the names of a trio's nodes.
var nodes = [...]string{"a", "b", "c"}

// Trio is a quorum region of three fabrics in this process, connected over TLS by way of
// relays that can be cut.
type Trio struct {
	Configs map[string]fabric.Config // as each node was opened; change before Start

	t      testing.TB
	mu     sync.Mutex
	nodes  map[string]*fabric.Fabric
	relays map[[2]string]*relay // from, to
}

// NewTrio prepares region "here" of nodes a, b and c; Start starts them. What still runs
// ends with the test.
func NewTrio(t testing.TB, change ...func(*fabric.Config)) *Trio {
	t.Helper()
	ca, err := identity.NewCA("test", time.Now(), time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	r := &Trio{Configs: map[string]fabric.Config{}, t: t, nodes: map[string]*fabric.Fabric{}, relays: map[[2]string]*relay{}}
	listen := map[string]string{}
	for _, node := range nodes {
		if listen[node], err = ports.Free(); err != nil {
			t.Fatal(err)
		}
	}
	for _, node := range nodes {
		cert, key, err := ca.Issue(identity.Region, "here", time.Now(), time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		id, err := identity.New(cert, key, ca.CertPEM(), regions.NewSteadyClock())
		if err != nil {
			t.Fatal(err)
		}
		cfg := Config(t)
		// Siblings find each other by their own lists alone; the address a node tells of
		// itself leads nowhere, so that every connection is one of the relays'.
		cfg.Cluster = &fabric.Cluster{Node: node, Listen: listen[node], TLS: id.SiblingTLS(), Members: map[string]string{node: "127.0.0.1:1"}}
		for _, other := range nodes {
			if other != node {
				way := newRelay(t, listen[other])
				r.relays[[2]string{node, other}] = way
				cfg.Cluster.Members[other] = way.listener.Addr().String()
			}
		}
		for _, c := range change {
			c(&cfg)
		}
		r.Configs[node] = cfg
	}
	t.Cleanup(r.end) // before the directories go
	return r
}

// Start opens the named nodes, all without a name.
func (r *Trio) Start(names ...string) {
	r.t.Helper()
	if len(names) == 0 {
		names = nodes[:]
	}
	for _, node := range names {
		ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
		f, err := fabric.Open(ctx, r.Configs[node])
		cancel()
		if err != nil {
			r.t.Fatalf("open node %s: %v", node, err)
		}
		r.mu.Lock()
		r.nodes[node] = f
		r.mu.Unlock()
	}
}

// Node is a running node.
func (r *Trio) Node(node string) *fabric.Fabric {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.nodes[node]
}

// Close closes a node in order.
func (r *Trio) Close(node string) error {
	r.mu.Lock()
	f := r.nodes[node]
	delete(r.nodes, node)
	r.mu.Unlock()
	if f == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	return f.Close(ctx)
}

// Holder waits until one of the running nodes holds the seat, except one of not.
func (r *Trio) Holder(not ...string) string {
	r.t.Helper()
	deadline := time.Now().Add(60 * time.Second)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for time.Now().Before(deadline) {
		for _, node := range nodes {
			f := r.Node(node)
			if f == nil || slices.Contains(not, node) {
				continue
			}
			if seat, _ := f.Seat(); seat.Mine {
				return node
			}
		}
		<-tick.C
	}
	for _, node := range nodes {
		r.t.Logf("%s: %s", node, r.seat(node))
	}
	r.t.Fatal("no node took the seat")
	return ""
}

// Cut takes a node away from the others: bytes to and from it go nowhere, connections stay
// open, as when a cable is pulled.
func (r *Trio) Cut(node string) { r.each(node, func(w *relay) { w.hold(true) }) }

// Heal ends a cut.
func (r *Trio) Heal(node string) { r.each(node, func(w *relay) { w.hold(false) }) }

func (r *Trio) each(node string, do func(*relay)) {
	for way, w := range r.relays {
		if way[0] == node || way[1] == node {
			do(w)
		}
	}
}

func (r *Trio) end() {
	for _, w := range r.relays {
		w.hold(false)
	}
	var wg sync.WaitGroup
	for _, node := range nodes {
		wg.Go(func() {
			if err := r.Close(node); err != nil {
				r.t.Logf("close node %s: %v", node, err)
			}
		})
	}
	wg.Wait()
	for _, w := range r.relays {
		w.close()
	}
}

// relay passes connections on to one address, unless it holds back what passes.
type relay struct {
	listener net.Listener
	to       string
	wg       sync.WaitGroup

	mu    sync.Mutex
	held  bool
	open  chan struct{} // closed while nothing is held back
	conns map[net.Conn]struct{}
	ended bool
}

func newRelay(t testing.TB, to string) *relay {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w := &relay{listener: l, to: to, open: make(chan struct{}), conns: map[net.Conn]struct{}{}}
	close(w.open)
	w.wg.Go(w.accept)
	return w
}

func (w *relay) accept() {
	for {
		in, err := w.listener.Accept()
		if err != nil {
			return
		}
		out, err := net.Dial("tcp", w.to)
		if err != nil {
			_ = in.Close()
			continue
		}
		if !w.add(in, out) {
			return
		}
		w.wg.Go(func() { w.pass(out, in) })
		w.wg.Go(func() { w.pass(in, out) })
	}
}

func (w *relay) add(conns ...net.Conn) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range conns {
		if w.ended {
			_ = c.Close()
		} else {
			w.conns[c] = struct{}{}
		}
	}
	return !w.ended
}

// pass copies one direction until either end is gone.
func (w *relay) pass(to, from net.Conn) {
	defer func() {
		_, _ = from.Close(), to.Close()
		w.mu.Lock()
		delete(w.conns, from)
		delete(w.conns, to)
		w.mu.Unlock()
	}()
	b := make([]byte, 64<<10)
	for {
		n, err := from.Read(b)
		w.mu.Lock()
		open := w.open
		w.mu.Unlock()
		<-open
		if n > 0 {
			if _, err := to.Write(b[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

func (w *relay) hold(on bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if on == w.held {
		return
	}
	w.held = on
	if on {
		w.open = make(chan struct{})
	} else {
		close(w.open)
	}
}

func (w *relay) close() {
	_ = w.listener.Close()
	w.mu.Lock()
	w.ended = true
	for c := range w.conns {
		_ = c.Close()
	}
	w.mu.Unlock()
	w.wg.Wait()
}

// seat describes a node's seat for a failing test.
func (r *Trio) seat(node string) string {
	f := r.Node(node)
	if f == nil {
		return "not running"
	}
	s, _ := f.Seat()
	return fmt.Sprintf("%+v", s)
}
