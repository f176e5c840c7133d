package node

import (
	"context"
	"testing"
	"time"

	"domicile/regions"
	"domicile/regions/fabric"
	"domicile/regions/fabric/fabrictest"
)

// What had ended by the clock of the last run stays ended over a start on one that was set
// back; one that is ahead ends early.
func TestFG1_AClockSetBackRevivesNoPermission(t *testing.T) {
	dir := t.TempDir()
	for _, off := range []time.Duration{0, -192 * time.Hour, 192 * time.Hour} {
		c := regions.NewSteadyClockOn(func() time.Time { return time.Now().Add(off) })
		f := fabrictest.Open(t, func(cfg *fabric.Config) { cfg.Dir, cfg.Clock = dir, c })
		n := &Node{seams: Seams{Clock: c}, fabric: f}
		if now, want := (*ends)(n).Now(), time.Now().Add(max(off, 0)); now.Sub(want).Abs() > time.Minute {
			t.Errorf("off by %v: permissions end by %v, want %v", off, now, want)
		}
		if err := f.Close(context.Background()); err != nil {
			t.Fatal(err)
		}
	}
}
