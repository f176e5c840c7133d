package demo

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

// fastDisk is a directory on a disk in memory where there is one: these tests are
// about what is said and judged, and a machine's real disk is everybody's.
func fastDisk(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "domicile-demo-")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() {
		if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
			t.Errorf("the demo left %v, %v", left, err)
		}
		os.RemoveAll(dir)
	})
	return dir
}

// One finished run is audited again and again, each time with one thing amiss on the
// disks, in the history or in the readings. Its own check alone must be red.
func TestR14b_AuditSeesWhatIsAmiss(t *testing.T) {
	t.Parallel()
	r, story := finished(t)
	cases := []struct {
		name  string
		hooks Hooks
		red   []string
	}{
		{"nothing", Hooks{}, nil},
		{"a leak", Hooks{LeakOne: true}, []string{CheckCanary}},
		{"a lost record", Hooks{LoseOne: true}, []string{CheckLedger}},
		{"a lost token", Hooks{LoseToken: true}, []string{CheckCanaryAtHome}},
		{"a frozen gauge", Hooks{Gauge: func(_, _ string, _ float64) float64 { return 3 }}, []string{CheckSlope}},
	}
	for _, c := range cases {
		story.Reset()
		r.result, r.leaked, r.o.Hooks = newResult(), 0, c.hooks
		r.result.verdict(CheckDedupe, true, "")
		if err := r.audit(t.Context()); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(r.result.Failed(), c.red) {
			t.Errorf("%s: red %v, want %v\n%v\n%s", c.name, r.result.Failed(), c.red, r.result.Why, story)
		}
		if leaked := r.result.ResidentBytesOutside > 0; leaked != c.hooks.LeakOne {
			t.Errorf("%s: %d resident bytes outside", c.name, r.result.ResidentBytesOutside)
		}
		planted, err := filepath.Glob(filepath.Join(r.lab.Region(cutRegion).Dir, "planted-*"))
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range planted {
			if err := os.Remove(path); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// finished is a run whose regions have stopped, with everything ready to be audited.
func finished(t *testing.T) (*run, *bytes.Buffer) {
	t.Helper()
	var story bytes.Buffer
	o := Options{For: 3 * time.Second, Rate: 60, Pace: 0.25, Parent: fastDisk(t), Out: &story}
	if err := o.complete(); err != nil {
		t.Fatal(err)
	}
	r := newRun(o)
	t.Cleanup(func() {
		if err := r.close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	for _, step := range []func(context.Context) error{r.open, r.introduce, r.trade, r.settle, r.probe, r.stop} {
		if err := step(t.Context()); err != nil {
			t.Fatalf("%v\n%s", err, &story)
		}
	}
	return r, &story
}
