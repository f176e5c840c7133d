package fabric_test

import (
	"context"
	"errors"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"domicile/api"
	"domicile/regions/fabric"
	"domicile/regions/fabric/fabrictest"
)

func grow(t *testing.T, from fabric.Config, r *fabrictest.Trio) ([]fabric.Moved, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	m, err := fabric.NewMove(ctx, from, r.Configs["a"], r.Configs["b"], r.Configs["c"])
	if err != nil {
		return nil, err
	}
	moved, err := m.Run(ctx, func(fabric.MoveProgress) {})
	return moved, errors.Join(err, m.Close(ctx))
}

// Decision 3: a solo store is never started as one of three; it grows by being taken
// over into a new store of three nodes, which then write on where it ended.
func TestRA1_SoloStoreGrowsToThreeNodes(t *testing.T) {
	t.Parallel() // it mostly waits for elections
	from := filepath.Join(t.TempDir(), "old")
	const n = 2000
	home, copies, head, cursor := oldStore(t, from, n)
	r := fabrictest.NewTrio(t)
	// The first attempt ends when all is copied, before anything is switched.
	cut := at(from)
	broken, stop := context.WithCancel(context.Background())
	cut.Hooks.Step = func(step string) {
		if step == "copied" {
			stop()
		}
	}
	m, err := fabric.NewMove(context.Background(), cut, r.Configs["a"], r.Configs["b"], r.Configs["c"])
	if err != nil {
		t.Fatal(err)
	}
	if _, err := m.Run(broken, func(fabric.MoveProgress) {}); !errors.Is(err, context.Canceled) {
		t.Fatalf("cut off: %v", err)
	}
	if err := m.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
	for _, node := range []string{"a", "b", "c"} {
		_, err := fabric.Open(context.Background(), r.Configs[node])
		wantCode(t, err, api.ConfigInvalid)
	}

	moved, err := grow(t, at(from), r)
	if err != nil || len(moved) != 2 || moved[0].Records != n-10 || moved[0].Last != n {
		t.Fatalf("%+v, %v", moved, err)
	}
	_, err = fabric.Open(context.Background(), at(from))
	wantCode(t, err, api.ConfigInvalid)

	r.Start()
	f := r.Node(r.Holder())
	l, err := f.Home(context.Background(), fabric.LogConfig{ID: mustID(t, "orders@here"), Epoch: api.StaticEpoch("here"), MaxBytes: 64 << 20})
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(home, fabrictest.ReadAll(t, l, 0)); d != "" {
		t.Fatalf("home: %.2000s", d)
	}
	h := l.Head()
	if h.Incarnation != head.Incarnation || h.Sequence != head.Sequence || h.First != head.First || h.Term != head.Term+1 {
		t.Errorf("head %+v, was %+v", h, head)
	}
	again := appendMany(t, l, n-5, n+1)
	for _, s := range again[:5] {
		if s.Err != nil || !s.Duplicate {
			t.Errorf("retry of a moved record: %+v", s)
		}
	}
	if s := again[5]; s.Err != nil || s.Position.Sequence != n+1 || s.Done != api.Disk2of3 {
		t.Errorf("first new record: %+v", s)
	}
	k := fabrictest.Copy(t, f, "orders@there")
	if d := cmp.Diff(copies, fabrictest.ReadAll(t, k, 0)); d != "" {
		t.Errorf("copy: %s", d)
	}
	if d := cmp.Diff(cursor, k.Cursor()); d != "" {
		t.Errorf("cursor: %s", d)
	}
}
