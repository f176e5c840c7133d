package demo

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func line(n int, every time.Duration, a, b float64) []sample {
	var samples []sample
	start := time.Unix(1_800_000_000, 0)
	for i := range n {
		at := start.Add(time.Duration(i) * every)
		samples = append(samples, sample{at, a + b*at.Sub(start).Seconds()})
	}
	return samples
}

func TestR14d_SlopeOfALine(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(minSamples, 200).Draw(t, "samples")
		a, b := rapid.Float64Range(-10, 1e5).Draw(t, "start"), rapid.Float64Range(-2, 2).Draw(t, "slope")
		got, ok := slope(line(n, 250*time.Millisecond, a, b))
		if !ok || math.Abs(got-b) > 1e-6 {
			t.Fatalf("slope %v, %v; want %v", got, ok, b)
		}
	})
}

func TestR14d_NoSlopeFromTooLittle(t *testing.T) {
	if _, ok := slope(line(minSamples-1, time.Second, 0, 1)); ok {
		t.Error("a slope from nine samples")
	}
	if _, ok := slope(line(minSamples, 0, 0, 1)); ok {
		t.Error("a slope from one instant")
	}
	if got, ok := slope(line(40, time.Second, 7, 0)); !ok || got != 0 {
		t.Errorf("a frozen gauge has slope %v, %v", got, ok)
	}
}
