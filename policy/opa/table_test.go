package opa

import (
	"context"
	"math/rand/v2"
	"os"
	"reflect"
	"testing"

	"domicile/policy"
)

// The table answers what the rules answer, for questions at random: all that lies between
// is the floor, which may only take away. A million with DOMICILE_LONG.
func TestR14b_TableIsWhatTheRulesSay(t *testing.T) {
	p, f := loaded(t)
	var questions []policy.Question
	for q := range p.Generation.All() {
		questions = append(questions, q)
	}
	n := 2_000
	if os.Getenv("DOMICILE_LONG") != "" {
		n = 1_000_000
	}
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 0))
	for range n {
		q := questions[r.IntN(len(questions))]
		d, err := p.Generation.Ask(q)
		if err != nil {
			t.Fatal(err)
		}
		v, err := p.judge.ask(context.Background(), q)
		if err != nil {
			t.Fatal(err)
		}
		if d.Allow != v.Allow {
			t.Fatalf("seed %d: %s: the table says %v, the rules %v", seed, q, d.Allow, v.Allow)
		}
		if d.Allow && q.Point == policy.Admit && (d.Destination != v.Destination || !sameWords(d.Regions, v.Regions)) {
			t.Fatalf("seed %d: %s: the table says %v %q, the rules %v %q", seed, q, d.Regions, d.Destination, v.Regions, v.Destination)
		}
		for _, region := range d.Regions {
			if q.Point == policy.Admit && !f.MayRest(q.Tags[1].Value, region) {
				t.Fatalf("%s rests in %s", q, region)
			}
		}
	}
}

func sameWords(a, b []string) bool {
	set := func(words []string) map[string]bool {
		m := map[string]bool{}
		for _, w := range words {
			m[w] = true
		}
		return m
	}
	return reflect.DeepEqual(set(a), set(b))
}
