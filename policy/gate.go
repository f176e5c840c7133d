package policy

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	"domicile/api"
	"domicile/regions"
)

// Hooks break one mechanism each, so that a test or a self-check can see that it is
// that mechanism which holds. They are set from Go code only.
type Hooks struct {
	ForceAllow  bool // the rules' verdict reads as allow: the floor alone must refuse
	SkipFloor   bool // the floor under the rules is not checked at call time
	SkipEgress  bool // everything may leave
	SkipIngress bool // everything that arrives may rest
}

// Gate is where a region asks its policy. It holds the active generation and knows
// who still works with an older one. It is safe for concurrent use.
type Gate struct {
	federation *regions.Federation
	self       string
	hooks      atomic.Pointer[Hooks] // nil: none
	current    atomic.Pointer[held]
	noPolicy   *api.Error // answers while no policy is active
	counts     bool       // generations count what is asked of them

	mu    sync.Mutex // one flip at a time; guards older
	older []*held    // retired, with passes still out
}

// held is a generation and the passes that are out on it.
type held struct {
	gen     *Generation     // nil: no policy
	asked   []atomic.Uint64 // by cell, since the last Drain; nil: the gate does not count
	passes  atomic.Int64
	retired atomic.Bool
	once    sync.Once
	drained chan struct{} // closed once it is retired and its last pass has left
}

func hold(g *Generation, counts bool) *held {
	h := &held{gen: g, drained: make(chan struct{})}
	if counts && g != nil {
		h.asked = make([]atomic.Uint64, len(g.table))
	}
	return h
}

func (h *held) leave() {
	if h.passes.Add(-1) == 0 && h.retired.Load() {
		h.finish()
	}
}

func (h *held) finish() { h.once.Do(func() { close(h.drained) }) }

// NewGate is the gate of region self, with no policy active: everything is refused
// with PolicyUnavailable until Activate.
func NewGate(f *regions.Federation, self string, hooks Hooks) *Gate {
	g := &Gate{federation: f, self: self, noPolicy: &api.Error{Code: api.PolicyUnavailable, Op: "ask policy", Region: self,
		Hint: "no policy is active in this region; domicile status says why, domicile policy check tells what is wrong with a directory"}}
	g.current.Store(hold(nil, false))
	g.SetHooks(hooks)
	return g
}

// SetHooks replaces the hooks, for passes already out as well.
func (g *Gate) SetHooks(h Hooks) {
	if h == (Hooks{}) {
		g.hooks.Store(nil)
		return
	}
	g.hooks.Store(&h)
}

// Current is the active generation, nil while there is none.
func (g *Gate) Current() *Generation { return g.current.Load().gen }

// Activate makes a generation the active one by one pointer store, and returns when
// every pass on an older generation has left: what was judged under the old policy
// is durable or refused by then. It refuses, changing nothing, a serial lower than
// the active one, the same serial with other contents, and a generation that was
// judged for another manifest (ConfigInvalid). If ctx ends first the flip stands and
// the error (NotReady) says how many passes are still out; calling it again with the
// same generation waits on.
func (g *Gate) Activate(ctx context.Context, next *Generation) error {
	return g.Adopt(ctx, next, nil)
}

// Adopt is Activate for a generation that was judged for another manifest: manifest is
// put in force with it, in one step, for everyone who holds the gate's federation. The
// generation may then have the serial and the contents of the active one. nil: the
// manifest in force stays.
func (g *Gate) Adopt(ctx context.Context, next *Generation, manifest *regions.Federation) error {
	older, err := g.flip(next, manifest)
	if err != nil {
		return err
	}
	for _, h := range older {
		select {
		case <-h.drained:
		case <-ctx.Done():
			out := g.Out()
			if out == 0 {
				continue
			}
			return &api.Error{Code: api.NotReady, Op: "activate policy", Revision: next.Revision, Err: ctx.Err(),
				Hint: fmt.Sprintf("the policy is active; %d hand-overs judged under an older one are not finished yet", out)}
		}
	}
	return nil
}

// flip stores the generation and returns those whose passes are still to be waited for.
func (g *Gate) flip(next *Generation, manifest *regions.Federation) ([]*held, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	old := g.current.Load()
	if manifest == nil {
		manifest = g.federation
	}
	if err := checkNext(old.gen, next, manifest); err != nil {
		return nil, err
	}
	if old.gen == nil || old.gen.Serial != next.Serial || old.gen.Step != next.Step || old.gen.manifest != next.manifest {
		if manifest != g.federation {
			g.federation.Replace(manifest)
		}
		g.current.Store(hold(next, g.counts))
		old.retired.Store(true)
		// Enter counts itself in before it looks at current again, so a pass that
		// this look misses sees the new generation and backs out.
		if old.passes.Load() == 0 {
			old.finish()
		}
		g.older = append(g.older, old)
	}
	g.prune()
	return append([]*held(nil), g.older...), nil
}

// Check is what Adopt would refuse.
func (g *Gate) Check(next *Generation, manifest *regions.Federation) error {
	return checkNext(g.Current(), next, manifest)
}

func checkNext(now, next *Generation, manifest *regions.Federation) error {
	refuse := func(field, value, hint string) error {
		return &api.Error{Code: api.ConfigInvalid, Op: "activate policy", Field: field, Value: value, Hint: hint}
	}
	switch {
	case next == nil:
		return refuse("policy", "", "there is no generation to activate")
	case next.manifest != manifest.Digest():
		return refuse("manifest", next.manifest, "the policy was judged for another manifest: load it again")
	case now == nil:
		return nil
	case next.Serial < now.Serial:
		return refuse("serial", fmt.Sprint(next.Serial), "revision "+now.Revision+" is active: raise serial in catalog.yaml, also to go back to older rules")
	case next.Serial == now.Serial && next.Step < now.Step:
		return refuse("serial", next.Revision, "revision "+now.Revision+" is active: time does not go back")
	case next.Serial == now.Serial && next.Digest != now.Digest:
		return refuse("serial", fmt.Sprint(next.Serial), "revision "+now.Revision+" has the same serial and other contents: raise serial in catalog.yaml with every change")
	}
	return nil
}

// prune forgets generations that nobody works with any more. The caller holds mu.
func (g *Gate) prune() {
	kept := g.older[:0]
	for _, h := range g.older {
		select {
		case <-h.drained:
			if h.counted() {
				kept = append(kept, h) // until Drain has been here
			}
		default:
			kept = append(kept, h)
		}
	}
	clear(g.older[len(kept):])
	g.older = kept
}

// Out is how many passes on older generations are still out.
func (g *Gate) Out() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	n := int64(0)
	for _, h := range g.older {
		n += h.passes.Load()
	}
	return int(n)
}

// Enter pins the active generation for one piece of work: judge, hand over, and
// Leave when the outcome is known. It never returns nil and never blocks.
func (g *Gate) Enter() *Pass {
	for {
		h := g.current.Load()
		h.passes.Add(1)
		if g.current.Load() == h {
			return &Pass{gate: g, held: h}
		}
		h.leave()
	}
}
