package policy_test

import (
	"context"
	"fmt"
	"hash/fnv"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"domicile/api"
	"domicile/policy"
	"domicile/regions"
)

// randomJudge answers every question at random, but the same way each time.
func randomJudge(f *regions.Federation, seed uint64) policy.Judge {
	return func(_ context.Context, q policy.Question) (policy.Verdict, error) {
		h := fnv.New64a()
		fmt.Fprintf(h, "%d %s", seed, q)
		n := h.Sum64()
		v := policy.Verdict{Allow: n&1 == 1, Reasons: because(policy.ReasonPermitted)}
		for i, r := range f.Regions() {
			if n>>(i+1)&1 == 1 || r == q.Target || v.Allow && q.Point == policy.Admit {
				v.Regions = append(v.Regions, r)
			}
		}
		if v.Allow && q.Point == policy.Admit {
			v.Destination = f.Floor(residency(q))[0]
		}
		return v, nil
	}
}

// Whatever the rules say, no answer of the gate reaches outside a record's boundary.
func TestR14b_PolicyNeverWidensTheFloor(t *testing.T) {
	f := federation(t)
	small := catalog(1)
	small.Classes = []string{"app"}
	small.Topics["orders"].Allow[0]["leg"] = []string{"home"}
	rapid.Check(t, func(t *rapid.T) {
		g, err := policy.Build(context.Background(), small, f, "d", randomJudge(f, rapid.Uint64().Draw(t, "rules")))
		if err != nil {
			t.Fatal(err)
		}
		hooks := policy.Hooks{ForceAllow: rapid.Bool().Draw(t, "force")}
		for _, self := range f.Regions() {
			gate := policy.NewGate(f, self, hooks)
			if err := gate.Activate(context.Background(), g); err != nil {
				t.Fatal(err)
			}
			checkFloor(t, f, gate, self)
		}
	})
}

func checkFloor(t *rapid.T, f *regions.Federation, gate *policy.Gate, self string) {
	p := gate.Enter()
	defer p.Leave()
	for _, residency := range []string{"eu", "us", "global"} {
		r := order(residency)
		for _, other := range f.Regions() {
			if a, err := p.Admit(r, app(other), other); err == nil {
				for _, region := range append(slices.Clone(a.Regions), a.Destination) {
					if region != "" && !f.MayRest(residency, region) {
						t.Fatalf("%s published in %s may rest in %s", residency, other, region)
					}
				}
			}
			if p.Egress(r, self, other) == nil && !f.MayRest(residency, other) {
				t.Fatalf("%s leaves %s for %s", residency, self, other)
			}
			if p.Ingress(r, other, self) == nil && !f.MayRest(residency, self) {
				t.Fatalf("%s from %s rests in %s", residency, other, self)
			}
			if p.Lawful(r, other) != f.MayRest(residency, other) {
				t.Fatalf("%s in %s is lawful: %v", residency, other, p.Lawful(r, other))
			}
			abroad := residency != regions.GlobalResidency && !f.MayRest(residency, other)
			if p.Consume(r, app(other), self) == nil && abroad {
				t.Fatalf("%s is read from %s", residency, other)
			}
			if p.Consume(r, app(""), self) == nil && residency != regions.GlobalResidency {
				t.Fatalf("%s is read by a reader without a place", residency)
			}
		}
	}
}

// Under rules that allow everything, one word outside the vocabulary still refuses.
func TestR14b_NothingUnknownIsEverAllowed(t *testing.T) {
	f := federation(t)
	g := build(t, f, 1, "d", allowAll(f))
	for _, hooks := range []policy.Hooks{{}, {ForceAllow: true, SkipFloor: true}} {
		p := gate(t, f, "eu-west", hooks, g).Enter()
		rapid.Check(t, func(t *rapid.T) {
			r := order("global")
			who := app("eu-west")
			origin, target := "eu-west", "us-east"
			odd := rapid.StringMatching(`(|EU|eu |Global|mars|none0|unknown|[\x{0430}-\x{044f}]{1,3})`).Draw(t, "odd")
			what := rapid.IntRange(0, 7).Draw(t, "what")
			switch what {
			case 0:
				r.Topic = odd
			case 1:
				r.Tags[rapid.IntRange(0, 2).Draw(t, "tag")].Value = odd
			case 2:
				r.Tags[rapid.IntRange(0, 2).Draw(t, "tag")].Name = odd
			case 3:
				i := rapid.IntRange(0, 2).Draw(t, "tag")
				r.Tags = slices.Delete(r.Tags, i, i+1)
			case 4:
				r.Tags = append(r.Tags, api.Tag{Name: odd, Value: "eu"})
			case 5:
				who.Class = odd
			case 6:
				who.Place = odd + "x"
			case 7:
				origin, target = odd, odd
			}
			if what != 5 && what != 6 {
				if p.Egress(r, origin, target) == nil || p.Ingress(r, origin, target) == nil {
					t.Fatalf("case %d with %q crosses", what, odd)
				}
			}
			_, err := p.Admit(r, who, origin)
			if err == nil || what != 7 && p.Transit(r, who) == nil || p.Consume(r, who, origin) == nil {
				t.Fatalf("case %d with %q is allowed", what, odd)
			}
		})
		p.Leave()
	}
}

// Each hook opens its own door and no other.
func TestHooks_BreakOneMechanismEach(t *testing.T) {
	f := federation(t)
	deny := build(t, f, 1, "d", denyAll)
	eu := order("eu")
	for _, c := range []struct {
		hooks           policy.Hooks
		egress, ingress bool // whether an EU record passes to us-east
	}{
		{policy.Hooks{}, false, false},
		{policy.Hooks{ForceAllow: true}, false, false}, // the floor alone holds
		{policy.Hooks{SkipFloor: true}, false, false},  // the rules alone hold
		{policy.Hooks{ForceAllow: true, SkipFloor: true}, true, true},
		{policy.Hooks{SkipEgress: true}, true, false},
		{policy.Hooks{SkipIngress: true}, false, true},
	} {
		g := gate(t, f, "us-east", policy.Hooks{}, deny)
		p := g.Enter()
		g.SetHooks(c.hooks)
		if got := p.Egress(eu, "eu-west", "us-east") == nil; got != c.egress {
			t.Errorf("%+v: egress passes: %v", c.hooks, got)
		}
		if got := p.Ingress(eu, "eu-west", "us-east") == nil; got != c.ingress {
			t.Errorf("%+v: ingress passes: %v", c.hooks, got)
		}
		g.SetHooks(policy.Hooks{})
		if p.Egress(eu, "eu-west", "us-east") == nil {
			t.Errorf("%+v: taken away, and still open", c.hooks)
		}
		p.Leave()
	}
}

func TestR14b_RefusalsNameTheRuleAndNothingOfTheRecord(t *testing.T) {
	f := federation(t)
	p := gate(t, f, "us-east", policy.Hooks{}, build(t, f, 7, "abcdefghij", denyAll)).Enter()
	defer p.Leave()
	r := order("eu")
	_, err := p.Admit(r, app("us-east"), "us-east")
	for code, errs := range map[api.Code][]error{
		api.ResidencyDenied: {err, p.Egress(r, "us-east", "eu-west"), p.Ingress(r, "eu-west", "us-east")},
		api.TransitDenied:   {p.Transit(r, app("us-east"))},
		api.ReadDenied:      {p.Consume(r, app("us-east"), "us-east")},
	} {
		for _, err := range errs {
			e := wantCode(t, err, code)
			if e.Revision != "7-abcdefgh" || e.Hint != "rule p/r: so it is written: D201_FORBIDDEN" || e.Reason != policy.ReasonForbidden || e.Rule != "p/r" || e.Topic != "orders" {
				t.Errorf("%+v", e)
			}
		}
	}
}

// What the data path asks for each record costs no allocation, allowed or refused.
func TestPass_AllocatesNothing(t *testing.T) {
	f := federation(t)
	for name, j := range map[string]policy.Judge{"allow": allowAll(f), "deny": denyAll} {
		p := gate(t, f, "eu-west", policy.Hooks{}, build(t, f, 1, "d", j)).Enter()
		r, who := order("eu"), app("eu-west")
		n := testing.AllocsPerRun(100, func() {
			_, _ = p.Admit(r, who, "eu-west")
			_ = p.Transit(r, who)
			_ = p.Egress(r, "eu-west", "us-east")
			_ = p.Egress(r, "eu-west", "eu-central")
			_ = p.Ingress(r, "us-east", "eu-west")
			_ = p.Consume(r, who, "eu-west")
		})
		if n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
		p.Leave()
	}
}

func BenchmarkLookup(b *testing.B) {
	f := federation(b)
	g := build(b, f, 1, "d", allowAll(f))
	var cells []policy.Cell
	for q := range g.All() {
		c, err := g.Cell(q)
		if err != nil {
			b.Fatal(err)
		}
		cells = append(cells, c)
	}
	b.ReportAllocs()
	i, allowed := 0, 0
	for b.Loop() {
		if g.Lookup(cells[i]).Allow {
			allowed++
		}
		if i++; i == len(cells) {
			i = 0
		}
	}
	if allowed == 0 {
		b.Fatal("nothing was allowed")
	}
}

// The whole question of a record: tags to cell, look-up, floor.
func BenchmarkPass_Egress(b *testing.B) {
	f := federation(b)
	p := gate(b, f, "eu-west", policy.Hooks{}, build(b, f, 1, "d", allowAll(f))).Enter()
	defer p.Leave()
	r := order("global")
	b.ReportAllocs()
	for b.Loop() {
		if err := p.Egress(r, "eu-west", "us-east"); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkPass_Admit(b *testing.B) {
	f := federation(b)
	p := gate(b, f, "us-east", policy.Hooks{}, build(b, f, 1, "d", allowAll(f))).Enter()
	defer p.Leave()
	r, who := order("eu"), app("us-east")
	b.ReportAllocs()
	for b.Loop() {
		if _, err := p.Admit(r, who, "us-east"); err != nil {
			b.Fatal(err)
		}
	}
}
