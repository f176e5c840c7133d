package regions_test

import (
	"testing"

	"pgregory.net/rapid"

	"domicile/regions"
)

// RT2, B50: whatever the classes take and give back, the bound holds, one that has nothing is
// let in while there is room at all, and one that takes all it can get leaves a third.
func TestRT2_SharesOfABound(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const most = 3000
		s, own := regions.NewShares(most), map[string]int{}
		for range 300 {
			class := rapid.SampledFrom([]string{"a", "b", "c", "d"}).Draw(t, "class")
			n := rapid.IntRange(1, 40).Draw(t, "n")
			switch room := s.Room(class, n); {
			case rapid.Bool().Draw(t, "back") && own[class] >= n:
				s.Back(class, n)
				own[class] -= n
			case room:
				s.Take(class, n)
				own[class] += n
			case own[class] == 0 && s.Held()+n <= most:
				t.Fatalf("%d of %d are held, and %s, which has none, is not let in with %d", s.Held(), most, class, n)
			}
			if s.Held() > most {
				t.Fatalf("%d of %d are held", s.Held(), most)
			}
		}
	})
	s := regions.NewShares(3000)
	for s.Room("flood", 1) {
		s.Take("flood", 1)
	}
	if s.Held() != 2000 || !s.Room("quiet", 1) {
		t.Errorf("a flood alone holds %d of 3000", s.Held())
	}
}

// RT2: classes are served in turn, and each in its own order.
func TestRT2_ClassesTakeTurns(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		type value struct {
			class string
			n     int
		}
		var q regions.Turns[value]
		pushed, popped, waits := map[string]int{}, map[string]int{}, map[string]int{}
		t.Repeat(map[string]func(*rapid.T){
			"push": func(t *rapid.T) {
				class := rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "class")
				q.Push(class, value{class, pushed[class]})
				pushed[class]++
			},
			"pop": func(t *rapid.T) {
				next, _ := q.Next()
				v, ok := q.Pop()
				if !ok {
					t.Skip("nothing waits")
				}
				if v != next || v.n != popped[v.class] {
					t.Fatalf("%+v came, after %d of its class", v, popped[v.class])
				}
				popped[v.class]++
				waits[v.class] = 0
				for class := range pushed {
					if class != v.class && pushed[class] > popped[class] {
						if waits[class]++; waits[class] > len(pushed) {
							t.Fatalf("%s has waited for %d others", class, waits[class])
						}
					}
				}
			},
			"": func(t *rapid.T) {
				sum := 0
				for class := range pushed {
					sum += pushed[class] - popped[class]
				}
				if q.Len() != sum {
					t.Fatalf("%d values wait, want %d", q.Len(), sum)
				}
			},
		})
		q.Drop(func(v value) bool { return v.n%2 == 0 })
		for v, ok := q.Pop(); ok; v, ok = q.Pop() {
			if v.n%2 == 0 {
				t.Fatalf("%+v was dropped", v)
			}
		}
	})
}
