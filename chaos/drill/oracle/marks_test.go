package oracle

import (
	"testing"

	"pgregory.net/rapid"
)

func TestR14i_MarksAreASet(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var a, b marks
		in, other := map[uint64]bool{}, map[uint64]bool{}
		for _, n := range rapid.SliceOf(rapid.Uint64Range(0, 500)).Draw(t, "a") {
			if a.set(n) == in[n] {
				t.Fatalf("%d was new: %v", n, !in[n])
			}
			in[n] = true
		}
		for _, n := range rapid.SliceOf(rapid.Uint64Range(0, 700)).Draw(t, "b") {
			b.set(n)
			other[n] = true
		}
		want := 0
		for n := range in {
			if !other[n] {
				want++
			}
		}
		if got := a.lacks(&b); got != want || a.lacks(nil) != len(in) {
			t.Fatalf("lacks %d, want %d of %d", got, want, len(in))
		}
	})
}
