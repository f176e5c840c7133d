package fabric

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

// RT7: what two declarations keep together is never less than what either of them keeps,
// and what is noted of it is read back as it was.
func TestRT7_NothingIsKeptShorterByMerging(t *testing.T) {
	drawn := rapid.Custom(func(t *rapid.T) keeps {
		return keeps{time.Duration(rapid.SampledFrom([]int64{0, 1, 1e9, 1e15}).Draw(t, "age")), rapid.Int64Range(1, 1<<40).Draw(t, "bytes"), rapid.Bool().Draw(t, "hold")}
	})
	rapid.Check(t, func(t *rapid.T) {
		a, b := drawn.Draw(t, "a"), drawn.Draw(t, "b")
		both := a.with(b)
		if both != b.with(a) || len(both.less(a)) > 0 || len(both.less(b)) > 0 {
			t.Fatalf("%s with %s is %s", a, b, both)
		}
		if (len(a.less(b)) == 0) != (both == a) {
			t.Fatalf("%s keeps less than %s in %v", a, b, a.less(b))
		}
		read, err := parseKeeps(both.String())
		if err != nil || *read != both {
			t.Fatalf("%s is read as %v, %v", both, read, err)
		}
	})
	for _, bad := range []string{"x", "1 2", "-1 2 true", "1 0 true"} {
		if k, err := parseKeeps(bad); err == nil {
			t.Errorf("%q is read as %s", bad, k)
		}
	}
}
