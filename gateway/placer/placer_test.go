package placer_test

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"domicile/api"
	"domicile/gateway/placer"
	"domicile/regions"
	"domicile/regions/fabric/fabrictest"
	"domicile/regions/placement"
)

func TestMain(m *testing.M) { fabrictest.VerifyTestMain(m) }

const manifest = `
version: 1
federation: f
regions: {here: {link: "a:1"}, there: {link: "b:1"}}
authority: {voters: [here, there]}
topics:
  orders: {writes: home, home: here, mirror: [there], failover: {mode: manual, targets: [there], rpo: 5s, rto: 1m, accept: true}, on_home_loss: {producers: refuse, consumers: {mode: wait}, owner: o, text: t}}
`

var orders = api.LogID{Tenant: api.DefaultTenant, Topic: "orders", Slot: api.HomeSlot}

// authority is the real state machine, without voters and lines around it.
type authority struct {
	t     *testing.T
	mu    sync.Mutex
	state *placement.State
	index uint64
	deaf  bool
	told  chan struct{}
}

func newAuthority(t *testing.T) *authority {
	a := &authority{t: t, state: &placement.State{}, told: make(chan struct{})}
	a.must(placement.Command{Verb: placement.Found, ID: "found", Actor: "a", Reason: "r", Founding: &placement.Founding{Authority: "A"}})
	return a
}

func (a *authority) must(c placement.Command) placement.Result {
	a.t.Helper()
	r, err := a.Submit(a.t.Context(), c)
	if err != nil {
		a.t.Fatal(err)
	}
	return r
}

func (a *authority) Submit(_ context.Context, c placement.Command) (placement.Result, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.deaf {
		return placement.Result{}, &api.Error{Code: api.AuthorityUnreachable}
	}
	a.index++
	r, err := a.state.Apply(a.index, c)
	close(a.told)
	a.told = make(chan struct{})
	return r, err
}

func (a *authority) Renew(ctx context.Context) (placement.Grant, error) {
	r, err := a.Submit(ctx, placement.Command{Verb: placement.Renew, Regions: []string{"here"}})
	if err != nil {
		return placement.Grant{}, err
	}
	return r.Grants[0], nil
}

func (a *authority) Since(version uint64, name string) (placement.Delta, <-chan struct{}) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if name != a.state.Authority() {
		version = 0
	}
	return a.state.Since(version), a.told
}

func (a *authority) cutOff(is bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.deaf = is
}

// shelf is a home log in memory. What it was given waits until it is let go.
type shelf struct {
	regions.HomeLog
	held chan func(regions.Stored)
}

func (s *shelf) ID() api.LogID { return orders }

func (s *shelf) Append(_ regions.Draft, done func(regions.Stored)) { s.held <- done }

// rig is a region whose one log may move.
type rig struct {
	t         *testing.T
	cfg       placer.Config
	authority *authority
	placer    *placer.Placer
	shelf     *shelf
	log       regions.HomeLog
	mu        sync.Mutex
	boot      time.Duration
	wall      time.Time
}

func (r *rig) pass(d, skew time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.boot, r.wall = r.boot+d, r.wall.Add(d+skew)
}

func newRig(t *testing.T, isolation placement.Isolation, fenceAfter time.Duration) *rig {
	t.Helper()
	f, err := regions.ParseManifest("federation.yaml", []byte(manifest))
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{t: t, authority: newAuthority(t), shelf: &shelf{held: make(chan func(regions.Stored), 1)}, boot: time.Hour, wall: time.Unix(1_800_000_000, 0)}
	clock := func(read func()) { r.mu.Lock(); defer r.mu.Unlock(); read() }
	r.cfg = placer.Config{
		Self: "here", Federation: f, Names: filepath.Join(t.TempDir(), "names"), Pace: 0.25, Log: slog.New(slog.DiscardHandler),
		Terms: func(api.LogID) (placement.Terms, error) {
			return placement.Terms{Allowed: []string{"here", "there"}, Targets: []string{"there"}, Mode: placement.Manual,
				Isolation: isolation, FenceAfter: fenceAfter, Digest: "d"}, nil
		},
		Boot: func() (d time.Duration) { clock(func() { d = r.boot }); return d },
		Wall: func() (w time.Time) { clock(func() { w = r.wall }); return w },
	}
	if r.placer, err = placer.New(r.cfg, nil); err != nil {
		t.Fatal(err)
	}
	r.log = r.placer.Leased(r.shelf, "inc", api.StaticEpoch("here"))
	t.Cleanup(r.placer.Detach)
	return r
}

// reopened is the region's placer after a restart.
func (r *rig) reopened() *placer.Placer {
	r.t.Helper()
	p, err := placer.New(r.cfg, nil)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(p.Detach)
	return p
}

// retired waits until the authority has let go of an incarnation.
func (r *rig) retired(incarnation string) {
	r.t.Helper()
	deadline := time.After(30 * time.Second)
	for {
		r.authority.mu.Lock()
		_, there := r.authority.state.Log(incarnation)
		told := r.authority.told
		r.authority.mu.Unlock()
		if !there {
			return
		}
		select {
		case <-told:
		case <-deadline:
			r.t.Fatalf("%s is still placed", incarnation)
		}
	}
}

// append has a record stored, and during, unless nil, happen before that is told.
func (r *rig) append(during func()) regions.Stored {
	r.t.Helper()
	told := make(chan regions.Stored, 1)
	r.log.Append(regions.Draft{}, func(s regions.Stored) { told <- s })
	select {
	case s := <-told:
		return s
	case done := <-r.shelf.held:
		if during != nil {
			during()
		}
		done(regions.Stored{})
		return <-told
	}
}

func (r *rig) until(what string, ok func(regions.Stored) bool) {
	r.t.Helper()
	deadline := time.After(30 * time.Second)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		s := r.append(nil)
		if ok(s) {
			return
		}
		select {
		case <-tick.C:
		case <-deadline:
			r.t.Fatalf("%s: %+v", what, s)
		}
	}
}

func code(c api.Code) func(regions.Stored) bool {
	return func(s regions.Stored) bool { return api.CodeOf(s.Err) == c }
}

func stored(s regions.Stored) bool { return s.Err == nil }

// Until the authority has the log, nobody may write it.
func TestR14g_NothingIsTakenBeforeTheAuthorityHasTheLog(t *testing.T) {
	r := newRig(t, placement.Accept, 0)
	r.authority.cutOff(true)
	r.placer.Attach(r.authority)
	r.placer.Opened(orders, "inc", api.StaticEpoch("here"))
	if s := r.append(nil); api.CodeOf(s.Err) != api.NotReady {
		t.Fatalf("undeclared: %+v", s)
	}
	r.authority.cutOff(false)
	r.until("declared", stored)
	if l, ok := r.placer.Log(orders); !ok || l.Home != "here" || l.Terms.Digest != "d" {
		t.Errorf("placed: %+v %v", l, ok)
	}
}

// S07: whoever stood still past the end of the lease between storing and answering must
// not say stored; a moment before that it may.
func TestS07_NoAckAfterTheLease(t *testing.T) {
	r := newRig(t, placement.FenceAfter, 15*time.Second)
	r.placer.Attach(r.authority)
	r.placer.Opened(orders, "inc", api.StaticEpoch("here"))
	r.until("leased", stored)
	r.authority.cutOff(true)
	quarter := func(d time.Duration) time.Duration { return d / 4 } // the pace
	if s := r.append(func() { r.pass(quarter(14*time.Second), 0) }); s.Err != nil || s.Unconfirmed {
		t.Fatalf("within the lease: %+v", s)
	}
	if s := r.append(func() { r.pass(quarter(2*time.Second), 0) }); api.CodeOf(s.Err) != api.OutcomeUnknown {
		t.Fatalf("the lease ended while the record was being stored: %+v", s)
	}
	if s := r.append(nil); api.CodeOf(s.Err) != api.Fenced {
		t.Fatalf("after the lease: %+v", s)
	}
	r.authority.cutOff(false)
	r.until("renewed", stored)
}

// S22: a step of the wall clock ends no lease early by more than the drop that is due, and
// prolongs none.
func TestS22_AClockStepProlongsNoLease(t *testing.T) {
	r := newRig(t, placement.FenceAfter, 15*time.Second)
	r.placer.Attach(r.authority)
	r.placer.Opened(orders, "inc", api.StaticEpoch("here"))
	r.until("leased", stored)
	r.authority.cutOff(true)
	r.pass(time.Second, -10*time.Minute)
	if s := r.append(nil); api.CodeOf(s.Err) != api.Fenced {
		t.Fatalf("the clocks moved apart: %+v", s)
	}
	r.authority.cutOff(false)
	r.until("renewed after the step", stored)
}

// A log that goes on while its region is cut off says so in each ack, and stops at the
// first word of another home.
func TestR14g_AcceptSaysUnconfirmedAndStopsAtFirstContact(t *testing.T) {
	r := newRig(t, placement.Accept, 0)
	r.placer.Attach(r.authority)
	r.placer.Opened(orders, "inc", api.StaticEpoch("here"))
	r.until("confirmed", func(s regions.Stored) bool { return stored(s) && !s.Unconfirmed })
	r.authority.cutOff(true)
	r.pass(time.Minute, 0)
	if s := r.append(nil); s.Err != nil || !s.Unconfirmed {
		t.Fatalf("cut off: %+v", s)
	}
	r.authority.cutOff(false)
	r.until("back", func(s regions.Stored) bool { return stored(s) && !s.Unconfirmed })
	if s := r.append(func() { r.moveAway() }); api.CodeOf(s.Err) != api.OutcomeUnknown {
		t.Fatalf("moved while it was being stored: %+v", s)
	}
	r.until("superseded", code(api.Fenced))
}

// moveAway has the log forced to the other region, and waits until the placer knows.
func (r *rig) moveAway() {
	zero, none := time.Duration(0), uint64(0)
	at := api.StaticEpoch("here")
	base := placement.Command{Log: "inc", Expect: at, Op: "op", Region: "there", Actor: "x", Reason: "test", Plan: "p"}
	step := func(change func(*placement.Command)) {
		c := base
		change(&c)
		if c.ID == "" {
			c.ID = string(c.Verb)
		}
		r.authority.must(c)
	}
	step(func(c *placement.Command) {
		c.Verb, c.ID, c.Op = placement.Begin, "op", ""
		c.Move = &placement.Move{Kind: placement.Forced, Target: "there", TargetDigest: "d", Divergent: true, Accepted: placement.Loss{Span: &zero, Records: &none}}
	})
	step(func(c *placement.Command) {
		c.Verb, c.Proof = placement.Prove, &placement.Proof{Kind: placement.Diverges}
	})
	step(func(c *placement.Command) { c.Verb, c.Point = placement.FixCut, &placement.Point{} })
	step(func(c *placement.Command) {
		c.Verb, c.Point, c.Lost = placement.Frozen, &placement.Point{}, &placement.Loss{Span: &zero, Records: &none}
	})
	step(func(c *placement.Command) { c.Verb = placement.Flip })
	deadline := time.After(30 * time.Second)
	for {
		placed, changed := r.placer.Placements()
		if placed[orders].Home == "there" {
			return
		}
		select {
		case <-changed:
		case <-deadline:
			r.t.Error(errors.New("the placer does not hear of the flip"))
			return
		}
	}
}

// R14g: the region knows of a later authority from before its last start, and only the one
// before that answers: its answers renew no lease.
func TestR14g_AnOvertakenAuthorityRenewsNothing(t *testing.T) {
	r := newRig(t, placement.FenceAfter, 15*time.Second)
	r.placer.Attach(r.authority)
	r.placer.Opened(orders, "inc", api.StaticEpoch("here"))
	r.until("leased", stored)
	r.placer.Detach()
	r.authority.mu.Lock()
	cache, err := r.authority.state.Snapshot()
	r.authority.mu.Unlock()
	if err != nil {
		t.Fatal(err)
	}
	later := &placement.State{}
	if _, err := later.Apply(1, placement.Command{Verb: placement.Found, ID: "anew", Actor: "a", Reason: "r", Founding: &placement.Founding{Authority: "B", Region: "there", Cache: cache},
		Approvals: []placement.Approval{{Actor: "b", Role: "incident"}, {Actor: "c", Role: "incident"}}}); err != nil {
		t.Fatal(err)
	}
	p, err := placer.New(r.cfg, later)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Detach)
	r.placer, r.log = p, p.Leased(r.shelf, "inc", api.StaticEpoch("here"))
	p.Attach(r.authority)
	p.Opened(orders, "inc", api.StaticEpoch("here"))
	for range 3 { // renewals, of which two were taken in
		r.authority.renewed(t)
	}
	if s := r.append(nil); api.CodeOf(s.Err) != api.Fenced {
		t.Errorf("written by the leave of an overtaken authority: %+v", s)
	}
}

// renewed waits for the next renewal.
func (a *authority) renewed(t *testing.T) {
	t.Helper()
	a.mu.Lock()
	before := a.state.Renewed("here")
	a.mu.Unlock()
	for deadline := time.After(30 * time.Second); ; {
		a.mu.Lock()
		now, told := a.state.Renewed("here"), a.told
		a.mu.Unlock()
		if now != before {
			return
		}
		select {
		case <-told:
		case <-deadline:
			t.Fatal("nothing is renewed")
		}
	}
}
