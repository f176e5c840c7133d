package council_test

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"domicile/api"
	"domicile/regions/council"
	"domicile/regions/placement"
)

// TestR14e_NoCommandThatAnOlderVoterCannotRead upgrades three voters one by one to a program
// that reads commands of version 2. None is decided before the last voter reads it, the
// refusal names who does not, and what the older program knows goes on. A voter that meets
// one all the same, because it went back, stands still and makes no other state of it.
func TestR14e_NoCommandThatAnOlderVoterCannotRead(t *testing.T) {
	t.Parallel()
	w := founding(t, "ap-south", "eu-west", "us-east")
	newer := func(at, log string) error {
		ctx, cancel := context.WithTimeout(context.Background(), patient)
		defer cancel()
		_, err := w.seats[at].SubmitAs(ctx, w.id("eu-west"), 2, declared(log, "eu-west", movable(placement.Accept)))
		return err
	}
	namesTheOlder := func(err error) {
		t.Helper()
		var e *api.Error
		if !errors.As(err, &e) || e.Code != api.VersionMismatch || e.Region != "us-east" || !strings.Contains(e.Hint, "up to version 1") {
			t.Fatalf("a command that us-east cannot read: %v", err)
		}
	}
	restart := func(name string, reads byte) {
		w.stop(name)
		w.reads[name] = reads
		w.start(name)
	}
	restart("ap-south", 2)
	restart("eu-west", 2)
	w.until("both hear a leader", func() bool {
		return w.seats["ap-south"].Status().Leader != "" && w.seats["eu-west"].Status().Leader != ""
	})
	namesTheOlder(newer("ap-south", "K"))
	namesTheOlder(newer("eu-west", "K"))
	w.must("us-east", declared("L", "eu-west", movable(placement.Accept)))

	w.stop("us-east") // what is known of it has to outlive it, and a start of the others
	restart(w.leader(), 2)
	namesTheOlder(newer(w.leader(), "K"))
	w.reads["us-east"] = 2
	w.start("us-east")
	w.until("the others have heard that us-east reads it too", func() bool { return newer(w.leader(), "K") == nil })
	w.until("all have it", func() bool {
		for _, v := range w.seats {
			if _, ok := v.Log("K"); !ok {
				return false
			}
		}
		return true
	})

	restart("us-east", 1)
	w.until("us-east stands still", func() bool { return api.CodeOf(w.seats["us-east"].Status().Failed) == api.VersionMismatch })
	w.must(w.leaderOf("ap-south", "eu-west"), declared("M", "eu-west", movable(placement.Accept)))
	if err := w.seats["us-east"].Snapshot(); err == nil || !strings.Contains(err.Error(), string(api.VersionMismatch)) {
		t.Errorf("it keeps a state that lacks a decision: %v", err)
	}
	if _, ok := w.seats["us-east"].Log("M"); ok {
		t.Error("it went on past what it could not read")
	}
	joinsOnlyAsNew(w, "us-east")
	restart("us-east", 2)
	w.until("it votes, and has all", func() bool {
		_, ok := w.seats["us-east"].Log("M")
		_, aside := w.seats["us-east"].Aside()
		return ok && !aside
	})
}

// joinsOnlyAsNew takes an older voter's vote away, and lets a voter in its place join only
// once it reads what the leader does.
func joinsOnlyAsNew(w *world, name string) {
	w.t.Helper()
	leader := w.leaderOf("ap-south", "eu-west")
	ctx, cancel := context.WithTimeout(context.Background(), patient)
	defer cancel()
	change := council.VoterChange{Region: name, Remove: true, Actor: "anna", Reason: "it is older"}
	if err := w.seats[leader].ChangeVoters(ctx, change); err != nil {
		w.t.Fatal(err)
	}
	w.stop(name)
	w.dirs[name] = filepath.Join(w.t.TempDir(), "council")
	s := w.seats[leader].Status()
	if err := council.Create(council.Birth{Dir: w.dirs[name], Region: name, Authority: s.Authority, Join: s.Voters}); err != nil {
		w.t.Fatal(err)
	}
	w.start(name)
	change.Remove = false
	var e *api.Error
	if err := w.seats[leader].ChangeVoters(ctx, change); !errors.As(err, &e) || e.Code != api.VersionMismatch || e.Region != name || e.Value != "1" {
		w.t.Fatalf("an older voter joins: %v", err)
	}
	w.stop(name)
	w.reads[name] = 2
	w.start(name)
	if err := w.seats[leader].ChangeVoters(ctx, change); err != nil {
		w.t.Fatal(err)
	}
}
