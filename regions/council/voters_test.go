package council_test

import (
	"context"
	"path/filepath"
	"slices"
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
	first := w.seats[leader].Status().Seats
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
	if err := change(lost, lost, false); err != nil {
		t.Fatalf("it asks once more, as one that lost the answer: %v", err)
	}
	if again := w.seats[leader].Status().Seats; slices.Equal(again, first) || len(again) != 3 {
		t.Fatalf("nothing tells these voters from the first: %v %v", again, first)
	}
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
	notes := slices.DeleteFunc(entries, func(e placement.Entry) bool { return e.Verb != placement.Voters })
	if err != nil || len(notes) != 3 {
		t.Errorf("%d of 3 changes are in the audit: %v", len(notes), err)
	}
}

func sorted(names []string) []string { return slices.Sorted(slices.Values(names)) }

// TestR14e_ARegionHasOneVoter: a region's vote goes to a voter on another node, and the one
// that had it before comes back with its folder. It elects nobody, counts for nobody, learns
// that its vote is gone, and makes room for the other.
func TestR14e_ARegionHasOneVoter(t *testing.T) {
	t.Parallel()
	w := founding(t, "ap-south", "eu-west", "us-east")
	w.must("eu-west", declared("L", "eu-west", movable(placement.Accept)))
	leader := w.leader()
	twice := w.other(leader)
	former := w.dirs[twice]
	w.stop(twice)
	at := w.seats[leader]
	change := func(remove bool) error {
		ctx, cancel := context.WithTimeout(context.Background(), patient)
		defer cancel()
		return at.ChangeVoters(ctx, council.VoterChange{Region: twice, Remove: remove, Actor: "anna", Reason: "its node is down"})
	}
	if err := change(true); err != nil {
		t.Fatal(err)
	}
	s := at.Status()
	w.dirs[twice] = filepath.Join(t.TempDir(), "council")
	if err := council.Create(council.Birth{Dir: w.dirs[twice], Region: twice, Authority: s.Authority, Join: s.Voters}); err != nil {
		t.Fatal(err)
	}
	w.start(twice)
	if err := change(false); err != nil {
		t.Fatal(err)
	}
	w.until("it votes", func() bool { _, aside := w.seats[twice].Aside(); return !aside })
	second := w.dirs[twice]
	w.stop(twice)
	left := w.leader()
	other := w.other(left)
	w.until("both of the others have heard of it", func() bool {
		return slices.Equal(w.seats[other].Status().Seats, w.seats[left].Status().Seats)
	})
	w.stop(other)
	w.until("who is left leads nobody", func() bool { return !w.seats[left].Status().Leading })

	w.dirs[twice] = former
	w.start(twice)
	before := w.dialed(left, twice)
	w.until("who is left has called the region again and again", func() bool { return w.dialed(left, twice) > before+3 })
	if _, aside := w.seats[twice].Aside(); aside {
		t.Error("the former voter gave its vote up by the word of one region")
	}
	for name, v := range w.seats {
		if s := v.Status(); s.Leading {
			t.Errorf("%s leads with the vote of a voter that has none", name)
		}
	}
	w.start(other)
	w.until("the former voter knows that its vote is gone", func() bool { _, aside := w.seats[twice].Aside(); return aside })
	w.stop(twice)
	w.dirs[twice] = second
	w.start(twice)
	w.leader()
	w.must(left, declared("M", "eu-west", movable(placement.Accept)))
}

// TestR14e_WhoKnowsLaterSaysWhetherAVoterVotes: a voter whose vote was taken away meets one
// that heard of it and one that did not, again and again. It stays aside, whoever it met last.
func TestR14e_WhoKnowsLaterSaysWhetherAVoterVotes(t *testing.T) {
	t.Parallel()
	w := founding(t, "ap-south", "eu-west", "sa-north", "us-east")
	w.must("eu-west", declared("L", "eu-west", movable(placement.Accept)))
	leader := w.leader()
	gone := w.other(leader)
	var rest []string
	for _, name := range w.names {
		if name != leader && name != gone {
			rest = append(rest, name)
		}
	}
	late, heard := rest[0], rest[1]
	w.stop(gone)
	w.sever(late, leader, heard)
	w.until("the vote is taken away", func() bool {
		ctx, cancel := context.WithTimeout(context.Background(), patient)
		defer cancel()
		return w.seats[heard].ChangeVoters(ctx, council.VoterChange{Region: gone, Remove: true, Actor: "anna", Reason: "a test"}) == nil
	})
	w.start(gone)
	ctx, cancel := context.WithTimeout(context.Background(), patient)
	defer cancel()
	w.until("those that heard of it say so", func() bool {
		return api.CodeOf(w.seats[gone].Call(ctx, leader)) == api.PermissionDenied && api.CodeOf(w.seats[gone].Call(ctx, heard)) == api.PermissionDenied
	})
	for range 3 {
		if err := w.seats[gone].Call(ctx, late); err != nil {
			t.Fatalf("one that did not hear of it refuses: %v", err)
		}
		if _, aside := w.seats[gone].Aside(); !aside {
			t.Fatal("it has its vote back, by the word of one that did not hear that it is gone")
		}
		if err := w.seats[gone].Call(ctx, heard); api.CodeOf(err) != api.PermissionDenied {
			t.Fatal(err)
		}
	}
	if by, aside := w.seats[late].Aside(); aside {
		t.Errorf("the one that is late goes by %v", by)
	}
}

// TestR14e_DifferingListsOfVotersAreNoOneFounding: two regions' files have three regions
// vote, the third's five. Two of three decide, and the third is no voter of theirs, whatever
// name it was given.
func TestR14e_DifferingListsOfVotersAreNoOneFounding(t *testing.T) {
	t.Parallel()
	three := []string{"ap-south", "eu-west", "us-east"}
	five := append(slices.Clone(three), "eu-central", "sa-north")
	birth := func(region string, voters []string) council.Birth {
		return council.Birth{Dir: filepath.Join(t.TempDir(), "council"), Region: region, Authority: "A1", Voters: voters, Actor: "anna", Reason: "first"}
	}
	w := newWorld(t, three...)
	for name, voters := range map[string][]string{"ap-south": three, "eu-west": three, "us-east": five} {
		b := birth(name, voters)
		if err := council.Create(b); err != nil {
			t.Fatal(err)
		}
		w.dirs[name] = b.Dir
		w.start(name)
	}
	w.must(w.leaderOf("ap-south", "eu-west"), declared("L", "eu-west", movable(placement.Accept)))
	w.until("each side knows the other's list", func() bool {
		theirs, ours := w.seats["us-east"].Status().Rivals, w.seats["eu-west"].Status().Rivals
		return theirs["eu-west"].Voters == strings.Join(sorted(three), ",") && ours["us-east"].Voters == strings.Join(sorted(five), ",")
	})
	if s := w.seats["us-east"].Status(); s.Generation != 0 || s.Leader != "" {
		t.Errorf("%+v", s)
	}
	b := birth("us-east", five)
	b.Authority = w.seats["eu-west"].Status().Authority
	if err := council.Create(b); api.CodeOf(err) != api.ConfigInvalid || !strings.Contains(err.Error(), "other voters than") {
		t.Errorf("made for the founding of another list: %v", err)
	}
}

// TestR14g_AVoterRenewsThroughAnother: a voter that is cut off from the leader, and only from
// it, renews through the third, whichever it is.
func TestR14g_AVoterRenewsThroughAnother(t *testing.T) {
	t.Parallel()
	w := founding(t, "ap-south", "eu-west", "us-east")
	w.must("eu-west", declared("L", "eu-west", movable(placement.FenceAfter)))
	leader := w.leader()
	cut := w.other(leader)
	w.sever(cut, leader)
	w.until("it hears no leader", func() bool { return w.seats[cut].Status().Leader == "" })
	w.until("it renews", func() bool {
		ctx, cancel := context.WithTimeout(context.Background(), pace.Of(2*placement.RenewEvery))
		defer cancel()
		g, err := w.seats[cut].Renew(ctx)
		return err == nil && g.Region == cut && g.Index > 0
	})
}
