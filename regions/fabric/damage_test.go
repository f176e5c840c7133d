package fabric_test

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"domicile/api"
	"domicile/regions"
	"domicile/regions/fabric"
	"domicile/regions/fabric/fabrictest"
)

// blockFiles is the broker's files of a log.
func blockFiles(t *testing.T, dir string, id api.LogID) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "broker", "jetstream", "*", "streams", fabric.StreamName(id), "msgs", "*.blk"))
	if err != nil || len(files) == 0 {
		t.Fatalf("blocks %v: %v", files, err)
	}
	return files
}

// find is where a text first stands in a block, below 0 for nowhere. A record's body is looked
// for behind its id: "body 5" before a checksum that begins with a 9 reads as "body 59".
func find(b []byte, text string) int {
	var i, from int
	if _, err := fmt.Sscanf(text, "body %d", &i); err == nil {
		if from = bytes.Index(b, []byte("Domicile-Id: "+record(i).ID)); from < 0 {
			return from
		}
	}
	at := bytes.Index(b[from:], []byte(text))
	if at < 0 {
		return at
	}
	return from + at
}

func TestFC4_ABodyIsFoundBehindItsId(t *testing.T) {
	b := []byte("Domicile-Id: id-000005\r\n\r\nbody 59sumDomicile-Id: id-000059\r\n\r\nbody 59")
	if at, want := find(b, "body 59"), len(b)-len("body 59"); at != want {
		t.Errorf("found at %d, want %d", at, want)
	}
	if at := find(b, "body 8"); at >= 0 {
		t.Errorf("what is not there was found at %d", at)
	}
}

// flip turns one bit of the byte that lies off bytes from the first text found in a log's
// blocks.
func flip(t *testing.T, dir string, id api.LogID, text string, off int) {
	t.Helper()
	for _, path := range blockFiles(t, dir, id) {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if at := find(b, text); at >= 0 {
			b[at+off] ^= 0x10
			if err := os.WriteFile(path, b, 0o600); err != nil {
				t.Fatal(err)
			}
			return
		}
	}
	t.Fatalf("no block holds %q", text)
}

// holed fails unless a reader is shown sequences 1 to n with the ranges given missing as
// damaged, and every other record as it was published.
func holed(t *testing.T, l regions.Log, n int, missing ...fabric.Range) {
	t.Helper()
	next := uint64(1)
	var gaps []fabric.Range
	for _, it := range fabrictest.ReadAll(t, l, 0) {
		from := it.Sequence
		if it.Gap != nil {
			if it.Gap.Kind != regions.Damaged {
				t.Fatalf("gap %+v", it.Gap)
			}
			from = it.Gap.From
			gaps = append(gaps, fabric.Range{From: it.Gap.From, To: it.Gap.To})
		} else if diff := cmp.Diff(record(int(it.Sequence-1)).Body, it.Record.Body); diff != "" || it.Record.ID != record(int(it.Sequence-1)).ID {
			t.Fatalf("sequence %d was served as %q: %s", it.Sequence, it.Record.ID, diff)
		}
		if from != next {
			t.Fatalf("an item begins at %d, want %d", from, next)
		}
		next = it.Sequence + 1
	}
	if next != uint64(n+1) || !cmp.Equal(gaps, missing) {
		t.Fatalf("read up to %d of %d, gaps %v, want %v", next-1, n, gaps, missing)
	}
}

// RA1, report B39 and its like: a bit flips in the block of a closed store. The record is
// set aside, named and never served; all others are, one with a damaged checksum of the
// broker included; no sequence is given again; an audit finds them.
func TestRA1_FlippedBitIsSetAside(t *testing.T) {
	dir := t.TempDir()
	f := fabrictest.Open(t, func(c *fabric.Config) { c.Dir = dir })
	l := fabrictest.Home(t, f, "orders@here")
	allStored(t, appendMany(t, l, 0, 60))
	closeNow(t, f)
	id := mustID(t, "orders@here")
	flip(t, dir, id, "body 0", 5)                 // the first record's body
	flip(t, dir, id, "Domicile-Id: id-000019", 3) // a header's name
	flip(t, dir, id, "body 29", -40)              // a header's value
	flip(t, dir, id, "body 39", 7+3)              // the broker's own checksum
	flip(t, dir, id, "body 59", 2)                // the last record's body
	f = fabrictest.Open(t, func(c *fabric.Config) { c.Dir = dir })
	l = fabrictest.Home(t, f, "orders@here")
	if s := fabrictest.Append(t, l, record(60)); s.Err != nil || s.Position.Sequence != 61 {
		t.Fatalf("next: %+v", s)
	}
	lost := []fabric.Range{{From: 1, To: 1}, {From: 20, To: 20}, {From: 30, To: 30}, {From: 60, To: 60}}
	holed(t, l, 61, lost...)
	v, err := f.Verify(context.Background(), id)
	if err != nil || v.Damaged != 4 || v.Checked != 57 || v.Records != 57 || v.WithoutSum != 0 || !v.DamageKnown || !cmp.Equal(v.Ranges, lost) {
		t.Fatalf("%+v: %v", v, err)
	}
	if h := f.Health(); h.Failed || h.Logs[0].Damaged != 4 || len(h.Logs[0].Damage) != 4 {
		t.Fatalf("health %+v", h)
	}
	if s := fabrictest.Append(t, l, record(40)); s.Err != nil || !s.Duplicate {
		t.Fatalf("a good one again: %+v", s)
	}
}

// The last records of a log are damaged and nothing follows: a reader learns of them and
// a mirror's ledger adds up.
func TestRA1_DamagedEndIsAGap(t *testing.T) {
	dir := t.TempDir()
	f := fabrictest.Open(t, func(c *fabric.Config) { c.Dir = dir })
	allStored(t, appendMany(t, fabrictest.Home(t, f, "orders@here"), 0, 20))
	closeNow(t, f)
	id := mustID(t, "orders@here")
	flip(t, dir, id, "body 18", 0)
	flip(t, dir, id, "body 19", 0)
	f = fabrictest.Open(t, func(c *fabric.Config) { c.Dir = dir })
	l := fabrictest.Home(t, f, "orders@here")
	holed(t, l, 20, fabric.Range{From: 19, To: 20})
	cp := fabrictest.Copy(t, f, "orders@there")
	apply(t, cp, fabrictest.ReadAll(t, l, 0)...)
	if c := cp.Cursor(); c.Sequence != 20 || c.Ledger != (regions.Ledger{Mirrored: 18, Damaged: 2}) {
		t.Fatalf("cursor %+v", c)
	}
}

// A record is damaged on its way to the broker, whose own checksum then fits what it
// stored. Only ours can tell; also when what is damaged is a header that tells the place. Nobody
// is told that a retry of it is stored.
func TestRA1_DamageTheBrokerCannotSeeIsSetAside(t *testing.T) {
	var armed atomic.Bool
	f := fabrictest.Open(t, func(c *fabric.Config) {
		c.Hooks.Wire = func(conn net.Conn) net.Conn { return flippingConn{conn, &armed} }
	})
	l := fabrictest.Home(t, f, "orders@here")
	allStored(t, appendMany(t, l, 0, 4))
	armed.Store(true)
	allStored(t, appendMany(t, l, 4, 12))
	armed.Store(false)
	allStored(t, appendMany(t, l, 12, 20))
	holed(t, l, 20, fabric.Range{From: 6, To: 6}, fabric.Range{From: 8, To: 8})
	wantCode(t, fabrictest.Append(t, l, record(5)).Err, api.StorageFailed)
	if s := fabrictest.Append(t, l, record(6)); s.Err != nil || !s.Duplicate {
		t.Fatalf("a good one again: %+v", s)
	}
}

// flippingConn damages the bodies of record 5 and the position of record 7.
type flippingConn struct {
	net.Conn
	armed *atomic.Bool
}

func (c flippingConn) Write(b []byte) (int, error) {
	if c.armed.Load() {
		b = bytes.Replace(b, []byte("body 5\r\n"), []byte("body 4\r\n"), 1)
		if at := bytes.Index(b, []byte("Domicile-Id: "+record(7).ID)); at >= 0 {
			b = bytes.Clone(b)
			at += bytes.Index(b[at:], []byte("Domicile-Position: "))
			b[at+5] = '?'
		}
	}
	return c.Conn.Write(b)
}

// What format 1 stored has no checksum: an audit says so, still holds every body against
// its hash, and counts what was written since as checked.
func TestUpgrade_Format1HasNoChecksums(t *testing.T) {
	dir := t.TempDir()
	unpack(t, filepath.Join("testdata", "format-1", "clean.tar.gz"), dir)
	log := fixtureLog(t)
	flip(t, dir, log.ID, "body 33: ", 9)
	clock := regions.NewManualClock(fixtureStart.Add(fixtureLog(t).MaxAge))
	f := fabrictest.Open(t, func(c *fabric.Config) { c.Dir, c.Clock = dir, clock })
	l, err := f.Home(context.Background(), log)
	if err != nil {
		t.Fatal(err)
	}
	allStored(t, appendMany(t, l, 1000, 1007))
	v, err := f.Verify(context.Background(), log.ID)
	if err != nil || v.WithoutSum != fixtureRecords-fixtureSwept-1 || v.Checked != 7 || !cmp.Equal(v.Ranges, []fabric.Range{{From: 34, To: 34}}) {
		t.Fatalf("%+v: %v", v, err)
	}
}

// RA5: the broker's answer to a batch is lost, and a record of it is damaged when the log is
// read back. What lies before it is acknowledged; from there on nobody is told that a record
// is stored or lost, nor that another writer came; the log says why it stopped, and the
// next start goes on behind what is damaged.
func TestRA5_DamageFoundByTheReadBackIsUnknown(t *testing.T) {
	dir := t.TempDir()
	var armed, drop atomic.Bool
	f := fabrictest.Open(t, func(c *fabric.Config) {
		c.Dir = dir
		c.Hooks.Wire = func(conn net.Conn) net.Conn { return flippingConn{conn, &armed} }
		c.Hooks.DropAck = func(api.LogID) bool { return drop.Swap(false) }
	})
	l := fabrictest.Home(t, f, "orders@here")
	allStored(t, appendMany(t, l, 0, 5))
	armed.Store(true)
	drop.Store(true)
	wantCode(t, fabrictest.Append(t, l, record(5)).Err, api.OutcomeUnknown)
	armed.Store(false)
	refused := fabrictest.Append(t, l, record(6))
	wantCode(t, refused.Err, api.StorageFailed)
	h := f.Health().Logs[0]
	for _, why := range []string{refused.Err.Error(), h.Stopped} {
		if !strings.Contains(why, "damaged") || strings.Contains(why, "another writer") {
			t.Errorf("said: %s", why)
		}
	}
	closeNow(t, f)
	f = fabrictest.Open(t, func(c *fabric.Config) { c.Dir = dir })
	l = fabrictest.Home(t, f, "orders@here")
	if s := fabrictest.Append(t, l, record(6)); s.Err != nil || s.Duplicate || s.Position.Sequence != 7 {
		t.Fatalf("after a start: %+v", s)
	}
	holed(t, l, 7, fabric.Range{From: 6, To: 6})
}

// RA1: after an unclean end a block holds a damaged record with good ones behind it, which
// the broker would cut away. A copy of the block is kept first, byte for byte, counted and
// said. An intact block, and one whose end was not
// written whole, are not copied.
func TestRA1_DamagedBlockIsKeptBeforeTheBrokerCutsIt(t *testing.T) {
	data := t.TempDir()
	f := fabrictest.Open(t, func(c *fabric.Config) { c.Dir = data })
	l := fabrictest.Home(t, f, "orders@here")
	allStored(t, appendMany(t, l, 0, 60))
	id := mustID(t, "orders@here")
	killed := func() string { // what a kill would leave
		dir := filepath.Join(t.TempDir(), "data")
		must(t, "cp", "-r", data, dir)
		return dir
	}
	kept := func(dir string) (files []string) {
		f := fabrictest.Open(t, func(c *fabric.Config) { c.Dir = dir })
		files, _ = filepath.Glob(filepath.Join(dir, "quarantine", "blocks", fabric.StreamName(id), "*.blk"))
		if h := f.Health(); h.Kept.Files != len(files) || h.Kept.Over != 0 {
			t.Errorf("health says %+v of %d files", h.Kept, len(files))
		}
		closeNow(t, f)
		return files
	}
	if files := kept(killed()); len(files) != 0 {
		t.Errorf("of an intact block: %v", files)
	}
	torn := killed()
	path := blockFiles(t, torn, id)[0]
	info, err := os.Stat(path)
	if err == nil {
		err = os.Truncate(path, info.Size()-20)
	}
	if err != nil {
		t.Fatal(err)
	}
	if files := kept(torn); len(files) != 0 {
		t.Errorf("of a torn block: %v", files)
	}
	for off, where := range map[int]string{5: "body 20", -60: "body 30"} {
		dir := killed()
		flip(t, dir, id, where, off)
		want, err := os.ReadFile(blockFiles(t, dir, id)[0])
		if err != nil {
			t.Fatal(err)
		}
		files := kept(dir)
		if len(files) != 1 {
			t.Fatalf("kept %v", files)
		}
		if got, err := os.ReadFile(files[0]); err != nil || !bytes.Equal(got, want) || find(got, "body 59") < 0 {
			t.Errorf("another block was kept: %v", err)
		}
	}
}
