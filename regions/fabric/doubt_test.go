package fabric_test

import (
	"context"
	"testing"
	"time"

	"domicile/api"
	"domicile/regions"
	"domicile/regions/fabric"
	"domicile/regions/fabric/fabrictest"
)

// wrongBy is a node's clock that was wrong when it started.
func wrongBy(d time.Duration) regions.Clock {
	return regions.NewSteadyClockOn(func() time.Time { return time.Now().Add(d) })
}

func weekLog(t testing.TB) fabric.LogConfig {
	return fabric.LogConfig{ID: mustID(t, "orders@here"), Epoch: api.StaticEpoch("here"), MaxBytes: 8 << 20, MaxAge: 7 * 24 * time.Hour}
}

// filled is a data directory with 400 acknowledged records of a log that keeps them a week.
func filled(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	f := fabrictest.Open(t, func(c *fabric.Config) { c.Dir, c.Clock = dir, wrongBy(0) })
	allStored(t, appendMany(t, homeOf(t, f, weekLog(t)), 0, 400))
	if err := f.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
	return dir
}

func homeOf(t testing.TB, f *fabric.Fabric, c fabric.LogConfig) regions.HomeLog {
	t.Helper()
	l, err := f.Home(context.Background(), c)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// A store that ran a moment ago is opened by a node whose clock is far off: nothing goes by
// age, however often it is looked at, and the right clock finds everything.
func TestFG1_AWrongClockAtBootDeletesNothing(t *testing.T) {
	for name, off := range map[string]time.Duration{"8 days": 192 * time.Hour, "300 days": 7200 * time.Hour, "12 years": 105120 * time.Hour, "back": -192 * time.Hour} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := filled(t)
			for range 2 { // a second start on the same wrong clock is no proof of it
				f := fabrictest.Open(t, func(c *fabric.Config) { c.Dir, c.Clock = dir, wrongBy(off) })
				l := homeOf(t, f, weekLog(t))
				if s, err := f.Sweep(context.Background(), l.ID()); err != nil || s.To != 0 {
					t.Fatalf("swept %+v %v", s, err)
				}
				if h := l.Head(); h.First != 1 || h.Records != 400 {
					t.Fatalf("head %+v", h)
				}
				if err := f.Close(context.Background()); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}
