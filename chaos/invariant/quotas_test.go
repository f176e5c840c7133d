package invariant

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// The longest excess over all stretches is what trying every stretch finds.
func TestRT2_EveryStretchIsJudged(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const rate = 3
		var list []taken
		for range rapid.IntRange(1, 20).Draw(t, "n") {
			from := time.Duration(rapid.IntRange(0, 5000).Draw(t, "from")) * time.Millisecond
			list = append(list, taken{from, from + time.Duration(rapid.IntRange(0, 2000).Draw(t, "for"))*time.Millisecond, float64(rapid.IntRange(1, 4).Draw(t, "k"))})
		}
		var fresh []time.Duration
		for range rapid.IntRange(0, 2).Draw(t, "fresh") {
			fresh = append(fresh, time.Duration(rapid.IntRange(0, 5000).Draw(t, "at"))*time.Millisecond)
		}
		want := 0.0
		for _, s := range list {
			for _, e := range list {
				if e.to < s.from {
					continue
				}
				over := -rate * (e.to - s.from).Seconds()
				for _, x := range list {
					if x.from >= s.from && x.to <= e.to {
						over += x.n
					}
				}
				for _, at := range fresh {
					if at >= s.from && at <= e.to {
						over -= rate
					}
				}
				want = max(want, over)
			}
		}
		if got, _ := beyond(list, fresh, rate); math.Abs(got-want) > 1e-6 {
			t.Fatalf("%v, want %v: %v %v", got, want, list, fresh)
		}
	})
}
