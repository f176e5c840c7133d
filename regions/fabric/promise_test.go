package fabric

import (
	"testing"

	"pgregory.net/rapid"
)

// node is a node of the model: its word, which survives, and what it does as a holder.
type modelNode struct {
	word   promise
	term   uint64          // of the seat it believes to hold; 0: none
	given  map[int]promise // answers it got under that term
	start  int64           // no stamp of its own is before it
	closed int64           // the highest instant it called closed
	clock  int64
}

// Three nodes with clocks of their own, holders that are replaced without knowing it, and
// answers that come late or never: no record is ever stamped before an instant that any
// holder of a lower term has called closed.
func TestR14d_ClosedInstantsHoldAcrossTakeovers(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		nodes := make([]*modelNode, 3)
		for i := range nodes {
			nodes[i] = &modelNode{given: map[int]promise{}, clock: rapid.Int64Range(0, 100).Draw(t, "clock")}
		}
		var last uint64
		closedUnder := map[uint64]int64{} // by term
		ask := func(holder, other int, floor int64) {
			h, o := nodes[holder], nodes[other]
			if o.word.give(h.term, floor) {
				h.given[other] = o.word
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"time passes": func(t *rapid.T) {
				nodes[rapid.IntRange(0, 2).Draw(t, "node")].clock += rapid.Int64Range(1, 50).Draw(t, "by")
			},
			"a node takes the seat": func(t *rapid.T) {
				i := rapid.IntRange(0, 2).Draw(t, "node")
				n := nodes[i]
				last++ // the control stream gives each term once
				heard := rapid.SliceOfNDistinct(rapid.IntRange(0, 2), 0, 3, rapid.ID[int]).Draw(t, "heard")
				n.term, n.given = last, map[int]promise{}
				for _, other := range heard {
					ask(i, other, 0)
				}
				ask(i, i, 0)
				if len(n.given) < 2 {
					n.term = 0
					return
				}
				n.start = n.clock
				for _, p := range n.given {
					n.start = max(n.start, p.Floor)
				}
			},
			"a holder closes an instant": func(t *rapid.T) {
				i := rapid.IntRange(0, 2).Draw(t, "node")
				n := nodes[i]
				if n.term == 0 {
					return
				}
				floor := max(n.clock, n.start)
				for _, other := range rapid.SliceOfNDistinct(rapid.IntRange(0, 2), 0, 3, rapid.ID[int]).Draw(t, "heard") {
					ask(i, other, floor)
				}
				var floors []int64
				for _, p := range n.given {
					floors = append(floors, p.Floor)
				}
				if to, ok := promised(floors, 3); ok {
					n.closed = max(n.closed, min(to, floor))
					closedUnder[n.term] = max(closedUnder[n.term], n.closed)
					n.start = max(n.start, n.closed)
				}
			},
			"": func(t *rapid.T) {
				for _, n := range nodes {
					if n.term == 0 {
						continue
					}
					for term, closed := range closedUnder {
						if stamp := max(n.clock, n.start); term < n.term && stamp < closed {
							t.Fatalf("term %d stamps %d, term %d had closed %d", n.term, stamp, term, closed)
						}
					}
				}
			},
		})
	})
}

// A node's word outlives it: after an unclean end it stands by at least what it gave.
func TestR14d_PromisesSurviveTheirNode(t *testing.T) {
	dir := t.TempDir()
	p, err := openPromises(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []promise{{1, 100}, {2, 50}, {2, 5e9}, {2, 5e9 + 10}} {
		if _, ok, err := p.give(c.Term, c.Floor); !ok || err != nil {
			t.Fatal(ok, err)
		}
	}
	again, err := openPromises(dir)
	if err != nil {
		t.Fatal(err)
	}
	if now := again.get(); now.Term != 2 || now.Floor < 5e9+10 {
		t.Fatalf("%+v", now)
	}
	if _, ok, _ := again.give(1, 1e12); ok {
		t.Fatal("a holder that was replaced got a promise")
	}
	if err := p.settle(); err != nil {
		t.Fatal(err)
	}
	if clean, err := openPromises(dir); err != nil || clean.get() != (promise{2, 5e9 + 10}) {
		t.Fatalf("%+v %v", clean.get(), err)
	}
}
