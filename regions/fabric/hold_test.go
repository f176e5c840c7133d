package fabric_test

import (
	"context"
	"fmt"
	"math"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"domicile/api"
	"domicile/regions/fabric"
	"domicile/regions/fabric/fabrictest"
)

// RT7: a log that holds its records for a mirror loses none of them at its bound: it
// refuses, names who is waited for, and goes on once the mirror has them.
func TestRT7_HeldLogRefusesAtItsBoundAndNamesTheTarget(t *testing.T) {
	var safe atomic.Uint64
	log := fabric.LogConfig{ID: mustID(t, "orders@here"), Epoch: api.StaticEpoch("here"), MaxBytes: 8 << 20, MaxAge: time.Millisecond,
		Hold: true, Safe: safe.Load, Waits: func() string { return fmt.Sprintf("us-east has %d", safe.Load()) }}
	f := fabrictest.Open(t)
	l, err := f.Home(context.Background(), log)
	if err != nil {
		t.Fatal(err)
	}
	var stored uint64
	for i := 0; ; i++ {
		s := fabrictest.Append(t, l, childRecord(i, 1<<19))
		if s.Err == nil {
			stored = s.Position.Sequence
			continue
		}
		wantCode(t, s.Err, api.StorageFull)
		if !strings.Contains(s.Err.Error(), "us-east has 0") {
			t.Fatalf("the refusal does not name the target: %v", s.Err)
		}
		break
	}
	if _, err := f.Sweep(context.Background(), log.ID); err != nil {
		t.Fatal(err)
	}
	if items := fabrictest.ReadAll(t, l, 0); uint64(len(items)) != stored || items[0].Gap != nil {
		t.Fatalf("%d items, %d stored", len(items), stored)
	}
	safe.Store(math.MaxUint64)
	if _, err := f.Sweep(context.Background(), log.ID); err != nil {
		t.Fatal(err)
	}
	if s := fabrictest.Append(t, l, childRecord(1000, 1<<19)); s.Err != nil {
		t.Fatal(s.Err)
	}
}
