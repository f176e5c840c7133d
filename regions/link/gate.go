package link

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"domicile/api"
	"domicile/regions"
)

// Plane is one of the four lanes of a link.
type Plane string

// The planes.
const (
	Control Plane = "control" // heartbeats, watermarks, hello
	Data    Plane = "data"    // forwards and mirror flows
	Council Plane = "council" // what the voters of the placement authority say
	Gossip  Plane = "gossip"  // who is there, and hints
)

// Planes lists all of them: a cut of these is a cut of the whole link.
func Planes() []Plane { return []Plane{Control, Data, Council, Gossip} }

// Mode is how a cut behaves towards what it cuts.
type Mode string

// The modes.
const (
	// Reject closes what is open and refuses what is new. Out is what this region
	// dialed, In what it accepted.
	Reject Mode = "reject"
	// BlackHole says nothing: what this region sends (Out) or receives (In) stops, on
	// connections that are open and on new ones, until the cut ends.
	BlackHole Mode = "black-hole"
)

// MaxLease is the longest lease of a cut. A drill that lasts longer renews.
const MaxLease = time.Hour

// Cut is one fault that is being held.
type Cut struct {
	ID     uint64
	Peer   string
	Planes []Plane
	Dirs   []regions.Direction
	Mode   Mode
	Drill  string        // id of the drill that it belongs to; "": of none
	Left   time.Duration // of its lease
}

// String is "reject control+data in+out", and of which drill.
func (c Cut) String() string {
	dirs := make([]string, len(c.Dirs))
	for i, d := range c.Dirs {
		dirs[i] = string(d)
	}
	planes := make([]string, len(c.Planes))
	for i, p := range c.Planes {
		planes[i] = string(p)
	}
	text := fmt.Sprintf("%s %s %s", c.Mode, strings.Join(planes, "+"), strings.Join(dirs, "+"))
	if c.Drill != "" {
		text += " of drill " + c.Drill
	}
	return text
}

// Gates holds the fault gates of all links of one node. It is held in memory only
// and can only take connectivity away; each cut is a lease on the boot clock and
// heals by itself. A mesh that begins while a cut is held begins under it. Safe for
// concurrent use.
type Gates struct {
	boot  regions.BootClock
	known func(peer string) bool

	active atomic.Int64 // number of cuts held: the fast path of every read and write

	mu      sync.Mutex
	next    uint64
	cuts    map[uint64]*heldCut
	changed chan struct{} // closed and replaced at every change
	ends    map[*ends]struct{}
	closed  bool
}

type heldCut struct {
	Cut
	lease time.Duration
	ends  time.Duration // on the boot clock
	timer *time.Timer
}

// NewGates holds nothing yet. Leases are counted by boot; nil: the system's. known says
// with whom there may be a link.
func NewGates(boot regions.BootClock, known func(peer string) bool) *Gates {
	if boot == nil {
		boot = regions.SystemBootClock
	}
	return &Gates{boot: boot, known: known, cuts: map[uint64]*heldCut{}, changed: make(chan struct{}), ends: map[*ends]struct{}{}}
}

// Cut takes planes and directions of the link with peer away for lease, and returns
// the cut's id. Cuts add up; each ends by itself.
func (g *Gates) Cut(peer string, planes []Plane, dirs []regions.Direction, mode Mode, lease time.Duration) (uint64, error) {
	return g.Hold(Cut{Peer: peer, Planes: planes, Dirs: dirs, Mode: mode}, lease)
}

// Hold is Cut for a cut that says more of itself. Its ID and Left are not looked at.
func (g *Gates) Hold(what Cut, lease time.Duration) (uint64, error) {
	peer, planes, dirs, mode := what.Peer, what.Planes, what.Dirs, what.Mode
	bad := func(field, value, hint string) error {
		return &api.Error{Code: api.BadRequest, Op: "cut link", Region: peer, Field: field, Value: value, Hint: hint}
	}
	switch {
	case !g.known(peer):
		return 0, &api.Error{Code: api.UnknownRegion, Op: "cut link", Region: peer, Hint: "the manifest has no link with it"}
	case len(planes) == 0 || slices.ContainsFunc(planes, func(p Plane) bool { return !slices.Contains(Planes(), p) }):
		return 0, bad("planes", fmt.Sprint(planes), "control, data, council and gossip, or some of them")
	case len(dirs) == 0 || slices.ContainsFunc(dirs, func(d regions.Direction) bool { return d != regions.In && d != regions.Out }):
		return 0, bad("directions", fmt.Sprint(dirs), "in, out or both")
	case mode != Reject && mode != BlackHole:
		return 0, bad("mode", string(mode), "reject or black-hole")
	case lease <= 0 || lease > MaxLease:
		return 0, bad("lease", lease.String(), "above 0 and at most "+MaxLease.String()+"; renew it to hold it longer")
	}
	g.mu.Lock()
	if g.closed {
		g.mu.Unlock()
		return 0, &api.Error{Code: api.ShuttingDown, Op: "cut link", Region: peer}
	}
	g.next++
	id := g.next
	what.ID, what.Planes, what.Dirs, what.Left = id, slices.Clone(planes), slices.Clone(dirs), 0
	c := &heldCut{Cut: what, lease: lease, ends: g.boot() + lease}
	c.timer = time.AfterFunc(lease, func() { g.expire(id) })
	g.cuts[id] = c
	g.active.Add(1)
	g.wakeLocked()
	doomed := g.doomedLocked(c)
	g.mu.Unlock()
	for _, conn := range doomed {
		conn.Close()
	}
	g.notify(peer)
	return id, nil
}

// notify tells every mesh that a cut of this peer began or ended.
func (g *Gates) notify(peer string) {
	g.mu.Lock()
	told := slices.Collect(maps.Keys(g.ends))
	g.mu.Unlock()
	for _, e := range told {
		e.told(peer)
	}
}

// doomedLocked lists the open connections that a rejecting cut closes.
func (g *Gates) doomedLocked(c *heldCut) []*gatedConn {
	if c.Mode != Reject {
		return nil
	}
	var doomed []*gatedConn
	for e := range g.ends {
		for conn := range e.conns {
			peer, plane := conn.who()
			if peer == c.Peer && slices.Contains(c.Planes, plane) && slices.Contains(c.Dirs, conn.origin) {
				doomed = append(doomed, conn)
			}
		}
	}
	return doomed
}

// Renew starts the cut's lease anew. False: it has ended already.
func (g *Gates) Renew(id uint64) bool { return g.RenewFor(id, MaxLease) }

// RenewFor is Renew for a lease that ends after most at the latest.
func (g *Gates) RenewFor(id uint64, most time.Duration) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	c, ok := g.cuts[id]
	if !ok || g.boot() >= c.ends {
		return false
	}
	lease := min(c.lease, most)
	c.ends = g.boot() + lease
	c.timer.Reset(lease)
	return true
}

// Heal ends a cut now. False: it had ended already.
func (g *Gates) Heal(id uint64) bool {
	g.mu.Lock()
	c, ok := g.cuts[id]
	if !ok {
		g.mu.Unlock()
		return false
	}
	g.dropLocked(c)
	g.mu.Unlock()
	g.notify(c.Peer)
	return true
}

func (g *Gates) expire(id uint64) {
	g.mu.Lock()
	c, ok := g.cuts[id]
	if !ok {
		g.mu.Unlock()
		return
	}
	if left := c.ends - g.boot(); left > 0 { // renewed, or the timer was early on this clock
		c.timer.Reset(left)
		g.mu.Unlock()
		return
	}
	g.dropLocked(c)
	g.mu.Unlock()
	g.notify(c.Peer)
}

func (g *Gates) dropLocked(c *heldCut) {
	c.timer.Stop()
	delete(g.cuts, c.ID)
	g.active.Add(-1)
	g.wakeLocked()
}

func (g *Gates) wakeLocked() {
	close(g.changed)
	g.changed = make(chan struct{})
}

// Active lists the cuts that are held, oldest first.
func (g *Gates) Active() []Cut {
	g.mu.Lock()
	defer g.mu.Unlock()
	cuts := make([]Cut, 0, len(g.cuts))
	for _, c := range g.cuts {
		if left := c.ends - g.boot(); left > 0 {
			view := c.Cut
			view.Planes, view.Dirs, view.Left = slices.Clone(c.Planes), slices.Clone(c.Dirs), left
			cuts = append(cuts, view)
		}
	}
	slices.SortFunc(cuts, func(a, b Cut) int { return int(int64(a.ID) - int64(b.ID)) })
	return cuts
}

// held describes the cuts of one peer's link, "" when there are none.
func (g *Gates) held(peer string) string {
	if g.active.Load() == 0 {
		return ""
	}
	var parts []string
	for _, c := range g.Active() {
		if c.Peer == peer {
			parts = append(parts, c.String())
		}
	}
	return strings.Join(parts, "; ")
}

var errCut = errors.New("a fault gate holds the link")

// verdict is what the gate does with traffic in direction dir on a connection of
// this origin: "" lets it pass. Rejecting takes whole connections by who opened them,
// a black hole takes bytes by where they go. changed is closed when the answer may
// have become another one.
func (g *Gates) verdict(peer string, plane Plane, dir, origin regions.Direction) (mode Mode, changed <-chan struct{}) {
	if g.active.Load() == 0 {
		return "", nil
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	now := g.boot()
	for _, c := range g.cuts {
		if c.Peer != peer || now >= c.ends || !slices.Contains(c.Planes, plane) {
			continue
		}
		if c.Mode == Reject && slices.Contains(c.Dirs, origin) {
			return Reject, g.changed
		}
		if c.Mode == BlackHole && slices.Contains(c.Dirs, dir) {
			mode = BlackHole
		}
	}
	return mode, g.changed
}

// Close heals everything; from then on nothing can be cut.
func (g *Gates) Close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = true
	for _, c := range g.cuts {
		g.dropLocked(c)
	}
}
