package policy_test

import (
	"context"
	"sync"
	"testing"

	"domicile/policy"
)

// Each question is counted once, whichever generation it was asked of, also while
// policies flip under load; nothing is counted twice and nothing is lost.
func TestRP3_EveryQuestionIsCountedOnce(t *testing.T) {
	f := federation(t)
	g := policy.NewGate(f, "eu-west", policy.Hooks{})
	g.Count()
	if err := g.Activate(context.Background(), build(t, f, 1, "1", allowAll(f))); err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	allowed, denied := uint64(0), uint64(0)
	drain := func() {
		g.Drain(func(q policy.Question, ok bool, n uint64) {
			mu.Lock()
			defer mu.Unlock()
			if q.Point != policy.MirrorEgress || q.Origin != "eu-west" || q.Target != "us-east" {
				t.Errorf("counted %s", q)
			}
			if ok {
				allowed += n
			} else {
				denied += n
			}
		})
	}
	const each, askers = 3_000, 4
	var asking sync.WaitGroup
	for range askers {
		asking.Go(func() {
			for range each {
				p := g.Enter()
				_ = p.Egress(order("global"), "eu-west", "us-east")
				_ = p.Egress(order("mars"), "eu-west", "us-east") // no cell stands for it
				p.Leave()
			}
		})
	}
	for serial := int64(2); serial <= 8; serial++ {
		j := allowAll(f)
		if serial%2 == 0 {
			j = denyAll
		}
		if err := g.Activate(context.Background(), build(t, f, serial, "x", j)); err != nil {
			t.Fatal(err)
		}
		drain()
	}
	asking.Wait()
	drain()
	drain()
	if allowed+denied != each*askers {
		t.Errorf("%d allowed and %d denied were counted, %d asked", allowed, denied, each*askers)
	}
	if g.Out() != 0 {
		t.Errorf("%d passes are out", g.Out())
	}
}

// A gate that was not told to count counts nothing, and one that does allocates nothing.
func TestRP3_CountingAllocatesNothing(t *testing.T) {
	f := federation(t)
	silent := gate(t, f, "eu-west", policy.Hooks{}, build(t, f, 1, "d", allowAll(f)))
	counting := policy.NewGate(f, "eu-west", policy.Hooks{})
	counting.Count()
	if err := counting.Activate(context.Background(), build(t, f, 1, "d", allowAll(f))); err != nil {
		t.Fatal(err)
	}
	for _, g := range []*policy.Gate{silent, counting} {
		p := g.Enter()
		r := order("eu")
		if n := testing.AllocsPerRun(100, func() { _, _ = p.Admit(r, app("eu-west"), "eu-west") }); n != 0 {
			t.Errorf("%v allocations", n)
		}
		p.Leave()
	}
	silent.Drain(func(q policy.Question, _ bool, n uint64) { t.Errorf("counted %s %d times", q, n) })
}

// BenchmarkFlip is how long a flip takes while nobody is on an older generation; those
// who ask are stopped for its pointer store alone.
func BenchmarkFlip(b *testing.B) {
	f := federation(b)
	generations := make([]*policy.Generation, 256)
	for i := range generations {
		generations[i] = build(b, f, int64(i+1), "d", denyAll)
	}
	for _, counts := range []bool{false, true} {
		b.Run(map[bool]string{false: "silent", true: "counting"}[counts], func(b *testing.B) {
			var g *policy.Gate
			for i := range b.N {
				if i%len(generations) == 0 {
					b.StopTimer()
					g = policy.NewGate(f, "eu-west", policy.Hooks{})
					if counts {
						g.Count()
					}
					b.StartTimer()
				}
				if err := g.Activate(context.Background(), generations[i%len(generations)]); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
