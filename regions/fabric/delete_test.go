package fabric_test

import (
	"context"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"domicile/api"
	"domicile/regions/fabric"
	"domicile/regions/fabric/fabrictest"
)

// B12: a deleted log is gone with its figures, says what it was, and a new one of the
// same name is another incarnation.
func TestB12_DeleteLeavesNothingButItsName(t *testing.T) {
	dir := t.TempDir()
	f := fabrictest.Open(t, func(c *fabric.Config) { c.Dir = dir })
	ctx := context.Background()
	l := openHome(t, f)
	id := l.ID()
	other := fabrictest.Home(t, f, "other@here")
	allStored(t, appendMany(t, l, 0, 100))
	allStored(t, appendMany(t, other, 0, 10))
	before := l.Head().Incarnation
	d, err := f.Delete(ctx, id)
	if err != nil || d.Last != 100 || d.Incarnation != before || d.Kind != "home" {
		t.Fatalf("deleted %+v %v", d, err)
	}
	if s := fabrictest.Append(t, l, record(500)); api.CodeOf(s.Err) == "" || api.CodeOf(s.Err) == api.OutcomeUnknown {
		t.Fatalf("append to a deleted log: %v", s.Err)
	}
	_, err = f.Delete(ctx, id)
	wantCode(t, err, api.BadRequest)
	t.Log(err)
	for range 2 {
		if got, ok := f.Deleted(id); !ok || got.Last != 100 {
			t.Fatalf("deleted %+v %v", got, ok)
		}
		for _, h := range f.Health().Logs {
			if h.Log == id.String() {
				t.Fatalf("health still has %+v", h)
			}
		}
		f = reopen(t, f, dir)
	}
	if h := fabrictest.Home(t, f, "other@here").Head(); h.Records != 10 {
		t.Fatalf("the other log: %+v", h)
	}
	l = openHome(t, f)
	if h := l.Head(); h.Incarnation == before || h.Sequence != 0 {
		t.Fatalf("the new log: %+v, the old one was %s", h, before)
	}
	if s := fabrictest.Append(t, l, record(1)); s.Err != nil || s.Duplicate || s.Position.Sequence != 1 {
		t.Fatalf("first of the new log: %+v", s)
	}
	if _, ok := f.Deleted(id); ok {
		t.Error("the name is in use again and still counts as deleted")
	}
}

// A copy is deleted like a home, and so is a log that nobody opened.
func TestB12_DeleteOfCopiesAndKeptLogs(t *testing.T) {
	dir := t.TempDir()
	f := fabrictest.Open(t, func(c *fabric.Config) { c.Dir = dir })
	allStored(t, appendMany(t, openHome(t, f), 0, 100))
	fabrictest.Copy(t, f, "orders@there")
	if d, err := f.Delete(context.Background(), mustID(t, "orders@there")); err != nil || d.Kind != "copy" {
		t.Fatalf("deleted %+v %v", d, err)
	}
	f = reopen(t, f, dir)
	kept, err := f.Kept(context.Background())
	if err != nil || len(kept) != 1 || kept[0].Log.String() != "orders@here" || kept[0].Role != "home" {
		t.Fatalf("kept %+v %v", kept, err)
	}
	if d, err := f.Delete(context.Background(), kept[0].Log); err != nil || d.Last != 100 {
		t.Fatalf("deleted %+v %v", d, err)
	}
	if kept, _ := f.Kept(context.Background()); len(kept) != 0 {
		t.Fatalf("kept %+v", kept)
	}
}

// B12: killed at any step, the log is wholly there or wholly gone.
func TestB12_KilledDuringDelete(t *testing.T) {
	for step, gone := range map[string]bool{"writer stopped": false, "deletion decided": true, "data gone": true, "deleted": true} {
		t.Run(step, func(t *testing.T) {
			dir := died(t, "delete", step)
			f := fabrictest.Open(t, func(c *fabric.Config) { c.Dir = dir })
			id := mustID(t, "orders@here")
			d, deleted := f.Deleted(id)
			if deleted != gone || gone && d.Last != 100 {
				t.Fatalf("deleted: %v %+v", deleted, d)
			}
			l := openHome(t, f)
			if h := l.Head(); gone && (h.Sequence != 0 || h.Incarnation == d.Incarnation) || !gone && (h.Records != 100 || len(fabrictest.ReadAll(t, l, 0)) != 100) {
				t.Fatalf("head %+v", h)
			}
		})
	}
}

// B12: two operators at once: one deletes, the other is told.
func TestB12_TwoDeleteAtOnce(t *testing.T) {
	f := fabrictest.Open(t)
	l := openHome(t, f)
	allStored(t, appendMany(t, l, 0, 100))
	var wg sync.WaitGroup
	errs := make([]error, 8)
	for i := range errs {
		wg.Go(func() { _, errs[i] = f.Delete(context.Background(), l.ID()) })
	}
	wg.Wait()
	won := 0
	for _, err := range errs {
		switch api.CodeOf(err) {
		case "":
			won++
		case api.BadRequest, api.NotReady:
		default:
			t.Errorf("the loser was told %v", err)
		}
	}
	if won != 1 {
		t.Errorf("%d won", won)
	}
}

// B12: a log whose deletion is decided is not opened again before it is through: what it
// took would go with it.
func TestB12_DecidedDeletionIsNotOpened(t *testing.T) {
	dir := t.TempDir()
	ctx, cancel := context.WithCancel(context.Background())
	f := fabrictest.Open(t, func(c *fabric.Config) {
		c.Dir = dir
		c.Hooks.Step = func(step string) {
			if step == "deletion decided" {
				cancel()
			}
		}
	})
	l := openHome(t, f)
	before := l.Head().Incarnation
	if _, err := f.Delete(ctx, l.ID()); err == nil {
		t.Fatal("deleted although the time was over")
	}
	_, err := f.Home(context.Background(), fabric.LogConfig{ID: l.ID(), Epoch: api.StaticEpoch("here"), MaxBytes: 64 << 20})
	wantCode(t, err, api.NotReady)
	f = reopen(t, f, dir)
	if h := openHome(t, f).Head(); h.Incarnation == before {
		t.Error("the deletion was forgotten")
	}
}

// B12: in a region of three a deletion of which it is not known whether it was decided gives
// the seat away, and one that was agreed on stands, whatever this node's own disk says.
func TestB12_DeletionOfThreeIsDecidedByThem(t *testing.T) {
	t.Parallel() // it mostly waits for elections
	r := fabrictest.NewTrio(t)
	r.Start()
	d := newDesk(t, r, "orders@here")
	d.append(0, 20)
	ctx, id := context.Background(), d.log().ID()
	holder := r.Node(r.Holder())
	first, _ := holder.Seat()
	holder.MisplaceListed(id)
	_, err := holder.Delete(ctx, id)
	wantCode(t, err, api.NotReady)
	eventually(t, "the seat goes", func() bool { now, _ := holder.Seat(); return !now.Mine || now.Term > first.Term })
	d.append(20, 40)
	var deleted fabric.Deleted
	eventually(t, "a holder keeps the seat long enough", func() bool {
		name := r.Holder()
		if err := os.Mkdir(filepath.Join(r.Configs[name].Dir, "logs.json.new"), 0o700); err != nil && !os.IsExist(err) {
			t.Fatal(err)
		}
		if deleted, err = r.Node(name).Delete(ctx, id); api.CodeOf(err) == api.BadRequest { // decided by the call before
			deleted, _ = r.Node(name).Deleted(id)
			err = nil
		}
		return api.CodeOf(err) != api.NotReady
	})
	if err != nil || deleted.Last != 40 {
		t.Fatalf("%+v %v", deleted, err)
	}
}
