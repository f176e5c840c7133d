package fabric_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"domicile/api"
	"domicile/regions"
	"domicile/regions/fabric"
	"domicile/regions/fabric/fabrictest"
)

func copied(i int) regions.Item {
	return regions.Item{Sequence: uint64(i), Epoch: api.StaticEpoch("there"), Term: 3, Time: time.Unix(1e9+int64(i), 0).UTC(),
		Revision: "r1", Record: record(i)}
}

func gap(kind regions.GapKind, from, to uint64) regions.Item {
	return regions.Item{Sequence: to, Epoch: api.StaticEpoch("there"), Term: 3, Time: time.Unix(1e9+int64(to), 0).UTC(),
		Gap: &regions.Gap{Kind: kind, From: from, To: to, Code: api.ResidencyDenied, Side: "egress", Revision: "5-a"}}
}

func apply(t *testing.T, l regions.CopyLog, items ...regions.Item) regions.Cursor {
	t.Helper()
	c, err := l.Apply(context.Background(), "inc-1", items)
	if err != nil {
		t.Fatalf("apply: %v", err)
	}
	return c
}

// RD1: a copy takes each item exactly once, in order, and its last item is its whole
// checkpoint, ledger included.
func TestRD1_CopyAppliesExactlyOnce(t *testing.T) {
	dir := t.TempDir()
	f := fabrictest.Open(t, func(c *fabric.Config) { c.Dir = dir })
	l := fabrictest.Copy(t, f, "orders@there")
	if c := l.Cursor(); c.Sequence != 0 || c.Incarnation != "" {
		t.Fatalf("empty cursor %+v", c)
	}
	items := []regions.Item{copied(1), copied(2), gap(regions.Withheld, 3, 7), copied(8), gap(regions.Expired, 9, 9)}
	c := apply(t, l, items...)
	want := regions.Cursor{Incarnation: "inc-1", Epoch: api.StaticEpoch("there"), Sequence: 9, Time: time.Unix(1e9+9, 0).UTC(),
		Ledger: regions.Ledger{Mirrored: 3, Withheld: 5, Expired: 1}}
	if diff := cmp.Diff(want, c); diff != "" || c.Ledger.Sum() != c.Sequence {
		t.Fatal(diff)
	}
	for name, batch := range map[string][]regions.Item{
		"again":   items,
		"ahead":   {copied(11)},
		"hole":    {copied(10), copied(12)},
		"overlap": {gap(regions.Withheld, 9, 12)},
		"torn":    {{Sequence: 10, Gap: &regions.Gap{Kind: regions.Withheld, From: 10, To: 11}}},
	} {
		if _, err := l.Apply(context.Background(), "inc-1", batch); !errors.Is(err, regions.ErrOutOfOrder) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := l.Apply(context.Background(), "inc-2", []regions.Item{copied(10)}); !errors.Is(err, regions.ErrIncarnation) {
		t.Errorf("other incarnation: %v", err)
	}
	f = reopen(t, f, dir)
	l = fabrictest.Copy(t, f, "orders@there")
	if diff := cmp.Diff(want, l.Cursor()); diff != "" {
		t.Fatal(diff)
	}
	apply(t, l, copied(10))
	got := fabrictest.ReadAll(t, l, 0)
	for i := range items {
		items[i].Record.Topic = "orders"
		if items[i].Gap != nil {
			items[i].Record = api.Record{}
		}
	}
	last := copied(10)
	last.Record.Topic = "orders"
	if diff := cmp.Diff(append(items, last), got); diff != "" {
		t.Fatal(diff)
	}
	if mid := fabrictest.ReadAll(t, l, 4); mid[0].Gap.From != 5 || mid[0].Gap.To != 7 {
		t.Fatalf("from inside a gap: %+v", mid[0].Gap)
	}
	if h := l.Head(); h.Sequence != 10 || h.Records != 4 || h.First != 1 || h.Incarnation != "inc-1" {
		t.Fatalf("head %+v", h)
	}
}

func TestRD1_CopyReadsBackALostBatch(t *testing.T) {
	var drop atomic.Int32
	f := fabrictest.Open(t, func(c *fabric.Config) {
		c.Hooks.DropAck = func(api.LogID) bool { return drop.Add(-1) >= 0 }
	})
	l := fabrictest.Copy(t, f, "orders@there")
	drop.Store(2)
	c := apply(t, l, copied(1), gap(regions.Withheld, 2, 3), copied(4))
	if c.Sequence != 4 || c.Ledger != (regions.Ledger{Mirrored: 2, Withheld: 2}) {
		t.Fatalf("cursor %+v", c)
	}
	if got := fabrictest.ReadAll(t, l, 0); len(got) != 3 {
		t.Fatalf("%d items", len(got))
	}
}

func TestRT7_FullCopyIsRefusedAndGoesOn(t *testing.T) {
	f := fabrictest.Open(t)
	id, _ := api.ParseLogID("orders@there")
	safe := new(atomic.Uint64)
	l, err := f.Copy(context.Background(), fabric.LogConfig{ID: id, MaxBytes: 64 << 10, Hold: true, Safe: safe.Load})
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for err == nil {
		n++
		it := copied(n)
		it.Record.Body = make([]byte, 8<<10)
		_, err = l.Apply(context.Background(), "inc-1", []regions.Item{it})
	}
	wantCode(t, err, api.StorageFull)
	if c := l.Cursor(); c.Sequence != uint64(n-1) {
		t.Fatalf("cursor %+v after %d", c, n-1)
	}
	safe.Store(1 << 40)
	if s, err := f.Sweep(context.Background(), id); err != nil {
		t.Fatalf("sweep %+v: %v", s, err)
	}
	apply(t, l, copied(n))
	if c := l.Cursor(); c.Ledger.Sum() != c.Sequence {
		t.Fatalf("ledger %+v", c)
	}
}
