package fabric_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"domicile/api"
	"domicile/regions"
	"domicile/regions/fabric"
	"domicile/regions/fabric/fabrictest"
)

func at(dir string) fabric.Config {
	return fabric.Config{Region: "here", Federation: "test", Dir: dir, MaxStore: 1 << 30}
}

// oldStore is a store with a home whose front retention took and whose last writer
// was taken over, and a copy with gaps. It says what both show.
func oldStore(t *testing.T, dir string, n int) (home, copied []regions.Item, h regions.Head, c regions.Cursor) {
	t.Helper()
	f := fabrictest.Open(t, func(c *fabric.Config) { c.Dir = dir })
	l := fabrictest.Home(t, f, "orders@here")
	allStored(t, appendMany(t, l, 0, n/2))
	if err := f.Vacate(context.Background()); err != nil {
		t.Fatal(err)
	}
	l, err := f.Home(context.Background(), fabric.LogConfig{ID: l.ID(), Epoch: api.StaticEpoch("here"), MaxBytes: 64 << 20,
		MaxAge: time.Nanosecond, Hold: true, Safe: func() uint64 { return 10 }})
	if err != nil {
		t.Fatal(err)
	}
	if swept, err := f.Sweep(context.Background(), l.ID()); err != nil || swept.To != 10 {
		t.Fatalf("%+v, %v", swept, err)
	}
	allStored(t, appendMany(t, l, n/2, n))
	k := fabrictest.Copy(t, f, "orders@there")
	apply(t, k, gap(regions.Expired, 1, 4), copied1(5), copied1(6), gap(regions.Withheld, 7, 9), copied1(10))
	home, copied, h, c = fabrictest.ReadAll(t, l, 0), fabrictest.ReadAll(t, k, 0), l.Head(), k.Cursor()
	closeNow(t, f)
	return home, copied, h, c
}

func copied1(i int) regions.Item {
	it := copied(i)
	it.Record.Headers = []api.Header{{Name: "A", Value: "b: c"}}
	return it
}

func move(t *testing.T, from, to string) ([]fabric.Moved, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	m, err := fabric.NewMove(ctx, at(from), at(to))
	if err != nil {
		return nil, err
	}
	moved, err := m.Run(ctx, func(fabric.MoveProgress) {})
	return moved, errors.Join(err, m.Close(ctx))
}

// holds opens the moved store and fails unless it is the old one, goes on where that
// ended, and knows its ids.
func holds(t *testing.T, dir string, home, copied []regions.Item, was regions.Head, cursor regions.Cursor, n int) {
	t.Helper()
	f := fabrictest.Open(t, func(c *fabric.Config) { c.Dir = dir })
	l := fabrictest.Home(t, f, "orders@here")
	if d := cmp.Diff(home, fabrictest.ReadAll(t, l, 0)); d != "" {
		t.Fatalf("home: %.2000s", d)
	}
	h := l.Head()
	if h.Incarnation != was.Incarnation || h.Sequence != was.Sequence || !h.Time.Equal(was.Time) || h.First != was.First || h.Records != was.Records {
		t.Errorf("head %+v, was %+v", h, was)
	}
	if h.Term != was.Term+1 {
		t.Errorf("writer term %d after %d", h.Term, was.Term)
	}
	again := appendMany(t, l, n-5, n+1)
	for i, s := range again[:5] {
		if s.Err != nil || !s.Duplicate || s.Position.Sequence != uint64(n-4+i) || s.Position.Incarnation != was.Incarnation {
			t.Errorf("retry of a moved record: %+v", s)
		}
	}
	if s := again[5]; s.Err != nil || s.Duplicate || s.Position.Sequence != uint64(n+1) || s.Term != was.Term+1 {
		t.Errorf("first new record: %+v", s)
	}
	k := fabrictest.Copy(t, f, "orders@there")
	if d := cmp.Diff(copied, fabrictest.ReadAll(t, k, 0)); d != "" {
		t.Errorf("copy: %s", d)
	}
	if d := cmp.Diff(cursor, k.Cursor()); d != "" {
		t.Errorf("cursor: %s", d)
	}
	apply(t, k, copied1(11))
	closeNow(t, f)
}

// Decision 3, recommended 27: a store is taken over into a new one with all it is, and
// the old one never opens again.
func TestRA1_MovedStoreIsTheSameAndTheOldOneRetires(t *testing.T) {
	from, to := filepath.Join(t.TempDir(), "old"), filepath.Join(t.TempDir(), "new")
	const n = 3000
	home, copies, head, cursor := oldStore(t, from, n)
	moved, err := move(t, from, to)
	if err != nil {
		t.Fatal(err)
	}
	if len(moved) != 2 || moved[0].Records != n-10 || moved[0].First != 11 || moved[0].Last != n || moved[1].Records != 3 || moved[1].Last != 10 {
		t.Fatalf("%+v", moved)
	}
	_, err = fabric.Open(context.Background(), at(from))
	wantCode(t, err, api.ConfigInvalid)
	if !strings.Contains(err.Error(), to) {
		t.Errorf("the refusal does not say where the store went: %v", err)
	}
	holds(t, to, home, copies, head, cursor, n)
	_, err = move(t, from, filepath.Join(t.TempDir(), "third"))
	wantCode(t, err, api.ConfigInvalid)
}

const (
	childMoveFrom = "FABRIC_TEST_MOVE_FROM"
	childMoveTo   = "FABRIC_TEST_MOVE_TO"
	childMoveEnd  = "FABRIC_TEST_MOVE_END" // stage at which the process kills itself
)

// runMove is the process that kills itself in the middle of a move.
func runMove() bool {
	from := os.Getenv(childMoveFrom)
	if from == "" {
		return false
	}
	end := os.Getenv(childMoveEnd)
	die := func(stage string) {
		if end == "any" && stage == "copied" {
			select {} // until the kill
		}
		if stage == end {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {}
		}
	}
	cfg := at(from)
	cfg.Hooks.Step = die
	m, err := fabric.NewMove(context.Background(), cfg, at(os.Getenv(childMoveTo)))
	if err == nil {
		die("made")
		if end == "any" {
			go func() {
				<-time.After(rand.N(40 * time.Millisecond))
				die("any")
			}()
		}
		_, err = m.Run(context.Background(), func(p fabric.MoveProgress) { die(fmt.Sprintf("%s %d", p.Kind, p.Messages/1000)) })
	}
	fmt.Println("ended", err)
	return true
}

// A move that is killed at any step is done over and ends with one store that opens and
// is whole. In between there is never more than one.
func TestRA1_KilledMoveGoesOn(t *testing.T) {
	withoutDetector(t)
	const n = 5000
	stages := []string{"made", "home 1", "any", "home 3", "any", "copied", "compared", "complete", "retired"}
	from, to := filepath.Join(t.TempDir(), "old"), filepath.Join(t.TempDir(), "new")
	home, copies, head, cursor := oldStore(t, from, n)
	for _, stage := range stages {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), childMoveFrom+"="+from, childMoveTo+"="+to, childMoveEnd+"="+stage)
		out, err := cmd.CombinedOutput()
		if err == nil || !strings.Contains(err.Error(), "killed") {
			t.Fatalf("%s: the process ended by itself: %v %s", stage, err, out)
		}
		opened := map[string]bool{from: opensOnce(from), to: opensOnce(to)}
		if opened[to] || opened[from] == (stage == "retired") {
			t.Fatalf("%s: stores that open: %v", stage, opened)
		}
	}
	if _, err := move(t, from, to); err != nil {
		t.Fatal(err)
	}
	holds(t, to, home, copies, head, cursor, n)
	if opensOnce(from) {
		t.Error("the old store opens")
	}
	if _, err := move(t, from, to); err != nil { // done already: nothing is left to do
		t.Error(err)
	}
}

func opensOnce(dir string) bool {
	f, err := fabric.Open(context.Background(), at(dir))
	if err == nil {
		err = f.Close(context.Background())
	}
	return err == nil
}

func TestRA1_MoveRefuses(t *testing.T) {
	from := filepath.Join(t.TempDir(), "old")
	oldStore(t, from, 100)
	foreign := t.TempDir()
	if err := os.WriteFile(filepath.Join(foreign, "x"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	used := t.TempDir()
	opensOnce(used)
	elsewhere := at(t.TempDir())
	elsewhere.Region = "there"
	small := at(t.TempDir())
	small.MaxStore = 32 << 20
	for name, to := range map[string]fabric.Config{"not empty": at(foreign), "a store": at(used), "another region": elsewhere, "too small": small} {
		m, err := fabric.NewMove(context.Background(), at(from), to)
		if m != nil || api.CodeOf(err) != api.ConfigInvalid {
			t.Errorf("%s: %v", name, err)
		}
	}
	_, err := fabric.NewMove(context.Background(), at(t.TempDir()), at(t.TempDir()))
	wantCode(t, err, api.ConfigInvalid)
	running := fabrictest.Open(t, func(c *fabric.Config) { c.Dir = from })
	_, err = fabric.NewMove(context.Background(), at(from), at(t.TempDir()))
	wantCode(t, err, api.ConfigInvalid)
	if !strings.Contains(err.Error(), "stop it first") {
		t.Errorf("%v", err)
	}
	closeNow(t, running)
}

// The old store was used again between two runs of its move: what was copied is not it.
func TestRA1_MoveOfAStoreThatWentOnIsRefused(t *testing.T) {
	from, to := filepath.Join(t.TempDir(), "old"), filepath.Join(t.TempDir(), "new")
	oldStore(t, from, 100)
	m, err := fabric.NewMove(context.Background(), at(from), at(to))
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
	f := fabrictest.Open(t, func(c *fabric.Config) { c.Dir = from })
	allStored(t, appendMany(t, fabrictest.Home(t, f, "orders@here"), 100, 110))
	closeNow(t, f)
	_, err = move(t, from, to)
	wantCode(t, err, api.ConfigInvalid)
	if !strings.Contains(err.Error(), "begin again") {
		t.Errorf("%v", err)
	}
	if !opensOnce(from) || opensOnce(to) {
		t.Error("the wrong store opens")
	}
	if err := os.RemoveAll(to); err != nil {
		t.Fatal(err)
	}
	if moved, err := move(t, from, to); err != nil || moved[0].Last != 110 {
		t.Fatalf("%+v, %v", moved, err)
	}
}

// A record that differs between the two stores stops the move before anything is
// switched.
func TestRA1_MoveComparesBeforeItSwitches(t *testing.T) {
	from, to := filepath.Join(t.TempDir(), "old"), filepath.Join(t.TempDir(), "new")
	oldStore(t, from, 500)
	ctx := context.Background()
	var m *fabric.Move
	cfg := at(from)
	cfg.Hooks.Step = func(stage string) {
		if stage == "copied" {
			m.Spoil(t, "orders@here")
		}
	}
	m, err := fabric.NewMove(ctx, cfg, at(to))
	if err != nil {
		t.Fatal(err)
	}
	_, err = m.Run(ctx, func(fabric.MoveProgress) {})
	wantCode(t, err, api.StorageFailed)
	if err := m.Close(ctx); err != nil {
		t.Fatal(err)
	}
	if !opensOnce(from) || opensOnce(to) {
		t.Error("the wrong store opens")
	}
}

// A failed sync leaves holes in the middle of a log, at the broker's. They are no part of
// what moves; where a record is missing the reader is told so as before.
func TestRA1_MoveStepsOverHoles(t *testing.T) {
	withoutDetector(t)
	from, to := filepath.Join(t.TempDir(), "old"), filepath.Join(t.TempDir(), "new")
	f := fabrictest.Open(t, func(c *fabric.Config) { c.Dir = from })
	l := fabrictest.Home(t, f, "orders@here")
	const n = 2500
	allStored(t, appendMany(t, l, 0, n))
	stream, err := f.JetStream().Stream(context.Background(), fabric.StreamName(l.ID()))
	if err != nil {
		t.Fatal(err)
	}
	for _, seq := range []uint64{1, 2, 700, 701, 702, 1000, 1001, 1999, n} {
		if err := stream.DeleteMsg(context.Background(), seq); err != nil {
			t.Fatal(err)
		}
	}
	closeNow(t, f)
	f = fabrictest.Open(t, func(c *fabric.Config) { c.Dir = from })
	home := fabrictest.ReadAll(t, fabrictest.Home(t, f, "orders@here"), 0)
	closeNow(t, f)
	if _, err := move(t, from, to); err != nil {
		t.Fatal(err)
	}
	f = fabrictest.Open(t, func(c *fabric.Config) { c.Dir = to })
	moved := fabrictest.ReadAll(t, fabrictest.Home(t, f, "orders@here"), 0)
	// A hole at the very end has the term of whoever found it.
	moved[len(moved)-1].Term = home[len(home)-1].Term
	if d := cmp.Diff(home, moved); d != "" {
		t.Fatalf("%.2000s", d)
	}
}

// What is damaged in the old store is damaged in the new one: nobody is shown it, its
// sequence is not given again, and the move says how much it was.
func TestRA1_MoveKeepsDamageApart(t *testing.T) {
	from, to := filepath.Join(t.TempDir(), "old"), filepath.Join(t.TempDir(), "new")
	var armed atomic.Bool
	f := fabrictest.Open(t, func(c *fabric.Config) {
		c.Dir = from
		c.Hooks.Wire = func(conn net.Conn) net.Conn { return flippingConn{conn, &armed} }
	})
	armed.Store(true) // records 5 and 7, unseen by the broker
	allStored(t, appendMany(t, fabrictest.Home(t, f, "orders@here"), 0, 60))
	closeNow(t, f)
	id := mustID(t, "orders@here")
	flip(t, from, id, "body 0", 5)                 // a body
	flip(t, from, id, "Domicile-Id: id-000019", 3) // a header's name
	flip(t, from, id, "body 59", 2)                // the last record's body
	moved, err := move(t, from, to)
	if err != nil || moved[0].Damaged != 5 || moved[0].Records != 55 || moved[0].Messages != 60 {
		t.Fatalf("%+v, %v", moved, err)
	}
	f = fabrictest.Open(t, func(c *fabric.Config) { c.Dir = to })
	l := fabrictest.Home(t, f, "orders@here")
	if s := fabrictest.Append(t, l, record(60)); s.Err != nil || s.Position.Sequence != 61 {
		t.Fatalf("next: %+v", s)
	}
	holed(t, l, 61, fabric.Range{From: 1, To: 1}, fabric.Range{From: 6, To: 6}, fabric.Range{From: 8, To: 8}, fabric.Range{From: 20, To: 20}, fabric.Range{From: 60, To: 60})
	if s := fabrictest.Append(t, l, record(5)); s.Err != nil || s.Duplicate || s.Position.Sequence != 62 {
		t.Fatalf("a retry of a damaged one: %+v", s)
	}
}

// What operators took out stays what it was: purged ranges are told as purged, and a
// deleted log is remembered and not there.
func TestRA1_MoveRemembersWhatIsGone(t *testing.T) {
	from, to := filepath.Join(t.TempDir(), "old"), filepath.Join(t.TempDir(), "new")
	ctx := context.Background()
	f := fabrictest.Open(t, func(c *fabric.Config) { c.Dir = from })
	l := fabrictest.Home(t, f, "orders@here")
	allStored(t, appendMany(t, l, 0, 100))
	if _, err := f.Purge(ctx, l.ID(), 40); err != nil {
		t.Fatal(err)
	}
	home := fabrictest.ReadAll(t, l, 0)
	gone := fabrictest.Home(t, f, "gone@here")
	allStored(t, appendMany(t, gone, 0, 10))
	was, err := f.Delete(ctx, gone.ID())
	if err != nil {
		t.Fatal(err)
	}
	closeNow(t, f)
	if moved, err := move(t, from, to); err != nil || len(moved) != 1 {
		t.Fatalf("%+v, %v", moved, err)
	}
	f = fabrictest.Open(t, func(c *fabric.Config) { c.Dir = to })
	if d := cmp.Diff(home, fabrictest.ReadAll(t, fabrictest.Home(t, f, "orders@here"), 0)); d != "" {
		t.Error(d)
	}
	if home[0].Gap == nil || home[0].Gap.Kind != regions.Purged {
		t.Errorf("first item %+v", home[0])
	}
	was.Records = 0 // only the answer to Delete counts them
	if is, ok := f.Deleted(gone.ID()); !ok || is != was {
		t.Errorf("deleted %+v, was %+v", is, was)
	}
}

// RA1: a log that was deleted and made anew lies under another name in its store. It moves as
// what it is now: nothing of its former life comes along, its ids are known, and in the new
// store it can be deleted and made anew once more.
func TestRA1_ALogMadeAnewMoves(t *testing.T) {
	from, to := filepath.Join(t.TempDir(), "old"), filepath.Join(t.TempDir(), "new")
	f := fabrictest.Open(t, func(c *fabric.Config) { c.Dir = from })
	allStored(t, appendMany(t, fabrictest.Home(t, f, "orders@here"), 0, 50))
	was, err := f.Delete(t.Context(), mustID(t, "orders@here"))
	if err != nil {
		t.Fatal(err)
	}
	l := fabrictest.Home(t, f, "orders@here")
	allStored(t, appendMany(t, l, 20, 50))
	items, head := fabrictest.ReadAll(t, l, 0), l.Head()
	closeNow(t, f)
	if moved, err := move(t, from, to); err != nil || len(moved) != 1 || moved[0].Records != 30 {
		t.Fatalf("%+v, %v", moved, err)
	}
	f = fabrictest.Open(t, func(c *fabric.Config) { c.Dir = to })
	l = fabrictest.Home(t, f, "orders@here")
	if d := cmp.Diff(items, fabrictest.ReadAll(t, l, 0)); d != "" {
		t.Fatal(d)
	}
	if h := l.Head(); h.Incarnation != head.Incarnation || h.Incarnation == was.Incarnation || h.Sequence != 30 {
		t.Errorf("head %+v, was %+v, deleted %+v", h, head, was)
	}
	if s := fabrictest.Append(t, l, record(20)); !s.Duplicate || s.Position.Sequence != 1 {
		t.Errorf("a retry of a moved record: %+v", s)
	}
	if s := fabrictest.Append(t, l, record(0)); s.Err != nil || s.Duplicate || s.Position.Sequence != 31 {
		t.Errorf("a record of the former life, sent again: %+v", s)
	}
	if d, err := f.Delete(t.Context(), l.ID()); err != nil || d.Incarnation != head.Incarnation {
		t.Fatalf("%+v, %v", d, err)
	}
	l = fabrictest.Home(t, f, "orders@here")
	allStored(t, appendMany(t, l, 0, 3))
	if h := l.Head(); h.Sequence != 3 || h.Incarnation == head.Incarnation {
		t.Errorf("head %+v", h)
	}
	closeNow(t, f)
}

// A store of an earlier format moves into one of this format.
func TestUpgrade_Format1StoreMoves(t *testing.T) {
	x := fixtures()["format-1"]
	for _, how := range []string{"clean", "killed"} {
		from, to := t.TempDir(), filepath.Join(t.TempDir(), "new")
		unpack(t, filepath.Join("testdata", "format-1", how+".tar.gz"), from)
		if _, err := move(t, from, to); err != nil {
			t.Fatal(err)
		}
		clock := regions.NewManualClock(fixtureStart.Add(2*time.Hour + time.Minute))
		f := fabrictest.Open(t, func(c *fabric.Config) { c.Dir, c.Clock = to, clock })
		l, err := f.Home(context.Background(), fixtureLog(t))
		if err != nil {
			t.Fatal(err)
		}
		x.checkHome(t, l, fixtureRecords)
		if v, err := f.Verify(context.Background(), l.ID()); err != nil || v.Damaged != 0 || v.WithoutSum != 0 {
			t.Fatalf("%+v: %v", v, err)
		}
		c := fabrictest.Copy(t, f, "orders@there")
		if d := cmp.Diff(x.items, withoutTopic(fabrictest.ReadAll(t, c, 0))); d != "" {
			t.Fatal(d)
		}
		closeNow(t, f)
	}
}

// Bodies are hashed under a key of the store's own, so that two stores do not tell that
// they hold the same body.
func TestR14b_MovedBodiesAreHashedAnew(t *testing.T) {
	from, to := filepath.Join(t.TempDir(), "old"), filepath.Join(t.TempDir(), "new")
	oldStore(t, from, 100)
	if _, err := move(t, from, to); err != nil {
		t.Fatal(err)
	}
	old, fresh := hashesIn(t, from), hashesIn(t, to)
	if len(old) < 90 || len(fresh) < 90 {
		t.Fatalf("found %d and %d hashes", len(old), len(fresh))
	}
	for hash := range fresh {
		if old[hash] {
			t.Fatal("a body has the same hash in both stores")
		}
	}
}

func hashesIn(t *testing.T, dir string) map[string]bool {
	t.Helper()
	found := map[string]bool{}
	files, err := filepath.Glob(filepath.Join(dir, "broker", "jetstream", "*", "streams", "*", "msgs", "*.blk"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, part := range bytes.Split(text, []byte("Domicile-Hash: "))[1:] {
			found[string(part[:32])] = true
		}
	}
	return found
}
