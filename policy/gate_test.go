package policy_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"domicile/api"
	"domicile/policy"
)

func TestR14b_WithoutPolicyEverythingIsRefused(t *testing.T) {
	f := federation(t)
	g := policy.NewGate(f, "eu-west", policy.Hooks{ForceAllow: true, SkipFloor: true})
	if g.Current() != nil {
		t.Error("a policy is active")
	}
	p := g.Enter()
	defer p.Leave()
	r := order("global")
	_, err := p.Admit(r, app("eu-west"), "eu-west")
	for _, err := range []error{err, p.Transit(r, app("eu-west")), p.Egress(r, "eu-west", "us-east"),
		p.Ingress(r, "us-east", "eu-west"), p.Consume(r, app("eu-west"), "eu-west")} {
		wantCode(t, err, api.PolicyUnavailable)
	}
	if p.Serial() != 0 || p.Revision() != "" || p.Generation() != nil || p.Stale() {
		t.Error("the pass claims a generation")
	}
}

func TestActivate_RefusesWhatWouldGoBack(t *testing.T) {
	f := federation(t)
	g := gate(t, f, "eu-west", policy.Hooks{}, build(t, f, 5, "five", denyAll))
	ctx := context.Background()
	wantCode(t, g.Activate(ctx, nil), api.ConfigInvalid)
	wantCode(t, g.Activate(ctx, build(t, f, 4, "four", denyAll)), api.ConfigInvalid)
	e := wantCode(t, g.Activate(ctx, build(t, f, 5, "other", denyAll)), api.ConfigInvalid)
	if e.Field != "serial" || !strings.Contains(e.Hint, "5-five") {
		t.Errorf("got %v", e)
	}
	wantCode(t, g.Activate(ctx, build(t, f, 5, "five", denyAll)), "")
	if g.Current().Revision != "5-five" {
		t.Errorf("active: %s", g.Current().Revision)
	}
	wantCode(t, g.Activate(ctx, build(t, f, 6, "five", denyAll)), "")
	if g.Current().Serial != 6 {
		t.Errorf("active: %s", g.Current().Revision)
	}
}

func TestActivate_RefusesAnotherManifest(t *testing.T) {
	f := federation(t)
	other := federationOf(t, strings.Replace(manifestText, "us: [us-east]", "us: [us-east, nowhere]", 1))
	g := policy.NewGate(f, "eu-west", policy.Hooks{})
	e := wantCode(t, g.Activate(context.Background(), build(t, other, 1, "d", denyAll)), api.ConfigInvalid)
	if e.Field != "manifest" || g.Current() != nil {
		t.Errorf("got %v", e)
	}
}

func TestActivate_WaitsForOlderPasses(t *testing.T) {
	f := federation(t)
	g := gate(t, f, "eu-west", policy.Hooks{}, build(t, f, 1, "one", allowAll(f)))
	pass, second := g.Enter(), g.Enter()
	next := build(t, f, 2, "two", denyAll)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	err := g.Activate(ctx, next)
	wantCode(t, err, api.NotReady)
	if !strings.Contains(err.Error(), "2 hand-overs") || g.Out() != 2 {
		t.Errorf("got %v, out %d", err, g.Out())
	}
	if g.Current() != next || !pass.Stale() || pass.Serial() != 1 {
		t.Error("the flip did not stand")
	}
	// A generation later the first one's passes still count.
	done := make(chan error, 1)
	go func() { done <- g.Activate(context.Background(), build(t, f, 3, "three", denyAll)) }()
	waitFor(t, func() bool { return g.Current().Serial == 3 })
	pass.Leave()
	pass.Leave() // once is enough, twice is harmless
	select {
	case err := <-done:
		t.Fatalf("returned with a pass out: %v", err)
	default:
	}
	second.Leave()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if g.Out() != 0 {
		t.Errorf("%d still out", g.Out())
	}
}

// After Activate returns no pass of an older generation is alive, under load.
func TestActivate_FencesOlderGenerations(t *testing.T) {
	f := federation(t)
	one := build(t, f, 1, "one", allowAll(f))
	g := gate(t, f, "eu-west", policy.Hooks{}, one)
	var floor atomic.Int64 // no pass below this serial may be alive
	floor.Store(1)
	stop := make(chan struct{})
	var workers sync.WaitGroup
	for range 4 {
		workers.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				p := g.Enter()
				_ = p.Egress(order("eu"), "eu-west", "us-east")
				if p.Serial() < floor.Load() {
					t.Errorf("a pass of serial %d is alive after %d was activated", p.Serial(), floor.Load())
				}
				p.Leave()
			}
		})
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	for serial := int64(2); serial <= 25; serial++ {
		next := build(t, f, serial, fmt.Sprint(serial), denyAll)
		if err := g.Activate(ctx, next); err != nil {
			t.Fatal(err)
		}
		floor.Store(serial)
	}
	close(stop)
	workers.Wait()
}

func waitFor(t *testing.T, ok func() bool) {
	t.Helper()
	deadline := time.NewTimer(5 * time.Second)
	defer deadline.Stop()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-deadline.C:
			t.Fatal("it did not happen in time")
		}
	}
}

// TestAdopt_PutsPolicyAndManifestInForceTogether: a generation judged for another
// manifest comes with it or not at all, also when serial and rules are the same.
func TestAdopt_PutsPolicyAndManifestInForceTogether(t *testing.T) {
	f := federation(t)
	next := federationOf(t, strings.Replace(manifestText, "    mirror: [all]\n", "    mirror: [us-east]\n", 1))
	g := gate(t, f, "eu-west", policy.Hooks{}, build(t, f, 2, "aaaaaaaa", allowAll(f)))
	before := f.Digest()
	for name, bad := range map[string]*policy.Generation{
		"of the old manifest":  build(t, f, 3, "bbbbbbbb", allowAll(f)),
		"of a lower serial":    build(t, next, 1, "cccccccc", allowAll(next)),
		"with other contents":  build(t, next, 2, "dddddddd", allowAll(next)),
		"without a generation": nil,
	} {
		if err := g.Adopt(context.Background(), bad, next); api.CodeOf(err) != api.ConfigInvalid || g.Check(bad, next) == nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if f.Digest() != before || g.Current().Serial != 2 {
		t.Fatal("a refusal changed something")
	}
	same := build(t, next, 2, "aaaaaaaa", allowAll(next))
	if err := g.Adopt(context.Background(), same, next); err != nil {
		t.Fatal(err)
	}
	if f.Digest() != next.Digest() || g.Current() != same {
		t.Fatalf("manifest %s, want %s; generation adopted: %v", f.Digest(), next.Digest(), g.Current() == same)
	}
	if err := g.Activate(context.Background(), build(t, f, 3, "eeeeeeee", allowAll(f))); err != nil {
		t.Fatalf("a later policy for the new manifest: %v", err)
	}
}
