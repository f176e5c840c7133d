package node_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"domicile/api"
	"domicile/api/client"
	pb "domicile/api/domicile/v1"
	"domicile/chaos/lab"
	"domicile/chaos/ports"
	"domicile/gateway/node"
	"domicile/regions"
	"domicile/regions/identity"
)

// three is a federation of one region with three gateways.
const three = `
version: 1
federation: three
regions: {eu-west: {gateways: {a: "%s", b: "%s", c: "%s"}}}
boundaries: {eu: [eu-west]}
topics:
  orders: {writes: local, on_home_loss: {producers: refuse, consumers: {mode: wait}, owner: o, text: t}}
`

var names = [...]string{"a", "b", "c"}

// patience is how long a region of three may take for anything while other tests share the
// machine and its disk.
const patience = 3 * time.Minute

// trio is a region of three nodes in this process.
type trio struct {
	*world
	configs map[string]node.Config
	mu      sync.Mutex
	nodes   map[string]*node.Node // those that run
	desks   map[string]*client.Client
}

func newTrio(t *testing.T) *trio { t.Helper(); return newTrioOf(t, three) }

// newTrioOf makes a region of three of a manifest that leaves their three addresses open.
// Each node has a file of its own.
func newTrioOf(t *testing.T, manifest string) *trio {
	t.Helper()
	links, members := map[string]string{}, map[string]string{}
	for _, name := range names {
		links[name], members[name] = port(t), port(t)
	}
	w := newWorld(t)
	w.policy(1, soloRules)
	text := fmt.Appendf(nil, manifest, links["a"], links["b"], links["c"])
	var err error
	if w.f, err = regions.ParseManifest("federation.yaml", text); err != nil {
		t.Fatal(err)
	}
	ca, err := identity.NewCA("three", time.Now(), time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	cert, key, err := ca.Issue(identity.Region, "eu-west", time.Now(), time.Hour, "127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	if w.identity, err = identity.New(cert, key, ca.CertPEM(), regions.NewSteadyClock()); err != nil {
		t.Fatal(err)
	}
	r := &trio{world: w, configs: map[string]node.Config{}, nodes: map[string]*node.Node{}, desks: map[string]*client.Client{}}
	for _, name := range names {
		c := w.config
		c.Node, c.Data = name, t.TempDir()
		c.Federation = filepath.Join(c.Data, "..", name+"-federation.yaml")
		if err := os.WriteFile(c.Federation, text, 0o600); err != nil {
			t.Fatal(err)
		}
		c.Cluster = node.Cluster{Listen: members[name], Members: members}
		c.Listen.Link, c.Listen.Door, c.Listen.Admin, c.Listen.Metrics = links[name], port(t), port(t), port(t)
		r.configs[name] = c
	}
	t.Cleanup(func() {
		for _, name := range names {
			r.halt(name)
		}
	})
	return r
}

// port is an address that nothing listens at.
func port(t *testing.T) string {
	t.Helper()
	address, err := ports.Free()
	if err != nil {
		t.Fatal(err)
	}
	return address
}

func (r *trio) run(names ...string) {
	r.t.Helper()
	for _, name := range names {
		n, err := node.New(r.configs[name], r.f, node.Seams{Identity: r.identity, Dev: true, Policies: shared, Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			r.t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(r.t.Context(), patience)
		err = n.Start(ctx)
		cancel()
		if err != nil {
			r.t.Fatalf("start %s: %v", name, err)
		}
		r.mu.Lock()
		r.nodes[name] = n
		r.mu.Unlock()
	}
}

func (r *trio) halt(name string) {
	r.mu.Lock()
	n := r.nodes[name]
	delete(r.nodes, name)
	r.mu.Unlock()
	if n == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	if err := n.Close(ctx); err != nil {
		r.t.Logf("close %s: %v", name, err)
	}
}

// holder waits until one running node has the region's logs open.
func (r *trio) holder() string {
	r.t.Helper()
	var holder string
	if err := lab.Poll(r.t.Context(), patience, func() error {
		r.mu.Lock()
		defer r.mu.Unlock()
		for name, n := range r.nodes {
			if n.Gates() != nil {
				holder = name
				return nil
			}
		}
		return errors.New("no node has the logs open")
	}); err != nil {
		r.t.Fatal(err)
	}
	return holder
}

// others are the running nodes but one.
func (r *trio) others(name string) []string {
	return slices.DeleteFunc(slices.Clone(names[:]), func(n string) bool { return n == name })
}

func euOrder(id string) api.Record {
	return api.Record{ID: id, Topic: "orders", Key: "k", Tags: []api.Tag{{Name: "residency", Value: "eu"}}, Body: []byte("body of " + id)}
}

// Whatever door a record comes in at, it is stored once, in order per door, and the ack
// says that two of three disks have it.
func TestRA4_ThreeDoorsOneRegion(t *testing.T) {
	t.Parallel()
	r := newTrio(t)
	r.run(names[:]...)
	r.holder()
	acks := map[string]api.Ack{}
	last := map[string]uint64{}
	for i := range 9 {
		name := names[i%3]
		rec := euOrder(fmt.Sprint("id-", i))
		c := dial(t, r.configs[name].Listen.Door)
		var ack api.Ack
		if err := lab.Poll(t.Context(), 30*time.Second, func() (err error) { ack, err = c.Publish(t.Context(), &rec); return err }); err != nil {
			t.Fatalf("at %s: %v", name, err)
		}
		if ack.Durability != api.Disk2of3 || ack.Region != "eu-west" || ack.ID != rec.ID || ack.Sequence <= last[name] {
			t.Errorf("at %s: %+v", name, ack)
		}
		acks[rec.ID], last[name] = ack, ack.Sequence
	}
	for i, name := range names { // the same id through another door is the same record
		rec := euOrder(fmt.Sprint("id-", i))
		again, err := dial(t, r.configs[names[(i+1)%3]].Listen.Door).Publish(t.Context(), &rec)
		if err != nil || !again.Duplicate || again.Sequence != acks[rec.ID].Sequence {
			t.Errorf("at %s: %+v %v", name, again, err)
		}
	}
	if got := r.read(9); len(got) != 9 {
		t.Errorf("read %d records: %v", len(got), got)
	}
}

// read reads n records at the holder.
func (r *trio) read(n int) []string { r.t.Helper(); return r.readAt(r.holder(), n) }

// readAt reads n records at a node's door.
func (r *trio) readAt(name string, n int) []string {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), patience)
	defer cancel()
	var ids []string
	enough := errors.New("enough")
	err := dial(r.t, r.configs[name].Listen.Door).Read(ctx, &pb.ReadRequest{Topic: "orders", Follow: true}, func(b *pb.ReadResponse) error {
		for _, x := range b.GetRecords() {
			ids = append(ids, x.GetRecord().GetId())
		}
		if len(ids) >= n {
			return enough
		}
		return nil
	})
	if !errors.Is(err, enough) {
		r.t.Errorf("read %d of %d records: %v", len(ids), n, err)
	}
	return ids
}

// ready waits as whoever restarts a region's nodes one by one does: until /readyz of each
// says that it holds all that it should.
func (r *trio) ready() {
	r.t.Helper()
	if err := lab.Poll(r.t.Context(), patience, func() error {
		r.mu.Lock()
		defer r.mu.Unlock()
		for name, n := range r.nodes {
			if code, page := ready(r.t, n); code != http.StatusOK {
				return fmt.Errorf("%s: %d %s", name, code, page)
			}
		}
		return nil
	}); err != nil {
		r.t.Fatal(err)
	}
}

// RA1: a rolling restart under load, the holder included. Producers at all three doors
// hear of nothing but retryable codes, nothing that was acknowledged is lost, and no
// record is stored twice.
func TestRA1_RollingRestartThroughDoors(t *testing.T) {
	t.Parallel()
	r := newTrio(t)
	r.run(names[:]...)
	r.ready()
	load := r.produce(t)
	for range 2 {
		for _, name := range append([]string{r.holder()}, r.others(r.holder())...) {
			load.more(5)
			r.halt(name)
			load.more(5)
			r.run(name)
			r.ready()
		}
	}
	load.more(5)
	acked := load.stop()
	stored := map[string]bool{}
	for _, id := range r.read(len(acked)) {
		if stored[id] {
			t.Errorf("%s is stored twice", id)
		}
		stored[id] = true
	}
	for _, id := range acked {
		if !stored[id] {
			t.Errorf("%s was acknowledged and is lost", id)
		}
	}
	t.Logf("%d acknowledged, %d refusals and unknowns on the way", len(acked), load.trouble.Load())
}

// producers publish at all doors until they are stopped; each record is sent again with
// its id until it is acknowledged.
type producers struct {
	t       *testing.T
	cancel  context.CancelFunc
	group   sync.WaitGroup
	count   atomic.Int64
	trouble atomic.Int64
	mu      sync.Mutex
	acked   []string
}

func (r *trio) produce(t *testing.T) *producers {
	ctx, cancel := context.WithCancel(t.Context())
	p := &producers{t: t, cancel: cancel}
	t.Cleanup(func() { cancel(); p.group.Wait() })
	for _, name := range names {
		c, err := client.New(client.Config{Addresses: []string{r.configs[name].Listen.Door}, Attempts: 1})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		p.group.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				p.insist(ctx, c, euOrder(fmt.Sprintf("%s-%d", name, i)))
			}
		})
	}
	return p
}

func (p *producers) insist(ctx context.Context, c *client.Client, rec api.Record) {
	again := time.NewTicker(20 * time.Millisecond)
	defer again.Stop()
	for ctx.Err() == nil {
		_, err := c.Publish(ctx, &rec)
		if err == nil {
			p.mu.Lock()
			p.acked = append(p.acked, rec.ID)
			p.mu.Unlock()
			p.count.Add(1)
			return
		}
		p.trouble.Add(1)
		if ctx.Err() == nil && !api.CodeOf(err).Retryable() {
			p.t.Errorf("a code that asks for no retry: %v", err)
		}
		select {
		case <-again.C:
		case <-ctx.Done():
		}
	}
}

// more waits for so many further acknowledgements.
func (p *producers) more(n int64) {
	p.t.Helper()
	want := p.count.Load() + n
	if err := lab.Poll(p.t.Context(), patience, func() error {
		if got := p.count.Load(); got < want {
			return fmt.Errorf("%d acknowledged, want %d", got, want)
		}
		return nil
	}); err != nil {
		p.t.Fatal(err)
	}
}

func (p *producers) stop() []string {
	p.cancel()
	p.group.Wait()
	return p.acked
}
