package fabric_test

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"domicile/api"
	"domicile/regions"
	"domicile/regions/fabric"
	"domicile/regions/fabric/fabrictest"
)

// fixtureDir names where TestUpgrade_WriteFixture puts what this binary's store format
// looks like. A new format's fixture is made with it, once, and kept for good.
const fixtureDir = "FABRIC_TEST_WRITE_FIXTURE"

const (
	fixtureRecords = 60
	fixtureSwept   = 20 // the first of them, which retention took
	fixturePurged  = 25 // and, since format 2, so many that an operator did
)

// fixtureStart is the time on the fixture's clock when its first record is stored.
var fixtureStart = time.Unix(1_800_000_000, 0)

func fixtureLog(t testing.TB) fabric.LogConfig {
	return fabric.LogConfig{ID: mustID(t, "Orders.EU@here"), Epoch: api.StaticEpoch("here"), MaxBytes: 8 << 20, MaxAge: time.Hour}
}

func fixtureRecord(i int) api.Record {
	r := record(i)
	r.Body = fmt.Appendf(nil, "body %d: %x", i, sha256.Sum256([]byte{byte(i)}))
	r.Headers = append(r.Headers, api.Header{Name: "Shape", Value: "a: b, c=\"d\""})
	return r
}

// fixture is what a store of one format holds.
type fixture struct {
	format string
	gaps   []regions.Gap  // that the home begins with
	items  []regions.Item // of the copy
	ledger regions.Ledger // of the copy
	gone   uint64         // the last sequence of a log that was deleted; 0: none was
	moved  bool           // it holds a former home with void records
}

func fixtures() map[string]fixture {
	items := []regions.Item{copied(1), copied(2), gap(regions.Withheld, 3, 7), copied(8), gap(regions.Expired, 9, 9), gap(regions.Purged, 10, 11), copied(12)}
	swept := regions.Gap{Kind: regions.Expired, From: 1, To: fixtureSwept}
	one := fixture{"format-1", []regions.Gap{swept}, items, regions.Ledger{Mirrored: 4, Withheld: 5, Expired: 1, Purged: 2}, 0, false}
	two := one
	two.format, two.gone = "format-2", 5
	two.gaps = append(two.gaps, regions.Gap{Kind: regions.Purged, From: fixtureSwept + 1, To: fixturePurged})
	two.items = append(slices.Clone(items), gap(regions.Damaged, 13, 15), copied(16))
	two.ledger.Mirrored, two.ledger.Damaged = 5, 3
	three := two
	three.format, three.moved = "format-3", true
	return map[string]fixture{one.format: one, two.format: two, three.format: three}
}

// TestUpgrade_WriteFixture writes a small store of this binary's format: a home with all
// fields of a record, a sweep and a purge, a copy with gaps, a log that was deleted, one
// that moved; once closed, once as a killed process leaves it.
func TestUpgrade_WriteFixture(t *testing.T) {
	to := os.Getenv(fixtureDir)
	if to == "" {
		t.Skip("set " + fixtureDir + " to write the fixture of a new store format")
	}
	dir := t.TempDir()
	clock := regions.NewManualClock(fixtureStart)
	f := fabrictest.Open(t, func(c *fabric.Config) { c.Dir, c.Clock = dir, clock })
	l, err := f.Home(context.Background(), fixtureLog(t))
	if err != nil {
		t.Fatal(err)
	}
	cp := fabrictest.Copy(t, f, "orders@there")
	for i := range fixtureRecords {
		if i == fixtureSwept {
			clock.Advance(2 * time.Hour)
		}
		s := fabrictest.Append(t, l, fixtureRecord(i))
		allStored(t, []regions.Stored{s})
	}
	if s, err := f.Sweep(context.Background(), l.ID()); err != nil || s.To != fixtureSwept {
		t.Fatalf("swept %+v: %v", s, err)
	}
	ctx := context.Background()
	if s, err := f.Purge(ctx, l.ID(), fixturePurged); err != nil || s.To != fixturePurged {
		t.Fatalf("purged %+v: %v", s, err)
	}
	two := fixtures()["format-2"]
	apply(t, cp, two.items...)
	gone := fabrictest.Home(t, f, "gone@here")
	allStored(t, appendMany(t, gone, 0, int(two.gone)))
	if d, err := f.Delete(ctx, gone.ID()); err != nil || d.Last != two.gone {
		t.Fatalf("deleted %+v: %v", d, err)
	}
	writeMoved(t, f)
	pack(t, dir, filepath.Join(to, "killed.tar.gz"))
	closeNow(t, f)
	pack(t, dir, filepath.Join(to, "clean.tar.gz"))
}

// Issue 3, upgrade: this binary reads what every store format holds, goes on writing in
// it, and reads both after another start.
func TestUpgrade_ReadsEveryFormat(t *testing.T) {
	for format, x := range fixtures() {
		for _, how := range []string{"clean", "killed"} {
			t.Run(format+" "+how, func(t *testing.T) { readsFixture(t, x, how) })
		}
	}
}

func readsFixture(t *testing.T, x fixture, how string) {
	dir := t.TempDir()
	unpack(t, filepath.Join("testdata", x.format, how+".tar.gz"), dir)
	clock := regions.NewManualClock(fixtureStart.Add(2*time.Hour + time.Minute))
	open := func() (*fabric.Fabric, regions.HomeLog, regions.CopyLog) {
		t.Helper()
		f := fabrictest.Open(t, func(c *fabric.Config) { c.Dir, c.Clock = dir, clock })
		l, err := f.Home(context.Background(), fixtureLog(t))
		if err != nil {
			t.Fatal(err)
		}
		return f, l, fabrictest.Copy(t, f, "orders@there")
	}
	f, l, cp := open()
	taken := x.gaps[len(x.gaps)-1].To
	if h := l.Head(); h.Sequence != fixtureRecords || h.First != taken+1 || h.Records != fixtureRecords-taken || (h.Term == 1) != (how == "clean") {
		t.Fatalf("head %+v", h)
	}
	x.checkHome(t, l, fixtureRecords)
	if diff := cmp.Diff(x.items, withoutTopic(fabrictest.ReadAll(t, cp, 0))); diff != "" {
		t.Fatal(diff)
	}
	last := x.items[len(x.items)-1].Sequence
	if c := cp.Cursor(); c.Sequence != last || c.Ledger != x.ledger {
		t.Fatalf("cursor %+v", c)
	}
	if x.moved {
		readMoved(t, f)
	}
	if d, ok := f.Deleted(mustID(t, "gone@here")); ok != (x.gone > 0) || d.Last != x.gone {
		t.Fatalf("deleted: %+v, %v", d, ok)
	}
	if s := fabrictest.Append(t, l, fixtureRecord(fixtureRecords-1)); s.Err != nil || !s.Duplicate || s.Position.Sequence != fixtureRecords {
		t.Fatalf("an id of the old format is not known: %+v", s)
	}
	for i := fixtureRecords; i < fixtureRecords+10; i++ {
		if s := fabrictest.Append(t, l, fixtureRecord(i)); s.Err != nil || s.Position.Sequence != uint64(i+1) {
			t.Fatalf("append %d: %+v", i, s)
		}
	}
	apply(t, cp, copied(int(last)+1))
	closeNow(t, f)
	_, l, cp = open()
	x.checkHome(t, l, fixtureRecords+10)
	if c := cp.Cursor(); c.Sequence != last+1 || c.Ledger.Sum() != last+1 {
		t.Fatalf("cursor %+v", c)
	}
}

// movedLog is a log whose home went elsewhere after its sixth record of ten, and which
// mirrors the new one.
func movedLog(t testing.TB, e api.Epoch) fabric.LogConfig {
	return fabric.LogConfig{ID: mustID(t, "moved@here"), Epoch: e, MaxBytes: 1 << 20}
}

func writeMoved(t *testing.T, f *fabric.Fabric) {
	ctx := context.Background()
	l, err := f.Home(ctx, movedLog(t, epoch(1)))
	if err != nil {
		t.Fatal(err)
	}
	allStored(t, appendMany(t, l, 0, 10))
	if _, err := f.Fence(ctx, l.ID(), epoch(1), "op"); err != nil {
		t.Fatal(err)
	}
	if err := f.CloseLog(ctx, l.ID()); err != nil {
		t.Fatal(err)
	}
	as := movedLog(t, api.Epoch{})
	as.History = ended(6)
	c, err := f.Copy(ctx, as)
	if err != nil {
		t.Fatal(err)
	}
	mirror(t, c, c.Cursor().Incarnation, []regions.Item{itemIn(2, 6), itemIn(2, 7)})
}

func readMoved(t *testing.T, f *fabric.Fabric) {
	t.Helper()
	ctx := context.Background()
	c, err := f.Copy(ctx, movedLog(t, api.Epoch{}))
	if err != nil {
		t.Fatal(err)
	}
	if at := c.Cursor(); at.Sequence != 8 || at.Epoch != epoch(2) || at.Ledger.Sum() != 8 || len(fabrictest.ReadAll(t, c, 0)) != 8 {
		t.Fatalf("cursor %+v", at)
	}
	if all, err := f.Diverged(c.ID()); err != nil || len(all) != 1 || all[0].From != 7 || all[0].To != 10 || all[0].Records != 4 {
		t.Fatalf("void %+v %v", all, err)
	}
	if _, err := f.Freeze(ctx, c.ID(), "op"); err != nil {
		t.Fatal(err)
	}
	if err := f.CloseLog(ctx, c.ID()); err != nil {
		t.Fatal(err)
	}
	l, err := f.Home(ctx, movedLog(t, epoch(3)))
	if err != nil {
		t.Fatal(err)
	}
	if s := fabrictest.Append(t, l, record(20)); s.Err != nil || s.Position.Sequence != 9 || s.Position.Epoch != epoch(3) {
		t.Fatalf("%+v", s)
	}
}

func withoutTopic(items []regions.Item) []regions.Item {
	for i := range items {
		items[i].Record.Topic = ""
	}
	return items
}

func (x fixture) checkHome(t *testing.T, l regions.Log, n int) {
	t.Helper()
	items := withoutTopic(fabrictest.ReadAll(t, l, 0))
	for _, want := range x.gaps {
		if len(items) == 0 || items[0].Gap == nil || items[0].Gap.Kind != want.Kind || items[0].Gap.From != want.From || items[0].Gap.To != want.To {
			t.Fatalf("%d items, the first %+v, want %+v", len(items), items[0], want)
		}
		items = items[1:]
	}
	taken := int(x.gaps[len(x.gaps)-1].To)
	if len(items) != n-taken {
		t.Fatalf("%d records, want %d", len(items), n-taken)
	}
	for i, it := range items {
		if diff := cmp.Diff(fixtureRecord(taken+i), it.Record); diff != "" || it.Sequence != uint64(taken+i+1) || it.Revision != "test-1" {
			t.Fatalf("sequence %d: %s", it.Sequence, diff)
		}
	}
}

// Issue 3, upgrade: a binary refuses a store that a newer one wrote, says what to do, and
// touches nothing.
func TestUpgrade_NewerStoreRefused(t *testing.T) {
	dir := t.TempDir()
	unpack(t, filepath.Join("testdata", "format-1", "clean.tar.gz"), dir)
	changeMark(t, filepath.Join(dir, "identity.json"), func(mark map[string]any) { mark["format"] = 1000 })
	before := fabrictest.TreeSum(t, dir)
	cfg := fabrictest.Config(t)
	cfg.Dir = dir
	f, err := fabric.Open(context.Background(), cfg)
	if err == nil {
		closeNow(t, f)
	}
	wantCode(t, err, api.ConfigInvalid)
	var e *api.Error
	if !errors.As(err, &e) || e.Field != "format" || e.Value != "1000" {
		t.Errorf("refused with %v", err)
	}
	if fabrictest.TreeSum(t, dir) != before {
		t.Error("the newer store was changed")
	}
}

// A node of three that never met its region raises the format of its store too: what it writes
// next is of the new one.
func TestUpgrade_NodeThatMetNobodyIsRaised(t *testing.T) {
	r := fabrictest.NewTrio(t)
	r.Start("a")
	if err := r.Close("a"); err != nil {
		t.Fatal(err)
	}
	path, now := filepath.Join(r.Configs["a"].Dir, "identity.json"), any(nil)
	changeMark(t, path, func(mark map[string]any) { now, mark["format"] = mark["format"], 2 })
	r.Start("a")
	changeMark(t, path, func(mark map[string]any) {
		if mark["format"] != now || mark["fabric"] != "" {
			t.Errorf("format %v of fabric %q, want %v", mark["format"], mark["fabric"], now)
		}
	})
}

func pack(t *testing.T, dir, to string) {
	t.Helper()
	file, err := os.Create(to)
	if err != nil {
		t.Fatal(err)
	}
	z := gzip.NewWriter(file)
	w := tar.NewWriter(z)
	if err := errors.Join(w.AddFS(os.DirFS(dir)), w.Close(), z.Close(), file.Close()); err != nil {
		t.Fatal(err)
	}
}

func unpack(t *testing.T, from, dir string) {
	t.Helper()
	file, err := os.Open(from)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	z, err := gzip.NewReader(file)
	if err != nil {
		t.Fatal(err)
	}
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(dir, filepath.FromSlash(h.Name))
		if h.FileInfo().IsDir() {
			err = os.MkdirAll(path, 0o700)
		} else if err = os.MkdirAll(filepath.Dir(path), 0o700); err == nil {
			var b []byte
			if b, err = io.ReadAll(r); err == nil {
				err = os.WriteFile(path, b, 0o600)
			}
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}
