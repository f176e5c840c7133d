package council_test

import (
	"context"
	"path/filepath"
	"testing"

	"domicile/api"
	"domicile/regions/council"
	"domicile/regions/placement"
)

// TestR14e_FoundFromCacheThenTheOldMajorityReturns: us-east is alone and founds an
// authority from its cache. The two old voters turn out to live: they refuse to serve,
// nothing of theirs reaches the new log of decisions but through meet, and a log that both
// gave away is CONTESTED until somebody resolves it.
func TestR14e_FoundFromCacheThenTheOldMajorityReturns(t *testing.T) {
	t.Parallel()
	w := founding(t, "ap-south", "eu-west", "us-east")
	first := api.StaticEpoch("eu-west")
	for _, log := range []string{"K", "L"} {
		w.must("eu-west", declared(log, "eu-west", movable(placement.Accept)))
	}
	w.until("us-east has both", func() bool { _, ok := w.seats["us-east"].Log("L"); return ok })
	w.isolate("us-east", true)
	w.stop("us-east")
	_, cache, err := council.LoadCache(filepath.Join(w.dirs["us-east"], council.CacheFile))
	if err != nil {
		t.Fatal(err)
	}

	// The old majority goes on without us-east.
	w.flip(w.leader(), "L", "old", "ap-south", first, 5)

	birth := council.Birth{Dir: filepath.Join(t.TempDir(), "council"), Region: "us-east", Authority: "A2", Voters: []string{"us-east"}, Cache: cache,
		Others: []string{"ap-south", "eu-west"}, Actor: "anna", Reason: "alone"}
	if err := council.Create(birth); api.CodeOf(err) != api.PlacementRefused {
		t.Fatalf("founded without approvals: %v", err)
	}
	birth.Approvals = []placement.Approval{{Actor: "ben", Role: "incident"}, {Actor: "carl", Role: "incident"}}
	if err := council.Create(birth); err != nil {
		t.Fatal(err)
	}
	w.dirs["us-east"] = birth.Dir
	w.start("us-east")
	w.until("the second generation stands", func() bool { return w.seats["us-east"].Status().Generation == 2 })
	w.flip("us-east", "L", "new", "us-east", first, 3)

	w.isolate("us-east", false)
	ctx, cancel := context.WithTimeout(context.Background(), patient)
	defer cancel()
	w.until("the old leader has seen it and refuses", func() bool {
		_, err := w.seats[w.leaderOf("ap-south", "eu-west")].SubmitBy(ctx, w.id("eu-west"), declared("M", "eu-west", movable(placement.Accept)))
		return api.CodeOf(err) == api.Contested
	})
	if l, _ := w.seats["us-east"].Log("L"); l.Home != "us-east" {
		t.Fatal("the old log of decisions reached the new one")
	}
	if _, err := w.seats["eu-west"].Meet(ctx, "us-east", "anna", "back"); api.CodeOf(err) != api.Contested {
		t.Fatalf("the older generation takes the newer in: %v", err)
	}
	w.until("what the old one decided was taken in", func() bool {
		l, _ := w.seats["us-east"].Log("L")
		return l.Status == placement.Contested
	})
	if by, aside := w.seats["eu-west"].Aside(); !aside || len(by) != 1 || by[0] != "us-east" {
		t.Fatalf("the old voter goes by %v %v", by, aside)
	}
	l, _ := w.seats["us-east"].Log("L")
	if l.Status != placement.Contested || l.Rival.Home != "ap-south" {
		t.Fatalf("%+v", l)
	}
	resolve := placement.Command{Verb: placement.Resolve, ID: "r", Log: "L", Region: "ap-south", Expect: l.Epoch, Actor: "anna", Reason: "ap-south has more", Winner: l.Rival.Epoch, Home: "ap-south"}
	if r := w.must("us-east", resolve); r.Status != placement.Opening || r.Epoch.Term != 2 {
		t.Fatalf("%+v", r)
	}
	l, _ = w.seats["us-east"].Log("L")
	if end, err := l.EpochEnd(first); err != nil || end != 5 {
		t.Fatalf("the shared epoch ends at %d: %v", end, err)
	}

	w.joins("us-east", "ap-south")
}

// joins has an old voter join, in a new folder.
func (w *world) joins(leader, old string) {
	w.t.Helper()
	authority, before := w.seats[leader].Status().Authority, w.seats[leader].Status().Voters
	w.stop(old)
	w.dirs[old] = filepath.Join(w.t.TempDir(), "council")
	if err := council.Create(council.Birth{Dir: w.dirs[old], Region: old, Authority: authority, Join: []string{leader}}); err != nil {
		w.t.Fatal(err)
	}
	w.start(old)
	if by, aside := w.seats[old].Aside(); !aside || len(by) != 1 {
		w.t.Fatalf("before it has a vote it goes by %v %v", by, aside)
	}
	add := council.VoterChange{Region: old, Actor: "anna", Reason: "joins"}
	if err := w.seats[leader].ChangeVoters(w.t.Context(), add); err != nil {
		w.t.Fatal(err)
	}
	w.until("it has the state", func() bool {
		_, ok := w.seats[old].Log("L")
		_, aside := w.seats[old].Aside()
		return ok && !aside
	})
	if got := w.seats[leader].Status().Voters; len(got) != len(before)+1 {
		w.t.Fatal(got)
	}
}

// TestR14e_TwoFoundingsOfOneGeneration: both refuse to decide and to renew, and
// a follower has the word of one of them.
func TestR14e_TwoFoundingsOfOneGeneration(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "eu-west", "us-east")
	s := &placement.State{}
	for i, c := range []placement.Command{
		{Verb: placement.Found, ID: "f", Actor: "anna", Reason: "first", Founding: &placement.Founding{Authority: "A1"}},
		declared("L", "eu-west", movable(placement.Accept)),
	} {
		if _, err := s.Apply(uint64(i+1), c); err != nil {
			t.Fatal(err)
		}
	}
	cache, err := s.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	for i, name := range w.names {
		w.dirs[name] = filepath.Join(t.TempDir(), "council")
		err := council.Create(council.Birth{Dir: w.dirs[name], Region: name, Authority: "B" + name, Voters: []string{name}, Cache: cache, Others: []string{w.names[1-i]},
			Actor: "anna", Reason: "alone", Approvals: []placement.Approval{{Actor: "ben", Role: "incident"}, {Actor: "carl", Role: "incident"}}})
		if err != nil {
			t.Fatal(err)
		}
		w.start(name)
	}
	f := w.follow("sa-north", filepath.Join(t.TempDir(), "placement.cache"), "eu-west", "us-east")
	defer f.Close()
	ctx, cancel := context.WithTimeout(context.Background(), patient)
	defer cancel()
	for _, name := range w.names {
		w.until(name+" refuses to decide", func() bool {
			_, err := w.seats[name].SubmitBy(ctx, w.id(name), declared("M", name, movable(placement.Accept)))
			return api.CodeOf(err) == api.Contested
		})
		if _, err := w.seats[name].Renew(ctx); api.CodeOf(err) != api.Contested {
			t.Fatalf("%s grants: %v", name, err)
		}
	}
	w.until("it follows one", func() bool { d, _, _ := f.Since(0, ""); return d.Generation == 2 })
}

// leaderOf is the leader among some of the voters.
func (w *world) leaderOf(names ...string) (leader string) {
	w.until("one of them leads", func() bool {
		for _, name := range names {
			if w.seats[name].Status().Leading {
				leader = name
				return true
			}
		}
		return false
	})
	return leader
}

// flip forces a log whose home accepts two histories to a target, up to the flip.
func (w *world) flip(at, log, op, target string, e api.Epoch, end uint64) {
	w.t.Helper()
	w.must(at, forced(log, op, target, e, true))
	prove, cut, frozen := step(placement.Prove, log, op, target, e), step(placement.FixCut, log, op, target, e), step(placement.Frozen, log, op, target, e)
	prove.Proof = &placement.Proof{Kind: placement.Diverges}
	cut.Point, frozen.Point = &placement.Point{End: end}, &placement.Point{End: end}
	none := placement.Loss{Span: forced(log, op, target, e, true).Move.Accepted.Span}
	frozen.Lost = &none
	for _, c := range []placement.Command{prove, cut, frozen, step(placement.Flip, log, op, target, e)} {
		w.must(at, c)
	}
}
