package fabric_test

import (
	"context"
	"fmt"
	"os"
	"syscall"
	"testing"
	"time"

	"domicile/api"
	"domicile/regions"
	"domicile/regions/fabric"
	"domicile/regions/fabric/fabrictest"
)

const (
	childAct  = "FABRIC_TEST_CHILD_ACT"  // "purge", "delete", or one of runOwnershipAct
	childStep = "FABRIC_TEST_CHILD_STEP" // the step at which the process kills itself
)

// runActChild is the process that the tests of acts kill: it fills a log, acts on it,
// and dies at one step.
func runActChild() bool {
	act, at := os.Getenv(childAct), os.Getenv(childStep)
	if act == "" {
		return false
	}
	ctx := context.Background()
	die := func(step string) {
		if step == at {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {}
		}
	}
	f, err := fabric.Open(ctx, fabric.Config{Region: "here", Federation: "test", Dir: os.Getenv(childDir + "_ACT"), MaxStore: 1 << 30, Hooks: fabric.Hooks{Step: die}})
	if err != nil {
		panic(err)
	}
	id := api.LogID{Tenant: api.DefaultTenant, Topic: "orders", Slot: "here"}
	l, err := f.Home(ctx, fabric.LogConfig{ID: id, Epoch: api.StaticEpoch("here"), MaxBytes: 64 << 20})
	if err != nil {
		panic(err)
	}
	done := make(chan regions.Stored, 100)
	for i := range 100 {
		l.Append(regions.Draft{Record: record(i)}, func(s regions.Stored) { done <- s })
	}
	for range 100 {
		if s := <-done; s.Err != nil {
			panic(s.Err)
		}
	}
	fmt.Println("incarnation", l.Head().Incarnation)
	switch act {
	case "purge":
		_, err = f.Purge(ctx, id, 60)
	case "delete":
		_, err = f.Delete(ctx, id)
	default:
		err = runOwnershipAct(ctx, f, act, id)
	}
	fmt.Println("survived", err)
	return true
}

// died runs the child to its end and gives back the directory it left.
func died(t *testing.T, act, step string) string {
	t.Helper()
	dir := t.TempDir()
	c := startChild(t, nil, childAct+"="+act, childStep+"="+step, childDir+"_ACT="+dir)
	select {
	case <-c.done:
	case <-time.After(30 * time.Second):
		c.kill()
		t.Fatal("the child did not end")
	}
	err := c.cmd.Wait()
	if s, ok := c.cmd.ProcessState.Sys().(syscall.WaitStatus); !ok || s.Signal() != syscall.SIGKILL {
		t.Fatalf("step %q was never reached: %v, %s", step, err, c.err)
	}
	return dir
}

func openHome(t *testing.T, f *fabric.Fabric) regions.HomeLog {
	t.Helper()
	return fabrictest.Home(t, f, "orders@here")
}

// B12: a purge leaves the exact range, typed, for every reader that comes later, also
// behind what retention takes after it, and over a restart.
func TestB12_PurgeLeavesTheExactRange(t *testing.T) {
	dir := t.TempDir()
	clock := regions.NewManualClock(time.Unix(1_800_000_000, 0))
	log := fabric.LogConfig{ID: mustID(t, "orders@here"), Epoch: api.StaticEpoch("here"), MaxBytes: 8 << 20, MaxAge: time.Hour,
		Hold: true, Safe: func() uint64 { return 0 }} // an operator's act does not ask the mirrors: its caller did
	f := fabrictest.Open(t, func(c *fabric.Config) { c.Dir, c.Clock = dir, clock })
	l, err := f.Home(context.Background(), log)
	if err != nil {
		t.Fatal(err)
	}
	if s, err := f.Purge(context.Background(), log.ID, 100); err != nil || s.To != 0 {
		t.Fatalf("purge of an empty log: %+v %v", s, err)
	}
	allStored(t, appendMany(t, l, 0, 100))
	if s, err := f.Purge(context.Background(), log.ID, 30); err != nil || s.From != 1 || s.To != 30 || s.Records != 30 {
		t.Fatalf("purged %+v %v", s, err)
	}
	if s, err := f.Purge(context.Background(), log.ID, 20); err != nil || s.To != 0 {
		t.Fatalf("what is gone was purged again: %+v %v", s, err)
	}
	wantGaps(t, l, 10, "purged 11-30", 70)
	log.Safe = nil
	if err := f.Alter(context.Background(), log); err != nil {
		t.Fatal(err)
	}
	clock.Advance(2 * time.Hour)
	allStored(t, appendMany(t, l, 100, 150))
	if _, err := f.Sweep(context.Background(), log.ID); err != nil {
		t.Fatal(err)
	}
	if s, err := f.Purge(context.Background(), log.ID, 1000); err != nil || s.From != 101 || s.To != 150 {
		t.Fatalf("purged %+v %v", s, err)
	}
	for range 2 {
		wantGaps(t, l, 0, "purged 1-30, expired 31-100, purged 101-150", 0)
		wantGaps(t, l, 29, "purged 30-30, expired 31-100, purged 101-150", 0)
		if h := l.Head(); h.Sequence != 150 || h.First != 151 || h.Records != 0 {
			t.Fatalf("head %+v", h)
		}
		f = reopen(t, f, dir, func(c *fabric.Config) { c.Clock = clock })
		if l, err = f.Home(context.Background(), log); err != nil {
			t.Fatal(err)
		}
	}
	if s := fabrictest.Append(t, l, record(500)); s.Err != nil || s.Position.Sequence != 151 {
		t.Fatalf("next %+v", s)
	}
}

// wantGaps reads from after and compares the gaps, and how many records follow.
func wantGaps(t *testing.T, l regions.Log, after uint64, want string, records int) {
	t.Helper()
	got, n := "", 0
	for _, it := range fabrictest.ReadAll(t, l, after) {
		if it.Gap == nil {
			n++
			continue
		}
		if got != "" {
			got += ", "
		}
		got += fmt.Sprintf("%s %d-%d", it.Gap.Kind, it.Gap.From, it.Gap.To)
		if it.Sequence != it.Gap.To {
			t.Errorf("gap %+v lies at %d", it.Gap, it.Sequence)
		}
	}
	if got != want || n != records {
		t.Fatalf("after %d: %q and %d records, want %q and %d", after, got, n, want, records)
	}
}

// B12: killed at any step of a purge, the log is whole before the decision and purged
// after it, never in between.
func TestB12_KilledDuringPurge(t *testing.T) {
	f := fabrictest.Open(t, func(c *fabric.Config) { c.Dir = died(t, "purge", "purge intended") })
	l := openHome(t, f)
	if _, err := f.Sweep(context.Background(), l.ID()); err != nil { // as the fabric does by itself
		t.Fatal(err)
	}
	wantGaps(t, l, 0, "purged 1-60", 40)
	if h := l.Head(); h.First != 61 || h.Records != 40 {
		t.Fatalf("head %+v", h)
	}
}

// Before the sweep of the next start, too, a reader is not given what was purged.
func TestB12_WhatIsPurgedIsNotServedBeforeItIsGone(t *testing.T) {
	dir := died(t, "purge", "purge intended")
	f := fabrictest.Open(t, func(c *fabric.Config) { c.Dir, c.Pace = dir, 1000 })
	wantGaps(t, openHome(t, f), 0, "purged 1-60", 40)
}

// B50: a log that does not fit is refused with what is reserved, used and free, and a
// log may be given more or less room while it is open.
func TestB50_BoundsChangeWhileTheLogIsOpen(t *testing.T) {
	f := fabrictest.Open(t, func(c *fabric.Config) { c.MaxStore = 100 << 20 })
	ctx := context.Background()
	log := fabric.LogConfig{ID: mustID(t, "a@here"), Epoch: api.StaticEpoch("here"), MaxBytes: 60 << 20}
	l, err := f.Home(ctx, log)
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.Home(ctx, fabric.LogConfig{ID: mustID(t, "b@here"), Epoch: api.StaticEpoch("here"), MaxBytes: 50 << 20})
	wantCode(t, err, api.ConfigInvalid)
	t.Log(err)
	wantCode(t, f.Fits(ctx, fabric.Need(50<<20)), api.ConfigInvalid)
	if err := f.Fits(ctx, fabric.Need(30<<20)); err != nil {
		t.Fatal(err)
	}
	allStored(t, appendMany(t, l, 0, 200))
	log.MaxBytes = 200 << 20
	wantCode(t, f.Alter(ctx, log), api.ConfigInvalid)
	log.MaxBytes = 8 << 20
	if err := f.Alter(ctx, log); err != nil {
		t.Fatal(err)
	}
	if r, err := f.Room(ctx); err != nil || r.Reserved != fabric.Need(8<<20) || r.Used == 0 {
		t.Fatalf("room %+v %v", r, err)
	}
	if _, err := f.Home(ctx, fabric.LogConfig{ID: mustID(t, "b@here"), Epoch: api.StaticEpoch("here"), MaxBytes: 50 << 20}); err != nil {
		t.Fatal("there is room for it now: ", err)
	}
	if items := fabrictest.ReadAll(t, l, 0); len(items) != 200 {
		t.Fatalf("%d records", len(items))
	}
}
