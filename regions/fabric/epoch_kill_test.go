package fabric_test

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"domicile/api"
	"domicile/regions"
	"domicile/regions/fabric"
	"domicile/regions/fabric/fabrictest"
)

// mirroredLog is the copy, of ten records, that the children of the promotion tests have.
func mirroredLog(e api.Epoch) fabric.LogConfig {
	return fabric.LogConfig{ID: api.LogID{Tenant: api.DefaultTenant, Topic: "orders", Slot: "there"}, Epoch: e, MaxBytes: 1 << 20}
}

func mirroredItems() (items []regions.Item) {
	for i := range 10 {
		items = append(items, itemIn(1, i))
	}
	return items
}

// runOwnershipAct is what the child of runActChild does: with its log of 100 records, or
// with a copy of its own.
func runOwnershipAct(ctx context.Context, f *fabric.Fabric, act string, id api.LogID) error {
	switch act {
	case "fence", "rejoin":
		if _, err := f.Fence(ctx, id, epoch(1), "op"); err != nil || act == "fence" {
			return err
		}
		if err := f.CloseLog(ctx, id); err != nil {
			return err
		}
		_, err := f.Copy(ctx, fabric.LogConfig{ID: id, MaxBytes: 64 << 20, History: ended(60)})
		return err
	case "promote":
		c, err := f.Copy(ctx, mirroredLog(api.Epoch{}))
		if err != nil {
			return err
		}
		if _, err := c.Apply(ctx, "inc-1", mirroredItems()); err != nil {
			return err
		}
		if _, err := f.Freeze(ctx, c.ID(), "op"); err != nil {
			return err
		}
		if err := f.CloseLog(ctx, c.ID()); err != nil {
			return err
		}
		_, err = f.Home(ctx, mirroredLog(epoch(2)))
		return err
	}
	return fmt.Errorf("no such act: %s", act)
}

// R14g: killed at any step of a promotion, the log is a copy that goes on, a copy that is
// frozen at its cut, or a home of the new epoch; never two of them.
func TestR14g_KilledDuringPromotion(t *testing.T) {
	for _, step := range []string{"copy stopped", "frozen", "epoch opened"} {
		t.Run(step, func(t *testing.T) {
			f := openAt(t, died(t, "promote", step))
			ctx, id := context.Background(), mirroredLog(epoch(1)).ID
			c, err := f.Copy(ctx, mirroredLog(api.Epoch{}))
			if step == "epoch opened" {
				wantCode(t, err, api.ConfigInvalid)
				_, err = f.Home(ctx, mirroredLog(epoch(1)))
				wantCode(t, err, api.StaleEpoch)
			} else {
				if err != nil || c.Cursor().Sequence != 10 {
					t.Fatalf("%v, cursor %+v", err, c.Cursor())
				}
				want := uint64(10)
				_, err = c.Apply(ctx, "inc-1", []regions.Item{itemIn(1, 10)})
				if step == "frozen" {
					wantCode(t, err, api.Fenced)
				} else if want++; err != nil {
					t.Fatal(err)
				}
				if at, err := f.Freeze(ctx, id, "op"); err != nil || at.Sequence != want {
					t.Fatalf("frozen at %+v: %v", at, err)
				}
				if err := f.CloseLog(ctx, id); err != nil {
					t.Fatal(err)
				}
			}
			l, err := f.Home(ctx, mirroredLog(epoch(2)))
			if err != nil {
				t.Fatal(err)
			}
			before := l.Head().Sequence
			if s := fabrictest.Append(t, l, record(50)); s.Err != nil || s.Position.Sequence != before+1 || s.Position.Epoch != epoch(2) {
				t.Fatalf("%+v", s)
			}
			if s := fabrictest.Append(t, l, record(3)); !s.Duplicate || s.Position.Sequence != 4 {
				t.Fatalf("%+v", s)
			}
		})
	}
}

// Decision 12: killed at any step of a rejoin, what is void is found again or is on record.
func TestR14g_KilledDuringRejoin(t *testing.T) {
	for _, step := range []string{"history judged", "history learned"} {
		t.Run(step, func(t *testing.T) {
			f := openAt(t, died(t, "rejoin", step))
			var h regions.History
			if step == "history judged" {
				h = ended(60)
			}
			c := copyOf(t, f, h)
			if at := c.Cursor(); at.Sequence != 60 || at.Ledger.Sum() != 60 || at.Epoch != epoch(1) {
				t.Fatalf("cursor %+v", at)
			}
			if got := records(fabrictest.ReadAll(t, c, 0)); !slices.Equal(got, ids(0, 60)) {
				t.Fatalf("%d records", len(got))
			}
			checkVoid(t, f, epoch(1), 61, ids(60, 100))
			if _, err := f.Home(context.Background(), logIn(t, epoch(1))); err == nil {
				t.Fatal("a fenced epoch opened")
			}
		})
	}
}

// R14g: in a region of three, a copy that was frozen under one holder of the seat is opened
// as a home under the next, and goes on under the one after that.
func TestR14g_PromotionOverTakeovers(t *testing.T) {
	t.Parallel() // it mostly waits for elections
	r := fabrictest.NewTrio(t)
	r.Start()
	ctx, id := context.Background(), mirroredLog(epoch(1)).ID
	holder := r.Holder()
	turn := func(do func(f *fabric.Fabric) error) {
		t.Helper()
		eventually(t, "the act is done under one seat", func() bool {
			f := r.Node(holder)
			ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
			defer cancel()
			err := do(f)
			if err != nil {
				t.Log(err)
				_ = f.CloseLog(ctx, id)
				holder = r.Holder()
			}
			return err == nil
		})
	}
	next := func() {
		t.Helper()
		f := r.Node(holder)
		if err := f.StepDown(ctx); err != nil {
			t.Log(err)
		}
		_ = f.Vacate(ctx)
		holder = r.Holder(holder)
	}
	turn(func(f *fabric.Fabric) error {
		c, err := f.Copy(ctx, mirroredLog(api.Epoch{}))
		if err == nil && c.Cursor().Sequence == 0 {
			_, err = c.Apply(ctx, "inc-1", mirroredItems())
		}
		if err == nil {
			_, err = f.Freeze(ctx, id, "op")
		}
		return err
	})
	next()
	turn(func(f *fabric.Fabric) error {
		c, err := f.Copy(ctx, mirroredLog(api.Epoch{}))
		if err != nil {
			return err
		}
		if _, err := c.Apply(ctx, "inc-1", []regions.Item{itemIn(1, 10)}); api.CodeOf(err) != api.Fenced {
			t.Fatalf("a frozen copy took a record: %v", err)
		}
		if at, err := f.Freeze(ctx, id, "op"); err != nil || at.Sequence != 10 {
			return fmt.Errorf("frozen at %+v: %w", at, err)
		}
		if err := f.CloseLog(ctx, id); err != nil {
			return err
		}
		_, err = f.Home(ctx, mirroredLog(epoch(2)))
		return err
	})
	next()
	turn(func(f *fabric.Fabric) error {
		if _, err := f.Home(ctx, mirroredLog(epoch(1))); api.CodeOf(err) == "" {
			t.Fatal("the old epoch opened")
		}
		l, err := f.Home(ctx, mirroredLog(epoch(2)))
		if err != nil {
			return err
		}
		s := fabrictest.Append(t, l, record(3))
		if s.Err == nil && (!s.Duplicate || s.Position.Sequence != 4) {
			t.Fatalf("a retry: %+v", s)
		}
		if s.Err == nil {
			s = fabrictest.Append(t, l, record(40))
		}
		if s.Err == nil && !s.Duplicate && (s.Position.Sequence != 11 || s.Position.Epoch != epoch(2)) {
			t.Fatalf("the first of the new epoch: %+v", s)
		}
		return s.Err
	})
}

// What the run mark knew of the log's end before it went back is no loss after a kill.
func TestR14g_KilledAfterGoingBack(t *testing.T) {
	dir, left := t.TempDir(), t.TempDir()
	f := openAt(t, dir)
	allStored(t, appendMany(t, homeIn(t, f, epoch(1)), 0, 100))
	f = reopen(t, f, dir)
	copyOf(t, f, ended(60))
	file := filepath.Join(t.TempDir(), "killed.tar.gz")
	pack(t, dir, file)
	unpack(t, file, left)
	f = openAt(t, left)
	c := copyOf(t, f, nil)
	if h := f.Health(); c.Cursor().Sequence != 60 || h.Logs[0].Damaged != 0 {
		t.Fatalf("cursor %+v, %+v", c.Cursor(), h.Logs[0])
	}
}
