package fabric_test

import (
	"context"
	"math/rand/v2"
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

func openAt(t testing.TB, dir string, change ...func(*fabric.Config)) *fabric.Fabric {
	t.Helper()
	return fabrictest.Open(t, append([]func(*fabric.Config){func(c *fabric.Config) { c.Dir = dir }}, change...)...)
}

func copyOf(t testing.TB, f *fabric.Fabric, h regions.History, change ...func(*fabric.LogConfig)) regions.CopyLog {
	t.Helper()
	l, err := f.Copy(context.Background(), logIn(t, api.Epoch{}, append(change, func(c *fabric.LogConfig) { c.History = h })...))
	if err != nil {
		t.Fatalf("open copy: %v", err)
	}
	return l
}

func closeLog(t testing.TB, f *fabric.Fabric) {
	t.Helper()
	if err := f.CloseLog(context.Background(), mustID(t, "orders@here")); err != nil {
		t.Fatal(err)
	}
}

// ended is a history whose first epochs end where given; the one after them is open.
func ended(ends ...uint64) (h regions.History) {
	for i, end := range ends {
		h = append(h, regions.EpochEnd{Epoch: epoch(i + 1), End: end})
	}
	return append(h, regions.EpochEnd{Epoch: epoch(len(ends) + 1), Open: true})
}

// itemIn is an item as a mirror brings it: record i at sequence i+1 of an epoch.
func itemIn(n, i int) regions.Item {
	it := copied(i + 1)
	it.Epoch, it.Record = epoch(n), record(i)
	return it
}

func mirror(t testing.TB, to regions.CopyLog, incarnation string, items []regions.Item) regions.Cursor {
	t.Helper()
	c, err := to.Apply(context.Background(), incarnation, items)
	if err != nil {
		t.Fatalf("apply: %v", err)
	}
	if c.Ledger.Sum() != c.Sequence {
		t.Fatalf("the ledger %+v does not sum to the cursor %d", c.Ledger, c.Sequence)
	}
	return c
}

func records(items []regions.Item) (ids []string) {
	for _, it := range items {
		ids = append(ids, it.Record.ID)
	}
	return ids
}

func ids(from, to int) (out []string) {
	for i := from; i < to; i++ {
		out = append(out, record(i).ID)
	}
	return out
}

func freeze(t testing.TB, f *fabric.Fabric, op string) regions.Cursor {
	t.Helper()
	c, err := f.Freeze(context.Background(), mustID(t, "orders@here"), op)
	if err != nil {
		t.Fatalf("freeze: %v", err)
	}
	return c
}

// R14g, RD1: a frozen copy takes nothing more, over every start; opened as a home under a
// later epoch it goes on right behind the cut, knows the ids that were mirrored, keeps the
// gaps as gaps, and stamps nothing below what the old home had closed.
func TestR14g_PromotedCopyGoesOn(t *testing.T) {
	dir := t.TempDir()
	f := openAt(t, dir)
	c := copyOf(t, f, nil)
	items := []regions.Item{itemIn(1, 0), itemIn(1, 1), gap(regions.Withheld, 3, 7), itemIn(1, 7), gap(regions.Expired, 9, 9), itemIn(1, 9)}
	items[2].Epoch, items[4].Epoch = epoch(1), epoch(1)
	mirror(t, c, "inc-1", items)
	_, err := f.Home(context.Background(), logIn(t, epoch(2)))
	if api.CodeOf(err) == "" {
		t.Fatal("an open copy was opened as a home")
	}
	cut := freeze(t, f, "op")
	for range 2 {
		if again := freeze(t, f, "other"); again.Sequence != 10 || !cmp.Equal(again, cut) {
			t.Fatalf("frozen at %+v, then at %+v", cut, again)
		}
		_, err = c.Apply(context.Background(), "inc-1", []regions.Item{itemIn(1, 10)})
		wantCode(t, err, api.Fenced)
		f = reopen(t, f, dir)
		c = copyOf(t, f, nil)
	}
	closeLog(t, f)
	_, err = f.Home(context.Background(), logIn(t, epoch(1)))
	wantCode(t, err, api.StaleEpoch)
	closed := time.Now().Add(time.Hour).UTC()
	l := homeIn(t, f, epoch(2), func(c *fabric.LogConfig) { c.NotBefore = closed })
	if s := fabrictest.Append(t, l, record(7)); s.Err != nil || !s.Duplicate || s.Position.Sequence != 8 || s.Position.Epoch != epoch(1) {
		t.Fatalf("a retry of a mirrored record: %+v", s)
	}
	s := fabrictest.Append(t, l, record(20))
	if s.Err != nil || s.Position.Sequence != 11 || s.Position.Epoch != epoch(2) || s.Time.Before(closed) || s.Position.Incarnation != "inc-1" || s.Term <= 3 {
		t.Fatalf("the first of the new epoch: %+v", s)
	}
	for range 2 {
		got := fabrictest.ReadAll(t, l, 0)
		if len(got) != 7 || got[2].Gap == nil || got[2].Gap.Kind != regions.Withheld || got[6].Sequence != 11 {
			t.Fatalf("%d items: %+v", len(got), got)
		}
		f = reopen(t, f, dir)
		l = homeIn(t, f, epoch(2))
		if h := l.Head(); h.Incarnation != "inc-1" || h.Epoch != epoch(2) || h.Sequence != 11 || h.Records != 5 {
			t.Fatalf("head %+v", h)
		}
	}
	if kept, err := f.Kept(context.Background()); err != nil || len(kept) != 0 {
		t.Fatalf("kept %+v %v", kept, err)
	}
}

// Scenario 3, R14g: the old home goes on after the cut, comes back, and keeps what lies
// beyond it: named record by record, shown to nobody, held from retention; it mirrors the
// new epoch from the cut on, and later takes the log back.
func TestScenario3_OldHomeRejoins(t *testing.T) {
	here := t.TempDir()
	clock := regions.NewManualClock(time.Unix(1_800_000_000, 0))
	hour := func(c *fabric.LogConfig) { c.MaxAge = time.Hour }
	a := openAt(t, here, func(c *fabric.Config) { c.Clock = clock })
	old := homeIn(t, a, epoch(1), hour)
	allStored(t, appendMany(t, old, 0, 100))
	b := openAt(t, t.TempDir())
	target := copyOf(t, b, nil)
	cut := mirror(t, target, old.Head().Incarnation, fabrictest.ReadAll(t, old, 0)[:60])
	freeze(t, b, "op")
	closeLog(t, b)
	next := homeIn(t, b, epoch(2))
	allStored(t, appendMany(t, next, 90, 110)) // ten of the lost ones are published again there

	if got := fence(t, a, epoch(1), "op"); got.Sequence != 100 {
		t.Fatalf("cut of the old home %+v", got)
	}
	reader, err := old.Reader(context.Background(), 0)
	if err != nil {
		t.Fatal(err)
	}
	closeLog(t, a)
	if _, err := reader.Next(context.Background(), regions.ReadLimit{Records: 1000, Bytes: 1 << 20}); err == nil {
		t.Error("a reader of the closed log still reads")
	}
	c := copyOf(t, a, ended(60), hour)
	checkRejoined := func() {
		t.Helper()
		if at := c.Cursor(); at.Sequence != cut.Sequence || at.Epoch != epoch(1) || at.Ledger.Sum() != 60 || at.Incarnation != cut.Incarnation {
			t.Fatalf("cursor %+v", at)
		}
		if h := c.Head(); h.Records != 60 {
			t.Fatalf("head %+v", h)
		}
		if got := records(fabrictest.ReadAll(t, c, 0)); !slices.Equal(got, ids(0, 60)) {
			t.Fatalf("%d records are shown", len(got))
		}
		checkVoid(t, a, epoch(1), 61, ids(60, 100))
	}
	checkRejoined()
	a = reopen(t, a, here, func(c *fabric.Config) { c.Clock = clock })
	c = copyOf(t, a, nil, hour)
	checkRejoined()
	mirror(t, c, cut.Incarnation, fabrictest.ReadAll(t, next, 60))
	if got := records(fabrictest.ReadAll(t, c, 0)); !slices.Equal(got, append(ids(0, 60), ids(90, 110)...)) {
		t.Fatalf("after the mirror: %d records", len(got))
	}

	// Failback: what is void here is in no index, and can be published anew.
	freeze(t, a, "back")
	closeLog(t, a)
	back := homeIn(t, a, epoch(3), hour)
	if s := fabrictest.Append(t, back, record(95)); !s.Duplicate || s.Position.Sequence != 66 || s.Position.Epoch != epoch(2) {
		t.Fatalf("published at the new home before: %+v", s)
	}
	for it, err := range a.Void(context.Background(), back.ID(), epoch(1)) {
		if err != nil {
			t.Fatal(err)
		}
		if s := fabrictest.Append(t, back, it.Record); s.Err != nil || s.Duplicate != (it.Sequence > 90) {
			t.Fatalf("republish of sequence %d: %+v", it.Sequence, s)
		}
	}
	if h := back.Head(); h.Sequence != 110 || h.Records != 110 {
		t.Fatalf("head %+v", h)
	}
	checkSettling(t, a, back, clock)
}

// checkVoid compares what is void of an epoch with the ids that it has to be.
func checkVoid(t testing.TB, f *fabric.Fabric, e api.Epoch, from uint64, want []string) fabric.Divergence {
	t.Helper()
	all, err := f.Diverged(mustID(t, "orders@here"))
	at := slices.IndexFunc(all, func(d fabric.Divergence) bool { return d.Epoch == e })
	if err != nil || at < 0 {
		t.Fatalf("diverged %+v %v", all, err)
	}
	d := all[at]
	if d.From != from || d.Records != uint64(len(want)) || d.Count != d.Records || d.To != from+d.Count-1 || d.Hash == "" || d.Bytes <= 0 || d.Last.Before(d.First) {
		t.Fatalf("divergence %+v, want %d from %d", d, len(want), from)
	}
	var got []string
	for it, err := range f.Void(context.Background(), mustID(t, "orders@here"), e) {
		if err != nil {
			t.Fatal(err)
		}
		if it.Epoch != e || it.Sequence != from+uint64(len(got)) || it.Time.IsZero() || len(it.Record.Body) == 0 {
			t.Fatalf("void item %+v", it)
		}
		got = append(got, it.Record.ID)
	}
	if !slices.Equal(got, want) {
		t.Fatalf("void: %v, want %v", got, want)
	}
	return d
}

// checkSettling holds retention up at the void records until they are settled.
func checkSettling(t *testing.T, f *fabric.Fabric, l regions.HomeLog, clock *regions.ManualClock) {
	t.Helper()
	ctx := context.Background()
	clock.Advance(2 * time.Hour)
	if s, err := f.Sweep(ctx, l.ID()); err != nil || s.To != 60 {
		t.Fatalf("retention took %+v %v", s, err)
	}
	if s, err := f.Sweep(ctx, l.ID()); err != nil || s.To != 0 {
		t.Fatalf("retention went on with %+v %v", s, err)
	}
	d := checkVoid(t, f, epoch(1), 61, ids(60, 100))
	settle := func(hash, who string) error {
		return f.Settle(ctx, l.ID(), epoch(1), hash, fabric.Settlement{How: fabric.Republished, Who: who, Reason: "all of them"})
	}
	wantCode(t, settle("another", "ann"), api.Conflict)
	wantCode(t, settle(d.Hash, ""), api.BadRequest)
	for range 2 {
		if err := settle(d.Hash, "ann"); err != nil {
			t.Fatal(err)
		}
	}
	wantCode(t, settle(d.Hash, "bob"), api.Conflict)
	eventually(t, "retention passes what is settled", func() bool {
		if _, err := f.Sweep(ctx, l.ID()); err != nil {
			t.Fatal(err)
		}
		return l.Head().First == 111
	})
	if h := l.Head(); h.Records != 0 {
		t.Fatalf("head %+v", h)
	}
	if all, err := f.Diverged(l.ID()); err != nil || len(all) != 1 || all[0].Settled == nil || all[0].Settled.Who != "ann" {
		t.Fatalf("the decision is forgotten: %+v %v", all, err)
	}
	for _, it := range fabrictest.ReadAll(t, l, 0) {
		if it.Gap == nil || it.Gap.Kind != regions.Expired {
			t.Fatalf("%+v", it)
		}
	}
	// A copy that knows where the epochs ended goes over gaps that span ends.
	elsewhere := openAt(t, t.TempDir())
	third := copyOf(t, elsewhere, nil)
	mirror(t, third, l.Head().Incarnation, []regions.Item{itemIn(1, 0), itemIn(1, 1)})
	_, err := third.Apply(ctx, l.Head().Incarnation, fabrictest.ReadAll(t, l, 2))
	wantCode(t, err, api.HistoryNeeded)
	if err := elsewhere.Learn(ctx, l.ID(), ended(60, 80)); err != nil {
		t.Fatal(err)
	}
	if at := mirror(t, third, l.Head().Incarnation, fabrictest.ReadAll(t, l, 2)); at.Sequence != 110 || at.Epoch != epoch(3) {
		t.Fatalf("cursor %+v", at)
	}
}

// Decision 12, scenario 27: a third mirror is ahead of the cut. It takes nothing of the new
// epoch before it knows where the old one ended, and nothing of the old one after; its
// open readers that went too far are told.
func TestR14g_ThirdMirrorAheadOfTheCut(t *testing.T) {
	f := fabrictest.Open(t)
	c := copyOf(t, f, nil)
	var items []regions.Item
	for i := range 80 {
		items = append(items, itemIn(1, i))
	}
	mirror(t, c, "inc-1", items)
	far, err := c.Reader(context.Background(), 0)
	if err != nil {
		t.Fatal(err)
	}
	near, err := c.Reader(context.Background(), 50)
	if err != nil {
		t.Fatal(err)
	}
	limit := regions.ReadLimit{Records: 1000, Bytes: 1 << 20}
	if got, err := far.Next(context.Background(), limit); err != nil || len(got) != 80 {
		t.Fatalf("%d items, %v", len(got), err)
	}
	ctx, id := context.Background(), mustID(t, "orders@here")
	for name, it := range map[string]regions.Item{"next": itemIn(2, 80), "at the cut": itemIn(2, 60)} {
		if _, err := c.Apply(ctx, "inc-1", []regions.Item{it}); err == nil {
			t.Errorf("%s: an item of an epoch without a history was taken", name)
		}
	}
	_, err = c.Apply(ctx, "inc-1", []regions.Item{itemIn(2, 80)})
	wantCode(t, err, api.HistoryNeeded)
	later := regions.History{{Epoch: epoch(2), End: 60}, {Epoch: epoch(3), Open: true}}
	wantCode(t, f.Learn(ctx, id, later), api.HistoryNeeded)
	for range 2 {
		if err := f.Learn(ctx, id, ended(60)); err != nil {
			t.Fatal(err)
		}
	}
	wantCode(t, f.Learn(ctx, id, ended(61)), api.Contested)
	if at := c.Cursor(); at.Sequence != 60 || at.Epoch != epoch(1) || at.Ledger.Sum() != 60 {
		t.Fatalf("cursor %+v", at)
	}
	if _, err := far.Next(ctx, limit); api.CodeOf(err) != api.CursorAhead {
		t.Errorf("a reader beyond the cut: %v", err)
	}
	if got, err := near.Next(ctx, limit); err != nil || len(got) != 10 {
		t.Errorf("a reader before the cut: %d items, %v", len(got), err)
	}
	_, err = c.Apply(ctx, "inc-1", []regions.Item{itemIn(1, 60)})
	wantCode(t, err, api.StaleEpoch)
	for i := range 30 {
		it := itemIn(2, 60+i)
		it.Record = record(200 + i)
		mirror(t, c, "inc-1", []regions.Item{it})
	}
	if got, err := near.Next(ctx, limit); err != nil || len(got) != 30 || got[0].Epoch != epoch(2) {
		t.Errorf("a reader goes on with the new epoch: %d items, %v", len(got), err)
	}
	checkVoid(t, f, epoch(1), 61, ids(60, 80))
}

// Two authorities: the loser's whole epoch is void, and it goes on where the epoch before
// ended.
func TestR14g_LoserOfAContestRejoins(t *testing.T) {
	dir := t.TempDir()
	f := openAt(t, dir)
	allStored(t, appendMany(t, homeIn(t, f, epoch(1)), 0, 50))
	fence(t, f, epoch(1), "op")
	closeLog(t, f)
	rival := api.Epoch{Term: 1, Counter: 2, Issuer: "here"}
	allStored(t, appendMany(t, homeIn(t, f, rival), 50, 70))
	closeLog(t, f)
	c := copyOf(t, f, ended(40))
	if at := c.Cursor(); at.Sequence != 40 || at.Epoch != epoch(1) || at.Ledger.Sum() != 40 {
		t.Fatalf("cursor %+v", at)
	}
	checkVoid(t, f, rival, 51, ids(50, 70))
	checkVoid(t, f, epoch(1), 41, ids(40, 50))
	f = reopen(t, f, dir)
	c = copyOf(t, f, nil)
	if got := records(fabrictest.ReadAll(t, c, 0)); !slices.Equal(got, ids(0, 40)) {
		t.Fatalf("%d records", len(got))
	}
	checkVoid(t, f, rival, 51, ids(50, 70))
}

// A log with many void tails reads, from everywhere, as the row of what counts: as it is,
// after a start, after its tail was written anew, and after it moved to another store.
func TestR14g_VoidTailsNeverShow(t *testing.T) {
	dir := t.TempDir()
	f := openAt(t, dir)
	c := copyOf(t, f, nil)
	rng := rand.New(rand.NewPCG(1, 2))
	var want []regions.Item
	var ends []uint64
	void := map[api.Epoch][]string{}
	next := 0 // of records, so that every id is its own
	for n := 1; n <= 6; n++ {
		var batch []regions.Item
		seq := uint64(len(want))
		kept, beyond := 5+rng.IntN(40), rng.IntN(30)
		for i := range kept + beyond {
			it := itemIn(n, next)
			it.Sequence = seq + uint64(i) + 1
			it.Time = time.Unix(1e9+int64(it.Sequence), 0).UTC()
			next++
			if batch = append(batch, it); i < kept {
				want = append(want, it)
			} else {
				void[it.Epoch] = append(void[it.Epoch], it.Record.ID)
			}
		}
		mirror(t, c, "inc-1", batch)
		ends = append(ends, uint64(len(want)))
		if err := f.Learn(context.Background(), c.ID(), ended(ends...)); err != nil {
			t.Fatal(err)
		}
	}
	check := func(f *fabric.Fabric, l regions.Log) {
		t.Helper()
		for after := range want {
			got := fabrictest.ReadAll(t, l, uint64(after))
			if len(got) != len(want)-after || got[0].Record.ID != want[after].Record.ID || got[0].Epoch != want[after].Epoch {
				t.Fatalf("after %d: %d items, the first %+v", after, len(got), got[0])
			}
			if at, err := l.After(context.Background(), want[after].Time); err != nil || at != uint64(after) {
				t.Fatalf("after the time of %d: %d %v", after+1, at, err)
			}
		}
		if got := records(fabrictest.ReadAll(t, l, 0)); !slices.Equal(got, records(want)) {
			t.Fatalf("%d items, want %d", len(got), len(want))
		}
		for e, list := range void {
			if len(list) > 0 {
				checkVoid(t, f, e, ends[e.Counter-1]+1, list)
			}
		}
		if h := l.Head(); h.Records != uint64(len(want)) || h.Sequence != uint64(len(want)) {
			t.Fatalf("head %+v", h)
		}
		if v, err := f.Verify(context.Background(), l.ID()); err != nil || v.Damaged != 0 || v.Records != uint64(len(want)) {
			t.Fatalf("audit %+v %v", v, err)
		}
	}
	check(f, c)
	f = reopen(t, f, dir)
	check(f, copyOf(t, f, nil))

	closeNow(t, f)
	markFailed(t, dir, map[string]uint64{fabric.StreamName(c.ID()): 0})
	f = openAt(t, dir, func(c *fabric.Config) { c.Hooks.BootID = "this" })
	check(f, copyOf(t, f, nil))
	closeNow(t, f)

	f = openAt(t, moveStore(t, dir))
	check(f, copyOf(t, f, nil))
}

// markFailed marks a closed store as one whose last sync failed in boot "this", with what
// was known to be on disk then.
func markFailed(t *testing.T, dir string, clean map[string]uint64) {
	t.Helper()
	changeMark(t, filepath.Join(dir, "run.json"), func(mark map[string]any) {
		mark["state"], mark["boot"], mark["clean"] = "failed", "this", clean
	})
}

// A frozen copy whose move was given up goes on once its epoch has ended elsewhere: an
// abort always ends the epoch.
func TestR14g_FrozenCopyGoesOnAfterAnAbort(t *testing.T) {
	dir := t.TempDir()
	f := openAt(t, dir)
	c := copyOf(t, f, nil)
	var items []regions.Item
	for i := range 30 {
		items = append(items, itemIn(1, i))
	}
	mirror(t, c, "inc-1", items[:20])
	freeze(t, f, "op")
	present := regions.History{{Epoch: epoch(1), Open: true}}
	if err := f.Learn(context.Background(), c.ID(), present); err != nil {
		t.Fatal(err)
	}
	_, err := c.Apply(context.Background(), "inc-1", items[20:])
	wantCode(t, err, api.Fenced)
	if err := f.Learn(context.Background(), c.ID(), ended(30)); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		mirror(t, c, "inc-1", items[c.Cursor().Sequence:])
		f = reopen(t, f, dir)
		c = copyOf(t, f, nil)
	}
	_, err = c.Apply(context.Background(), "inc-1", []regions.Item{itemIn(1, 30)})
	wantCode(t, err, api.StaleEpoch)
	mirror(t, c, "inc-1", []regions.Item{itemIn(2, 30)})
}

// An empty copy becomes a home only as the log that the authority means; nothing here
// tells which that is.
func TestR14g_EmptyCopyIsPromotedByName(t *testing.T) {
	dir := t.TempDir()
	f := openAt(t, dir)
	copyOf(t, f, nil)
	if at := freeze(t, f, "op"); at.Sequence != 0 {
		t.Fatalf("cursor %+v", at)
	}
	closeLog(t, f)
	_, err := f.Home(context.Background(), logIn(t, epoch(2)))
	wantCode(t, err, api.ConfigInvalid)
	l := homeIn(t, f, epoch(2), func(c *fabric.LogConfig) { c.Incarnation = "inc-1" })
	for i := range 2 {
		if s := fabrictest.Append(t, l, record(i)); s.Err != nil || s.Position.Sequence != uint64(i+1) || s.Position.Incarnation != "inc-1" {
			t.Fatalf("%+v", s)
		}
		f = reopen(t, f, dir)
		l = homeIn(t, f, epoch(2))
	}
}

// Everything that was stored may turn out to be void.
func TestR14g_AllIsVoid(t *testing.T) {
	dir := t.TempDir()
	f := openAt(t, dir)
	allStored(t, appendMany(t, homeIn(t, f, epoch(1)), 0, 20))
	incarnation := ""
	fence(t, f, epoch(1), "op")
	closeLog(t, f)
	c := copyOf(t, f, ended(0))
	for range 2 {
		if at := c.Cursor(); at.Sequence != 0 || at.Ledger.Sum() != 0 || len(fabrictest.ReadAll(t, c, 0)) != 0 {
			t.Fatalf("cursor %+v", at)
		}
		checkVoid(t, f, epoch(1), 1, ids(0, 20))
		incarnation = c.Cursor().Incarnation
		f = reopen(t, f, dir)
		c = copyOf(t, f, nil)
	}
	mirror(t, c, incarnation, []regions.Item{itemIn(2, 0), itemIn(2, 1)})
	f = reopen(t, f, dir)
	c = copyOf(t, f, nil)
	if got := records(fabrictest.ReadAll(t, c, 0)); !slices.Equal(got, ids(0, 2)) {
		t.Fatalf("%v", got)
	}
}

// moveStore moves a store to another directory and names that.
func moveStore(t *testing.T, dir string) string {
	t.Helper()
	from, into := fabrictest.Config(t), fabrictest.Config(t)
	from.Dir, into.Dir = dir, filepath.Join(t.TempDir(), "moved")
	m, err := fabric.NewMove(context.Background(), from, into)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := m.Run(context.Background(), func(fabric.MoveProgress) {}); err != nil {
		t.Fatal(err)
	}
	if err := m.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
	return into.Dir
}

// Two void tails that go back to the same place are taken off the count of records once each.
func TestR14g_VoidTailsAreCountedOnce(t *testing.T) {
	f := fabrictest.Open(t)
	c := copyOf(t, f, nil)
	rows := func(n, from, to int) (items []regions.Item) {
		for i := from; i < to; i++ {
			items = append(items, itemIn(n, i))
		}
		return items
	}
	mirror(t, c, "inc-1", rows(1, 0, 20))
	id := mustID(t, "orders@here")
	for _, h := range []regions.History{ended(12), ended(12, 12)} {
		if err := f.Learn(context.Background(), id, h); err != nil {
			t.Fatal(err)
		}
		if at := c.Head(); at.Sequence != 12 || at.Records != 12 {
			t.Fatalf("%d records up to %d after %d epochs", at.Records, at.Sequence, len(h)-1)
		}
		if len(h) == 2 {
			mirror(t, c, "inc-1", rows(2, 12, 15))
		}
	}
	checkVoid(t, f, epoch(1), 13, ids(12, 20))
	checkVoid(t, f, epoch(2), 13, ids(12, 15))
}
