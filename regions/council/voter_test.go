package council_test

import (
	"bufio"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	"domicile/api"
	"domicile/regions/council"
	"domicile/regions/placement"
)

// TestR14e_OneFlipHoweverOftenTheLeaderDies forces a log out of a silent region and ends
// the leader between every two steps, each time to start it again from its disk. The new
// leader waits the whole lease out, and there is one flip.
func TestR14e_OneFlipHoweverOftenTheLeaderDies(t *testing.T) {
	t.Parallel()
	w := founding(t, "ap-south", "eu-west", "us-east")
	w.must("eu-west", declared("L", "eu-west", movable(placement.FenceAfter)))
	first := api.StaticEpoch("eu-west")
	die := func() {
		t.Helper()
		leader := w.leader()
		w.stop(leader)
		w.leader()
		w.start(leader)
	}
	w.must("us-east", forced("L", "m", "us-east", first, false))
	began := time.Now()
	die()
	stepOf := func() placement.Step {
		l, _ := w.seats[w.leader()].Log("L")
		if l.Op == nil {
			return ""
		}
		return l.Op.Step
	}
	w.until("the lease is proven to have lapsed", func() bool { return stepOf() == placement.Proven })
	if waited, whole := time.Since(began), pace.Of(placement.Wait(placement.MinFenceAfter)); waited < whole {
		t.Fatalf("proven after %s, the whole wait is %s", waited, whole)
	}
	span := time.Second
	cut, frozen := step(placement.FixCut, "L", "m", "us-east", first), step(placement.Frozen, "L", "m", "us-east", first)
	cut.Point, frozen.Point, frozen.Lost = &placement.Point{End: 7}, &placement.Point{End: 7}, &placement.Loss{Span: &span}
	flip := step(placement.Flip, "L", "m", "us-east", first)
	var second api.Epoch
	for _, c := range []placement.Command{cut, frozen, flip} {
		die()
		second = w.must(w.other(w.leader()), c).Epoch
		// A worker that did not hear the answer sends it again, elsewhere.
		if again := w.must(w.leader(), c); again.Epoch != second {
			t.Fatalf("%s: %s first, then %s", c.Verb, second, again.Epoch)
		}
	}
	die()
	opened := step(placement.Opened, "L", "", "us-east", second)
	opened.Point = &placement.Point{End: 7}
	w.must("us-east", opened)

	w.until("all voters say the same", func() bool {
		for _, v := range w.seats {
			if l, _ := v.Log("L"); l.Status != placement.Active || l.Home != "us-east" || l.Epoch.Counter != 2 {
				return false
			}
		}
		return true
	})
	entries, err := w.seats["us-east"].Audit(0)
	if err != nil {
		t.Fatal(err)
	}
	if err := placement.VerifyAudit(0, "", entries); err != nil {
		t.Fatal(err)
	}
	flips := 0
	for _, e := range entries {
		if e.Verb == placement.Flip {
			flips++
		}
	}
	if flips != 1 {
		t.Fatalf("%d flips", flips)
	}
}

// TestR14g_IsolatedLeaderGrantsNothing cuts the leader of two regions and a witness off:
// it commits nothing and answers no renewal, while the other two go on.
func TestR14g_IsolatedLeaderGrantsNothing(t *testing.T) {
	t.Parallel()
	w := founding(t, "eu-west", "us-east", "witness")
	w.must("eu-west", declared("L", "eu-west", movable(placement.FenceAfter)))
	old := w.leader()
	w.isolate(old, true)
	ctx, cancel := context.WithTimeout(context.Background(), pace.Of(12*time.Second))
	defer cancel()
	denied := make(chan error, 1)
	go func() {
		_, err := w.seats[old].Renew(ctx)
		denied <- err
	}()
	next := w.leader()
	if next == old {
		t.Fatal("the isolated voter leads the others")
	}
	w.must(next, declared("M", "us-east", movable(placement.Accept)))
	grant, err := w.seats[w.other(old)].Renew(ctx)
	if err != nil || grant.Index == 0 {
		t.Fatalf("the majority renews: %+v %v", grant, err)
	}
	if err := <-denied; api.CodeOf(err) != api.AuthorityUnreachable && api.CodeOf(err) != api.OutcomeUnknown {
		t.Fatalf("the isolated leader answered: %v", err)
	}
	if _, ok := w.seats[old].Log("M"); ok {
		t.Fatal("the isolated leader knows what it cannot")
	}
	w.isolate(old, false)
	w.until("it has caught up", func() bool { _, ok := w.seats[old].Log("M"); return ok })
}

// TestR14e_BelowQuorumNothingIsDecided: what could not be told to a majority is reported
// as such, and found by its id once a majority is back.
func TestR14e_BelowQuorumNothingIsDecided(t *testing.T) {
	t.Parallel()
	w := founding(t, "ap-south", "eu-west", "us-east")
	w.must("eu-west", declared("K", "eu-west", movable(placement.Accept)))
	leader := w.leader()
	for _, name := range w.names {
		if name != leader {
			w.stop(name)
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), pace.Of(8*time.Second))
	defer cancel()
	c := declared("L", "eu-west", movable(placement.Accept))
	_, err := w.seats[leader].SubmitBy(ctx, w.id(c.Region), c)
	if code := api.CodeOf(err); code != api.OutcomeUnknown && code != api.AuthorityUnreachable {
		t.Fatal(err)
	}
	if _, ok := w.seats[leader].Log("K"); !ok {
		t.Fatal("what was decided can't be read any more")
	}
	for _, name := range w.names {
		if name != leader {
			w.start(name)
		}
	}
	first := w.must(leader, c)
	if again := w.must(w.other(leader), c); again.Version != first.Version {
		t.Fatalf("decided twice: %+v %+v", first, again)
	}
}

// TestR14e_AllStartAgainFromDisk restarts every voter, one of them from a snapshot and an
// emptied log, and holds the audit files against what the voters know.
func TestR14e_AllStartAgainFromDisk(t *testing.T) {
	t.Parallel()
	w := founding(t, "ap-south", "eu-west", "us-east")
	for i := range 20 {
		w.must(w.names[i%3], declared(string(rune('A'+i)), "eu-west", movable(placement.Accept)))
	}
	leader := w.leader()
	if err := w.seats[leader].Snapshot(); err != nil {
		t.Fatal(err)
	}
	version := w.seats[leader].Status().Version
	for _, name := range w.names {
		w.stop(name)
	}
	for _, name := range w.names {
		w.start(name)
	}
	w.until("all are back where they were", func() bool {
		for _, v := range w.seats {
			if v.Status().Version != version {
				return false
			}
		}
		return true
	})
	w.must(leader, declared("Z", "eu-west", movable(placement.Accept)))
	w.until("it is everywhere", func() bool {
		for _, v := range w.seats {
			if _, ok := v.Log("Z"); !ok {
				return false
			}
		}
		return true
	})
	if err := w.seats[leader].Snapshot(); err != nil {
		t.Fatal(err)
	}
	entries := auditLines(t, w.dirs[leader])
	if err := placement.VerifyAudit(0, "", entries); err != nil || len(entries) != 22 {
		t.Fatalf("%d entries: %v", len(entries), err)
	}
}

// TestR14a_VoterOnABrokenDiskStandsStill: the process and the other voters go on.
func TestR14a_VoterOnABrokenDiskStandsStill(t *testing.T) {
	t.Parallel()
	w := founding(t, "ap-south", "eu-west", "us-east")
	broken := w.leader()
	w.seats[broken].BreakDisk()
	next := ""
	w.until("another leads", func() bool {
		// The broken one has to write to notice.
		ctx, cancel := context.WithTimeout(context.Background(), pace.Of(time.Second))
		defer cancel()
		_, _ = w.seats[broken].SubmitBy(ctx, w.id("eu-west"), declared("K", "eu-west", movable(placement.Accept)))
		for name, v := range w.seats {
			if name != broken && v.Status().Leading {
				next = name
			}
		}
		return next != ""
	})
	w.must(next, declared("L", "eu-west", movable(placement.Accept)))
	w.until("it says so", func() bool { return w.seats[broken].Status().Failed != nil })
}

func auditLines(t *testing.T, dir string) (entries []placement.Entry) {
	f, err := os.Open(filepath.Join(dir, "audit.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		var e placement.Entry
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			t.Fatal(err)
		}
		entries = append(entries, e)
	}
	return entries
}

// TestR14e_LostFolderIsNotAnEmptyOne: a voter without its votes must not vote again.
func TestR14e_LostFolderIsNotAnEmptyOne(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	lines := w.line("eu-west", false)
	if _, err := council.Open(council.Config{Dir: t.TempDir(), Lines: lines}); api.CodeOf(err) != api.ConfigInvalid {
		t.Fatal(err)
	}
	dir := t.TempDir()
	birth := council.Birth{Dir: dir, Region: "eu-west", Authority: "A1", Voters: []string{"eu-west"}, Actor: "anna", Reason: "test"}
	if err := council.Create(birth); err != nil {
		t.Fatal(err)
	}
	if err := council.Create(birth); api.CodeOf(err) != api.ConfigInvalid {
		t.Fatal(err)
	}
}

// TestFC3_ACacheIsNotOverwrittenByAnOlderState: a voter that starts has what its last
// snapshot holds until it hears what was decided since. The cache knows better, and a region
// that is started again, or founds an authority anew, goes on from it.
func TestFC3_ACacheIsNotOverwrittenByAnOlderState(t *testing.T) {
	t.Parallel()
	w := founding(t, "ap-south", "eu-west", "us-east")
	w.must("eu-west", declared("K", "eu-west", movable(placement.Accept)))
	w.until("us-east has the first", func() bool { _, ok := w.seats["us-east"].Log("K"); return ok })
	if err := w.seats["us-east"].Snapshot(); err != nil {
		t.Fatal(err)
	}
	w.must("eu-west", declared("L", "eu-west", movable(placement.Accept)))
	w.until("us-east has the second", func() bool { _, ok := w.seats["us-east"].Log("L"); return ok })
	w.stop("us-east")
	w.isolate("us-east", true)
	w.start("us-east")
	if _, ok := w.seats["us-east"].Log("L"); ok {
		t.Fatal("a voter that hears nobody has more than its snapshot: this test shows nothing")
	}
	w.stop("us-east")
	kept, _, err := council.LoadCache(filepath.Join(w.dirs["us-east"], council.CacheFile))
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := kept.Log("L"); !ok {
		t.Error("the cache has lost what was decided since the snapshot")
	}
}
