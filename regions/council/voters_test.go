package council_test

import (
	"context"
	"path/filepath"
	"strings"
	"testing"

	"domicile/api"
	"domicile/regions/council"
	"domicile/regions/placement"
)

// TestRA5_VotersChangeOneByOneAndNeverBelowAMajority: with one of three voters gone, none
// of the others can be taken away, the lost one can, and comes back in a new folder; the
// leader's own vote goes with its leadership. Whoever has no vote any more stands aside.
func TestRA5_VotersChangeOneByOneAndNeverBelowAMajority(t *testing.T) {
	t.Parallel()
	w := founding(t, "ap-south", "eu-west", "us-east")
	w.must("eu-west", declared("L", "eu-west", movable(placement.Accept)))
	leader := w.leader()
	lost := w.other(leader)
	w.isolate(lost, true)
	w.stop(lost)
	var left string
	for _, name := range w.names {
		if name != leader && name != lost {
			left = name
		}
	}
	change := func(at, region string, remove bool) error {
		ctx, cancel := context.WithTimeout(context.Background(), patient)
		defer cancel()
		return w.seats[at].ChangeVoters(ctx, council.VoterChange{Region: region, Remove: remove, Actor: "anna", Reason: "a test"})
	}
	if err := change(left, leader, true); api.CodeOf(err) != api.PlacementRefused && api.CodeOf(err) != api.AuthorityUnreachable {
		t.Fatalf("the leader, with another one lost: %v", err)
	}
	leader = w.leader()
	if leader == left {
		left = w.other(leader)
	}
	if err := change(leader, left, true); api.CodeOf(err) != api.PlacementRefused || !strings.Contains(err.Error(), lost) {
		t.Fatalf("one that votes, with another one lost: %v", err)
	}
	if err := change(left, lost, true); err != nil {
		t.Fatalf("the lost one, asked at another voter: %v", err)
	}
	if err := change(left, lost, true); err != nil {
		t.Fatalf("once more: %v", err)
	}
	if err := change(leader, lost, false); api.CodeOf(err) != api.PlacementRefused {
		t.Fatalf("one that is not there: %v", err)
	}

	w.isolate(lost, false)
	w.dirs[lost] = filepath.Join(t.TempDir(), "council")
	s := w.seats[leader].Status()
	if err := council.Create(council.Birth{Dir: w.dirs[lost], Region: lost, Authority: s.Authority, Join: s.Voters}); err != nil {
		t.Fatal(err)
	}
	w.start(lost)
	if err := change(lost, lost, false); err != nil {
		t.Fatalf("it joins, by its own asking: %v", err)
	}
	w.until("it votes", func() bool { _, aside := w.seats[lost].Aside(); return !aside })
	leader = w.leader()
	if err := change(leader, leader, true); err != nil {
		t.Fatalf("the leader itself: %v", err)
	}
	w.until("it knows that it has no vote", func() bool { by, aside := w.seats[leader].Aside(); return aside && len(by) == 2 })
	w.stop(leader)
	next := w.leader()
	if s := w.seats[next].Status(); len(s.Voters) != 2 {
		t.Fatalf("%+v", s)
	}
	entries, err := w.seats[next].Audit(0)
	if err != nil {
		t.Fatal(err)
	}
	notes := 0
	for _, e := range entries {
		if e.Verb == placement.Voters {
			notes++
		}
	}
	if notes != 3 {
		t.Errorf("%d of 3 changes are in the audit", notes)
	}
}
