package fabric_test

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"domicile/api"
	"domicile/regions"
	"domicile/regions/fabric"
	"domicile/regions/fabric/fabrictest"
)

// load appends from patient producers until stop, and gives all that was acknowledged.
type load struct {
	stop chan struct{}
	wg   sync.WaitGroup
	mu   sync.Mutex
	told []regions.Stored // by record
	at   []time.Time      // when each was told
	n    atomic.Int64
}

func startLoad(d *desk, producers int) *load {
	l := &load{stop: make(chan struct{})}
	for range producers {
		l.wg.Go(func() {
			for {
				select {
				case <-l.stop:
					return
				default:
				}
				i := int(l.n.Add(1)) - 1
				s := d.append(i, i+1)[0]
				l.mu.Lock()
				for len(l.told) <= i {
					l.told, l.at = append(l.told, regions.Stored{Err: context.Canceled}), append(l.at, time.Time{})
				}
				l.told[i], l.at[i] = s, time.Now()
				l.mu.Unlock()
			}
		})
	}
	return l
}

func (l *load) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.told)
}

func (l *load) end() []regions.Stored {
	close(l.stop)
	l.wg.Wait()
	return l.told
}

// term is the highest under which something was acknowledged.
func (l *load) term() (term uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range l.told {
		term = max(term, s.Term)
	}
	return term
}

// gap is the time from the last ack under the terms up to one to the first under a later one.
func (l *load) gap(term uint64) time.Duration {
	var last, first time.Time
	for i, s := range l.told {
		switch at := l.at[i]; {
		case s.Err != nil || s.Duplicate:
		case s.Term <= term && at.After(last):
			last = at
		case s.Term > term && (first.IsZero() || at.Before(first)):
			first = at
		}
	}
	return first.Sub(last)
}

// longestTakeover is what a takeover may take on a machine that does other things as well; it is
// 6 to 10 s.
const longestTakeover = time.Minute

// The holder is cut off in the middle of a load, as a dead machine is: another node takes
// over, everything acknowledged is there once and in order, and the old holder, back, has
// nothing to add. The gap between the last ack of the one and the first of the other is
// measured, and lies between two terms.
func TestRA1_D6_Decision13_TakeoverLosesNothing(t *testing.T) {
	t.Parallel() // it mostly waits for an election
	r := fabrictest.NewTrio(t)
	r.Start()
	d := newDesk(t, r, "orders@here")
	d.append(0, 1)
	first := r.Holder()
	w := startLoad(d, 16)
	eventually(t, "a load", func() bool { return w.count() > 200 })
	term := w.term()
	r.Cut(first)
	next := r.Holder(first)
	before := w.count()
	eventually(t, "the load goes on", func() bool { return w.count() > before+200 })
	r.Heal(first)
	told := w.end()
	checkLog(t, d.log(), told)
	eventually(t, "the old holder knows the new one", func() bool {
		s, _ := r.Node(first).Seat()
		return !s.Mine && s.Node != "" && s.Term > 1
	})
	gap := w.gap(term)
	if gap <= 0 || gap > longestTakeover {
		t.Errorf("%s from the last ack under term %d to the first under another", gap, term)
	}
	t.Logf("from %s to %s, %d records, %s without an ack", first, next, len(told), gap)
}

// A node of three that has not the seat is lost under a load, which goes on. Then a second one:
// what is under way is unknown or refused, both soon. When they are back the load goes on, and
// everything acknowledged is there once.
func TestRA4_Decision12_OneNodeThenTwoAreLostUnderLoad(t *testing.T) {
	t.Parallel() // it mostly waits
	r := fabrictest.NewTrio(t)
	r.Start()
	d := newDesk(t, r, "orders@here")
	d.append(0, 1)
	holder := r.Holder()
	others := slices.DeleteFunc([]string{"a", "b", "c"}, func(n string) bool { return n == holder })
	w := startLoad(d, 8)
	goesOn := func(what string) {
		before := w.count()
		eventually(t, what, func() bool { return w.count() > before+100 })
	}
	goesOn("a load")
	r.Cut(others[0])
	goesOn("the load goes on with two of three")
	l := d.log()
	r.Cut(others[1])
	told := map[api.Code]int{}
	for i, s := range appendMany(t, l, 100000, 100020) {
		told[api.CodeOf(s.Err)]++
		if code := api.CodeOf(s.Err); code != api.OutcomeUnknown && code != api.NotReady {
			t.Errorf("record %d with one of three: %v", i, s.Err)
		}
	}
	reading, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	reader, err := l.Reader(reading, 0)
	if cancel(); err == nil {
		reader.Close()
	}
	t.Logf("with one of three producers are told %v; a reader: %v", told, err)
	r.Heal(others[0])
	r.Heal(others[1])
	goesOn("the load goes on with all")
	checkLog(t, d.log(), w.end())
}

// Each node is closed and opened again in turn under a load. Producers see only codes that
// allow a retry; everything acknowledged is there once.
func TestRA1_RollingRestart(t *testing.T) {
	r := fabrictest.NewTrio(t)
	r.Start()
	d := newDesk(t, r, "orders@here")
	w := startLoad(d, 8)
	for _, node := range []string{"a", "b", "c"} {
		before := w.count()
		eventually(t, "a load", func() bool { return w.count() > before+50 })
		if err := r.Close(node); err != nil {
			t.Logf("close %s: %v", node, err)
		}
		r.Start(node)
		d.attend(node)
		eventually(t, "three nodes up", func() bool {
			n := 0
			for _, m := range r.Node(node).Members() {
				if m.Up {
					n++
				}
			}
			return n == 3
		})
		r.Holder()
	}
	told := w.end()
	checkLog(t, d.log(), told)
	t.Logf("%d records", len(told))
}

// A holder whose writer's connection stands still while another node takes over wakes up to
// find the log taken: what it had on its way is not in it, and it appends nothing more.
func TestRA1_WokenHolderAppendsNothing(t *testing.T) {
	t.Parallel() // it mostly waits for an election
	gates := map[string]*gate{}
	r := fabrictest.NewTrio(t, func(c *fabric.Config) {
		g := &gate{}
		gates[c.Cluster.Node] = g
		c.Hooks.Wire = g.wrap
	})
	r.Start()
	d := newDesk(t, r, "orders@here")
	stored := d.append(0, 100)
	holder, old := r.Holder(), d.log()
	gates[holder].hold(true)
	got := make(chan regions.Stored, 1)
	old.Append(regions.Draft{Record: record(900)}, func(s regions.Stored) { got <- s })
	r.Cut(holder)
	r.Holder(holder)
	eventually(t, "the next holder opens the log", func() bool { return d.log() != old })
	r.Heal(holder)
	eventually(t, "the old holder knows the new one", func() bool {
		seat, _ := r.Node(holder).Seat()
		return seat.Node != "" && seat.Node != holder
	})
	// The log ends where the old holder left it, but for the marker: only that is in its way.
	gates[holder].hold(false)
	if s := <-got; s.Err == nil {
		t.Fatalf("the old holder acknowledged %+v", s)
	}
	stored = append(stored, d.append(100, 300)...)
	checkLog(t, d.log(), stored)
	for _, it := range readPatiently(t, d.log()) {
		if it.Record.ID == record(900).ID {
			t.Fatal("the old holder's record came in after the takeover")
		}
	}
}

// gate holds back what is written to the broker.
type gate struct {
	mu   sync.Mutex
	open chan struct{} // nil: open
}

func (g *gate) hold(on bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case on && g.open == nil:
		g.open = make(chan struct{})
	case !on && g.open != nil:
		close(g.open)
		g.open = nil
	}
}

func (g *gate) wrap(c net.Conn) net.Conn { return &gatedConn{c, g, make(chan struct{}), sync.Once{}} }

type gatedConn struct {
	net.Conn
	gate *gate
	gone chan struct{}
	once sync.Once
}

func (c *gatedConn) Write(b []byte) (int, error) {
	c.gate.mu.Lock()
	open := c.gate.open
	c.gate.mu.Unlock()
	if open != nil {
		select {
		case <-open:
		case <-c.gone:
		}
	}
	return c.Conn.Write(b)
}

func (c *gatedConn) Close() error {
	c.once.Do(func() { close(c.gone) })
	return c.Conn.Close()
}

// A directory is opened only as what it was made: the mode, the node, and the members.
func TestRA1_SoloStoreNotOpenedAsQuorum(t *testing.T) {
	ctx := context.Background()
	refused := func(cfg fabric.Config, field string) {
		t.Helper()
		f, err := fabric.Open(ctx, cfg)
		if err == nil {
			_ = f.Close(ctx)
			t.Fatalf("opened although %s differs", field)
		}
		wantCode(t, err, api.ConfigInvalid)
		if !strings.Contains(err.Error(), field) {
			t.Fatalf("%v does not name %s", err, field)
		}
	}
	r := fabrictest.NewTrio(t)
	solo := fabrictest.Config(t)
	f, err := fabric.Open(ctx, solo)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Close(ctx); err != nil {
		t.Fatal(err)
	}
	asQuorum := r.Configs["a"]
	asQuorum.Dir = solo.Dir
	refused(asQuorum, "mode")

	r.Start()
	r.Holder()
	// Those that joined while another held the seat have met the region, too.
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(time.Minute); r.Node("a").ID() == "" || r.Node("b").ID() == "" || r.Node("c").ID() == ""; <-tick.C {
		if time.Now().After(deadline) {
			t.Fatal("not every node has met the region")
		}
	}
	for _, node := range []string{"c", "b", "a"} {
		_ = r.Close(node)
	}
	a := r.Configs["a"]
	asSolo := a
	asSolo.Cluster = nil
	refused(asSolo, "mode")
	other := r.Configs["b"]
	other.Dir = a.Dir
	refused(other, "node")
	renamed, members := a, *a.Cluster
	members.Members = map[string]string{"a": "127.0.0.1:1", "b": "127.0.0.1:2", "d": "127.0.0.1:3"}
	renamed.Cluster = &members
	refused(renamed, "members")
	two := members
	two.Members = map[string]string{"a": "127.0.0.1:1", "b": "127.0.0.1:2"}
	renamed.Cluster = &two
	refused(renamed, "members")
	open := *a.Cluster
	open.TLS, open.Listen = nil, "0.0.0.0:0"
	renamed.Cluster = &open
	refused(renamed, "cluster.listen")
	if err := os.RemoveAll(filepath.Join(a.Dir, "broker")); err != nil {
		t.Fatal(err)
	}
	refused(a, "dir")
}

// A log of the region's list whose data is gone from all nodes is refused by every holder,
// also by one that never had it open: it is never made anew.
func TestB41_MissingLogIsRefusedByTheNextHolder(t *testing.T) {
	r := fabrictest.NewTrio(t)
	r.Start()
	holder := r.Holder()
	f := r.Node(holder)
	l := fabrictest.Home(t, f, "orders@here")
	if s := appendMany(t, l, 0, 1)[0]; s.Err != nil {
		t.Log(s.Err)
	}
	if err := f.DeleteStream(context.Background(), mustID(t, "orders@here")); err != nil {
		t.Fatal(err)
	}
	_ = f.StepDown(context.Background())
	if err := f.Vacate(context.Background()); err != nil {
		t.Log(err)
	}
	next := r.Node(r.Holder(holder))
	_, err := next.Home(context.Background(), fabric.LogConfig{ID: mustID(t, "orders@here"), Epoch: api.StaticEpoch("here"), MaxBytes: 1 << 20})
	wantCode(t, err, api.ConfigInvalid)
	if !strings.Contains(err.Error(), "never made anew") {
		t.Fatal(err)
	}
}
