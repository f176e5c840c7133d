package fabric_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"domicile/api"
	"domicile/regions"
	"domicile/regions/fabric"
	"domicile/regions/fabric/fabrictest"
)

func mustID(t testing.TB, s string) api.LogID {
	t.Helper()
	id, err := api.ParseLogID(s)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// RT7: retention takes what is old, never past what mirrors still need, and leaves the
// range it took to be read.
func TestRT7_SweepByAgeKeepsWhatMirrorsNeed(t *testing.T) {
	dir := t.TempDir()
	clock := regions.NewManualClock(time.Unix(1_800_000_000, 0))
	var safe atomic.Uint64
	log := fabric.LogConfig{ID: mustID(t, "orders@here"), Epoch: api.StaticEpoch("here"), MaxBytes: 8 << 20,
		MaxAge: time.Hour, Hold: true, Safe: safe.Load}
	f := fabrictest.Open(t, func(c *fabric.Config) { c.Dir, c.Clock = dir, clock })
	l, err := f.Home(context.Background(), log)
	if err != nil {
		t.Fatal(err)
	}
	allStored(t, appendMany(t, l, 0, 100))
	clock.Advance(2 * time.Hour)
	allStored(t, appendMany(t, l, 100, 150))
	sweep := func() fabric.Swept {
		t.Helper()
		s, err := f.Sweep(context.Background(), log.ID)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	if s := sweep(); s.To != 0 {
		t.Fatalf("swept past what mirrors need: %+v", s)
	}
	before := l.Head()
	safe.Store(40)
	if s := sweep(); s.From != 1 || s.To != 40 || s.Records != 40 {
		t.Fatalf("swept %+v", s)
	}
	safe.Store(1000)
	if s := sweep(); s.From != 41 || s.To != 100 {
		t.Fatalf("swept %+v", s)
	}
	check := func(l regions.HomeLog) {
		t.Helper()
		h := l.Head()
		if h.First != 101 || h.Records != 50 || h.Sequence != 150 || h.Bytes >= before.Bytes {
			t.Fatalf("head %+v, before %+v", h, before)
		}
		for _, after := range []uint64{0, 30, 99} {
			items := fabrictest.ReadAll(t, l, after)
			g := items[0].Gap
			if g == nil || g.Kind != regions.Expired || g.From != after+1 || g.To != 100 || len(items) != 51 {
				t.Fatalf("after %d: %+v, %d items", after, g, len(items))
			}
		}
	}
	check(l)
	f = reopen(t, f, dir, func(c *fabric.Config) { c.Clock = clock })
	if l, err = f.Home(context.Background(), log); err != nil {
		t.Fatal(err)
	}
	check(l)
	clock.Advance(3 * time.Hour)
	if s := sweep(); s.To != 150 {
		t.Fatalf("swept %+v", s)
	}
	f = reopen(t, f, dir, func(c *fabric.Config) { c.Clock = clock })
	if l, err = f.Home(context.Background(), log); err != nil {
		t.Fatal(err)
	}
	if h := l.Head(); h.Sequence != 150 || h.First != 151 || h.Records != 0 {
		t.Fatalf("head of an empty log %+v", h)
	}
	if items := fabrictest.ReadAll(t, l, 120); len(items) != 1 || items[0].Gap == nil || items[0].Gap.From != 121 || items[0].Sequence != 150 {
		t.Fatalf("empty log reads %+v", items)
	}
	if s := fabrictest.Append(t, l, record(500)); s.Err != nil || s.Position.Sequence != 151 {
		t.Fatalf("next %+v", s)
	}
}

// RT3, RT7: at its bound a log refuses loudly and works again once there is room.
func TestRT7_FullLogRefusesThenGoesOn(t *testing.T) {
	f := fabrictest.Open(t)
	var safe atomic.Uint64
	log := fabric.LogConfig{ID: mustID(t, "orders@here"), Epoch: api.StaticEpoch("here"), MaxBytes: 256 << 10, Hold: true, Safe: safe.Load}
	l, err := f.Home(context.Background(), log)
	if err != nil {
		t.Fatal(err)
	}
	stored, full := 0, 0
	for _, s := range appendMany(t, l, 0, 2000) {
		switch api.CodeOf(s.Err) {
		case "":
			stored++
		case api.StorageFull:
			full++
		default:
			t.Fatal(s.Err)
		}
	}
	h := l.Head()
	if stored == 0 || full == 0 || h.Sequence != uint64(stored) || h.Bytes > 256<<10 {
		t.Fatalf("stored %d, full %d, head %+v", stored, full, h)
	}
	if hl := f.Health().Logs[0]; hl.FullSince.IsZero() || hl.Bytes != h.Bytes {
		t.Fatalf("health %+v", hl)
	}
	safe.Store(1 << 40)
	if s, err := f.Sweep(context.Background(), log.ID); err != nil { // unless the fabric itself was first
		t.Fatalf("sweep %+v: %v", s, err)
	}
	if h := l.Head(); h.First == 1 || h.Bytes > 256<<10*3/4+1024 {
		t.Fatalf("head after the sweep %+v", h)
	}
	if s := fabrictest.Append(t, l, record(3000)); s.Err != nil {
		t.Fatal(s.Err)
	}
	if hl := f.Health().Logs[0]; !hl.FullSince.IsZero() {
		t.Fatalf("still full: %+v", hl)
	}
}

// The count of bytes that bounds a log is the broker's own.
func TestRT7_BytesAreTheBrokers(t *testing.T) {
	f := fabrictest.Open(t)
	log := fabric.LogConfig{ID: mustID(t, "orders@here"), Epoch: api.StaticEpoch("here"), MaxBytes: 1_340_000}
	l, err := f.Home(context.Background(), log)
	if err != nil {
		t.Fatal(err)
	}
	same := func() {
		t.Helper()
		s, err := f.JetStream().Stream(context.Background(), fabric.StreamName(log.ID))
		if err != nil {
			t.Fatal(err)
		}
		if got, want := l.Head().Bytes, s.CachedInfo().State.Bytes; got != want {
			t.Fatalf("%d bytes, the broker counts %d", got, want)
		}
	}
	allStored(t, appendMany(t, l, 0, 2000))
	same()
	allStored(t, appendMany(t, l, 2000, 2600))
	waitFor(t, 60*time.Second, func() bool { return l.Head().First > 1 })
	if _, err := f.Sweep(context.Background(), log.ID); err != nil {
		t.Fatal(err)
	}
	same()
}
