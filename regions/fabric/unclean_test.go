package fabric_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/minio/highwayhash"

	"domicile/api"
	"domicile/regions/fabric"
	"domicile/regions/fabric/fabrictest"
)

// killed is a copy of a running store's directory: what a kill would leave.
func killed(t *testing.T, data string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "data")
	must(t, "cp", "-r", data, dir)
	return dir
}

// zeroTail appends zeros to a file, as a file system leaves an append that was not synced.
func zeroTail(t *testing.T, path string, n int) {
	t.Helper()
	file, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err == nil {
		_, err = file.Write(make([]byte, n))
	}
	if err == nil {
		err = file.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
}

// C0: a log was empty at a clean stop, took records in the next run, and its block ends in
// zeros after a power cut. The broker's index of that stop ends in zeros too, and says that
// the log is empty.
func TestFC0_AnIndexFromBeforeTheRecordsIsNotBelieved(t *testing.T) {
	data := t.TempDir()
	for range 2 {
		f := fabrictest.Open(t, func(c *fabric.Config) { c.Dir = data })
		fabrictest.Home(t, f, "orders@here")
		closeNow(t, f)
	}
	f := fabrictest.Open(t, func(c *fabric.Config) { c.Dir = data })
	allStored(t, appendMany(t, fabrictest.Home(t, f, "orders@here"), 0, 500))
	for _, zeros := range []int{0, 8, 30, 100, 4096} {
		t.Run(fmt.Sprint(zeros), func(t *testing.T) {
			dir := killed(t, data)
			zeroTail(t, blockFiles(t, dir, mustID(t, "orders@here"))[0], zeros)
			f := fabrictest.Open(t, func(c *fabric.Config) { c.Dir = dir })
			l := fabrictest.Home(t, f, "orders@here")
			holed(t, l, 500)
			if s := fabrictest.Append(t, l, record(500)); s.Err != nil || s.Position.Sequence != 501 {
				t.Fatalf("the next: %+v", s)
			}
			closeNow(t, f)
			f = fabrictest.Open(t, func(c *fabric.Config) { c.Dir = dir })
			holed(t, fabrictest.Home(t, f, "orders@here"), 501)
		})
	}
}

// twoLogs is a running store with 60 records in each of two logs.
func twoLogs(t *testing.T, data string) {
	t.Helper()
	f := fabrictest.Open(t, func(c *fabric.Config) { c.Dir = data })
	allStored(t, appendMany(t, fabrictest.Home(t, f, "bills@here"), 0, 60))
	allStored(t, appendMany(t, fabrictest.Home(t, f, "orders@here"), 0, 60))
}

// C0: blocks that are damaged are read anew after an unclean end. The broker would cut each
// at the first damage, with all that lies behind.
func TestFC0_DamageCostsNothingThatLiesBehindIt(t *testing.T) {
	data := t.TempDir()
	twoLogs(t, data)
	dir, id := killed(t, data), mustID(t, "orders@here")
	flip(t, dir, id, "body 0", 5)                                    // the first record's body
	flip(t, dir, id, "Domicile-Id: id-000019", 3)                    // a header's name
	flip(t, dir, id, "body 39", 7+3)                                 // the broker's own checksum
	flip(t, dir, id, "body 48", 7+8+1)                               // the size of the record behind
	flip(t, dir, id, "body 59", 7+3)                                 // the broker's own checksum, of the last record
	zeroTail(t, blockFiles(t, dir, mustID(t, "bills@here"))[0], 100) // no damage
	lost := []fabric.Range{{From: 1, To: 1}, {From: 20, To: 20}, {From: 50, To: 50}}
	for range 2 {
		f := fabrictest.Open(t, func(c *fabric.Config) { c.Dir = dir })
		holed(t, fabrictest.Home(t, f, "orders@here"), 60, lost...)
		holed(t, fabrictest.Home(t, f, "bills@here"), 60)
		h := f.Health()
		if h.Logs[0].Damaged != 0 || h.Logs[1].Damaged != 3 || h.Logs[1].Shut != "" || h.Kept.Files != 1 {
			t.Errorf("health %+v", h)
		}
		closeNow(t, f)
	}
}

// C0: the broker makes less of a log than its blocks held. The log stays shut, over the next
// start too, and says so; the other one serves.
func TestFC0_ALogThatTheBrokerLosesRecordsOfStaysShut(t *testing.T) {
	data := t.TempDir()
	twoLogs(t, data)
	dir, id := killed(t, data), mustID(t, "orders@here")
	blank := filepath.Join(filepath.Dir(filepath.Dir(blockFiles(t, dir, id)[0])), "__new_msgs__") // the broker takes it for a purge
	if err := errors.Join(os.Mkdir(blank, 0o700), os.WriteFile(filepath.Join(blank, "2.blk"), nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		f := fabrictest.Open(t, func(c *fabric.Config) { c.Dir = dir })
		isShut(t, f, id)
		closeNow(t, f)
	}
	f := fabrictest.Open(t, func(c *fabric.Config) { c.Dir = dir })
	if d, err := f.Delete(t.Context(), id); err != nil || d.Incarnation == "" { // the way out
		t.Fatalf("%+v: %v", d, err)
	}
	f = reopen(t, f, dir)
	if s := fabrictest.Append(t, fabrictest.Home(t, f, "orders@here"), record(0)); s.Err != nil || s.Position.Sequence != 1 {
		t.Fatalf("made anew: %+v", s)
	}
}

// C0: a file of one log can't be read. The log stays shut, and says so; the other one serves.
// Once the file can be read the log opens, and nothing is lost.
func TestFC0_AFileThatCannotBeReadShutsItsLogAlone(t *testing.T) {
	data := t.TempDir()
	twoLogs(t, data)
	dir, id := killed(t, data), mustID(t, "orders@here")
	block := blockFiles(t, dir, id)[0]
	if err := errors.Join(os.Rename(block, block+".away"), os.Mkdir(block, 0o700)); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		f := fabrictest.Open(t, func(c *fabric.Config) { c.Dir = dir })
		isShut(t, f, id)
		closeNow(t, f)
	}
	if err := errors.Join(os.Remove(block), os.Rename(block+".away", block)); err != nil {
		t.Fatal(err)
	}
	f := fabrictest.Open(t, func(c *fabric.Config) { c.Dir = dir })
	holed(t, fabrictest.Home(t, f, "orders@here"), 60)
}

// isShut fails unless a log is refused as damaged, status says so, and bills is whole.
func isShut(t *testing.T, f *fabric.Fabric, id api.LogID) {
	t.Helper()
	_, err := f.Home(context.Background(), fabric.LogConfig{ID: id, Epoch: api.StaticEpoch("here"), MaxBytes: 64 << 20})
	if !errors.Is(err, fabric.ErrDamaged) {
		t.Errorf("opened: %v", err)
	}
	holed(t, fabrictest.Home(t, f, "bills@here"), 60)
	if h := f.Health(); h.Logs[0].Shut != "" || h.Logs[1].Shut == "" {
		t.Errorf("status %+v", h.Logs)
	}
}

// C0, A1: what is written into a log's own subjects behind the store's back can't be gone by:
// the log stays shut, and says so. The other one serves.
func TestFC0_ABadOwnershipRecordShutsItsLogAlone(t *testing.T) {
	dir, id := t.TempDir(), mustID(t, "orders@here")
	f := fabrictest.Open(t, func(c *fabric.Config) { c.Dir = dir })
	for _, log := range []string{"bills@here", "orders@here"} {
		allStored(t, appendMany(t, fabrictest.Home(t, f, log), 0, 60))
	}
	if _, err := f.JetStream().Publish(context.Background(), "o."+fabric.StreamName(id), []byte("{")); err != nil {
		t.Fatal(err)
	}
	f = reopen(t, f, dir)
	isShut(t, f, id)
}

// C0, A1: records of the control stream of a region of three are garbled behind its back. The
// next holder takes the seat, and opens every log but the one whose entry can't be read.
func TestFC0_AGarbledControlStreamStopsNoRegionOfThree(t *testing.T) {
	r := fabrictest.NewTrio(t)
	r.Start()
	holder := r.Holder()
	f := r.Node(holder)
	id := mustID(t, "orders@here")
	for _, log := range []string{"bills@here", "orders@here"} {
		fabrictest.Home(t, f, log)
	}
	eventually(t, "all have met the region", func() bool {
		return r.Node("a").ID() != "" && r.Node("b").ID() != "" && r.Node("c").ID() != ""
	})
	term := func(f *fabric.Fabric) uint64 { seat, _ := f.Seat(); return seat.Term }
	before := term(f)
	for _, subject := range []string{"s.who", "s.seat", "s.log." + fabric.StreamName(id), "s.log.nothing"} {
		if _, err := f.JetStream().Publish(t.Context(), subject, []byte("{\"term\":")); err != nil {
			t.Fatal(err)
		}
	}
	_ = f.StepDown(t.Context())
	_ = f.Vacate(t.Context())
	next := r.Node(r.Holder(holder))
	if term(next) <= before {
		t.Errorf("term %d after %d", term(next), before)
	}
	if _, err := next.Home(t.Context(), fabric.LogConfig{ID: id, Epoch: api.StaticEpoch("here"), MaxBytes: 64 << 20}); !errors.Is(err, fabric.ErrDamaged) {
		t.Errorf("opened: %v", err)
	}
	if s := fabrictest.Append(t, fabrictest.Home(t, next, "bills@here"), record(0)); s.Err != nil {
		t.Error(s.Err)
	}
}

// emptyIndexes gives every store of the broker's below a directory, those of its groups too, the index that
// it writes of one that never held anything, and every last block a tail of zeros.
func emptyIndexes(t *testing.T, dir string, zeros int) (stores int) {
	t.Helper()
	last := map[string]string{}
	err := filepath.WalkDir(filepath.Join(dir, "broker"), func(path string, d fs.DirEntry, err error) error {
		if err == nil && filepath.Ext(path) == ".blk" && last[filepath.Dir(path)] <= path {
			last[filepath.Dir(path)] = path
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for msgs, block := range last {
		key := sha256.Sum256([]byte(filepath.Base(filepath.Dir(msgs))))
		sum, err := highwayhash.New64(key[:])
		if err != nil {
			t.Fatal(err)
		}
		number, err := strconv.Atoi(strings.TrimSuffix(filepath.Base(block), ".blk"))
		if err != nil || number > 127 {
			t.Fatalf("block %s: %v", block, err)
		}
		index := []byte{11, 4, 0, 0, 0, 0, 0, 0, 0, 1, byte(number), 0, 1, 0, 0, 0, 0, 0, 0, byte(number), 0, 0, 0, 0, 0, 0, 0, 0}
		_, _ = sum.Write(index)
		if err := os.WriteFile(filepath.Join(msgs, "index.db"), sum.Sum(index), 0o600); err != nil {
			t.Fatal(err)
		}
		zeroTail(t, block, zeros)
	}
	return len(last)
}

// C0: the power of all three nodes goes at once, and every index of each, of the logs, the
// control stream and the groups, is one from before the records.
func TestFC0_NoNodeOfThreeBelievesAnOldIndex(t *testing.T) {
	r := fabrictest.NewTrio(t)
	r.Start()
	d := newDesk(t, r, "orders@here")
	stored := d.append(0, 300)
	after := map[string]string{}
	for node, c := range r.Configs {
		after[node] = killed(t, c.Dir)
	}
	for _, node := range slices.Sorted(maps.Keys(after)) {
		if err := r.Close(node); err != nil {
			t.Log(err)
		}
		c := r.Configs[node]
		c.Dir = after[node]
		r.Configs[node] = c
		if n := emptyIndexes(t, c.Dir, 100); n < 4 {
			t.Fatalf("%d stores", n)
		}
	}
	r.Start()
	checkLog(t, newDesk(t, r, "orders@here").log(), stored)
}

// C0: the index that a log got while it was empty, at a clean stop or by the broker's ticker,
// meets tails of zeros of any length.
func TestFC0_AnIndexOfAnEmptyLogMeetsAnyTail(t *testing.T) {
	data := t.TempDir()
	twoLogs(t, data)
	for zeros := 1; zeros <= 4096; zeros = zeros*3 + 1 {
		dir := killed(t, data)
		emptyIndexes(t, dir, zeros)
		f := fabrictest.Open(t, func(c *fabric.Config) { c.Dir = dir })
		holed(t, fabrictest.Home(t, f, "orders@here"), 60)
		holed(t, fabrictest.Home(t, f, "bills@here"), 60)
		closeNow(t, f)
	}
}

// C0: what a group of one node agreed on is damaged in the middle of a block, which the broker
// would cut. That node forgets nothing: it stays out of its region, which goes on with two,
// until it is told to rejoin, and is filled then.
func TestFC0_ANodeWhoseGroupsWouldForgetStaysOut(t *testing.T) {
	r := fabrictest.NewTrio(t)
	r.Start()
	stored := newDesk(t, r, "orders@here").append(0, 300)
	c := r.Configs["a"]
	c.Dir = killed(t, c.Dir)
	if err := r.Close("a"); err != nil {
		t.Log(err)
	}
	r.Configs["a"] = c
	files, err := filepath.Glob(filepath.Join(c.Dir, "broker", "jetstream", "SYS", "_js_", "*", "msgs", "*.blk"))
	if err != nil {
		t.Fatal(err)
	}
	hit := 0
	for _, path := range files {
		b, err := os.ReadFile(path)
		if err == nil && len(b) > 10_000 {
			hit++
			b[40] ^= 1 // in the first entry
			err = os.WriteFile(path, b, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if hit == 0 {
		t.Fatalf("no group holds much: %v", files)
	}
	if why := refusedStart(t, c); !strings.Contains(why, "rejoin") {
		t.Errorf("refused with %s", why)
	}
	more := newDesk(t, r, "orders@here")
	checkLog(t, more.log(), append(stored, more.append(300, 400)...))
	r.Configs["a"].Cluster.Rejoin = true
	r.Start("a")
	within(t, 2*time.Minute, "the node is filled", func() bool {
		return len(r.Node("a").Spoilt()) == 0 && r.Node("a").Members()[0].Lacks == ""
	})
}
