package placement_test

import (
	"testing"
	"time"

	"domicile/api"
	"domicile/regions/placement"
)

// TestR14g_HolderWritesOnlyWhatWasCovered walks one region's leases through a renewal, a
// move, an older authority and a machine whose time stood still.
func TestR14g_HolderWritesOnlyWhatWasCovered(t *testing.T) {
	s := founded(t)
	h := placement.NewHolder("eu-west")
	follow := func() {
		for _, l := range s.Changed(0) {
			h.Follow(l)
		}
	}
	at := func(d time.Duration) placement.Instant { return placement.Instant{Boot: d, Wall: int64(d)} }
	writes := func(want bool, log string, now placement.Instant) {
		t.Helper()
		l, _ := s.Log(log)
		err := h.Check(log, l.Epoch, now)
		if (err == nil) != want || err != nil && api.CodeOf(err) != api.Fenced {
			t.Fatalf("write %s at %s: %v", log, now.Boot, err)
		}
	}
	renew := func() placement.Grant {
		r, err := s.Apply(s.Applied()+10, placement.Command{Verb: placement.Renew, Regions: []string{"eu-west"}})
		if err != nil {
			t.Fatal(err)
		}
		return r.Grants[0]
	}

	follow()
	writes(false, "L", at(0))
	if !h.Answered(renew(), at(100*time.Second)) {
		t.Fatal("the region has what the authority covers")
	}
	writes(true, "L", at(119*time.Second))
	writes(false, "L", at(120*time.Second)) // from the sending on, whenever the answer came
	if names := h.Suspect(at(111 * time.Second)); len(names) != 2 {
		t.Fatal(names)
	}
	stood := at(105 * time.Second)
	stood.Wall += int64(600 * time.Millisecond)
	writes(false, "L", stood)

	span := time.Second
	l, _ := s.Log("L")
	begin := placement.Command{Verb: placement.Begin, ID: "m", Log: "L", Expect: l.Epoch, Actor: "a", Reason: "r", Plan: "p",
		Move: &placement.Move{Kind: placement.Forced, Target: "eu-central", TargetDigest: l.Terms.Digest, Accepted: placement.Loss{Span: &span}}}
	if _, err := s.Apply(s.Applied()+10, begin); err != nil {
		t.Fatal(err)
	}
	g := renew()
	if !h.Answered(g, at(104*time.Second)) {
		t.Fatal("without the revoked log the two agree")
	}
	writes(false, "L", at(105*time.Second))
	writes(true, "M", at(123*time.Second))

	if _, err := s.Apply(s.Applied()+10, declaration("N")); err != nil {
		t.Fatal(err)
	}
	if h.Answered(renew(), at(108*time.Second)) {
		t.Fatal("a log that the region does not know of was covered")
	}
	writes(true, "M", at(123*time.Second))
	writes(false, "M", at(125*time.Second))
	follow()
	if !h.Answered(renew(), at(112*time.Second)) {
		t.Fatal("it has caught up")
	}
	writes(true, "N", at(131*time.Second))

	g = renew()
	g.Generation++
	if !h.Answered(g, at(111*time.Second)) { // sent before the last one, to a newer authority
		t.Fatal("a newer authority answers")
	}
	writes(false, "N", at(131*time.Second))
	if h.Answered(renew(), at(113*time.Second)) {
		t.Fatal("an older authority prolonged a lease")
	}
}

// TestR14g_APlannedMoveTakesNoLease: while a planned move waits for people its home writes;
// given up, it ends the epoch, and with it the lease on it.
func TestR14g_APlannedMoveTakesNoLease(t *testing.T) {
	s := founded(t)
	h := placement.NewHolder("eu-west")
	at := func(d time.Duration) placement.Instant { return placement.Instant{Boot: d, Wall: int64(d)} }
	apply := func(c placement.Command) placement.Result {
		t.Helper()
		r, err := s.Apply(s.Applied()+10, c)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	follow := func() placement.Log {
		for _, l := range s.Changed(0) {
			h.Follow(l)
		}
		l, _ := s.Log("L")
		return l
	}
	answered := func(want bool, sent time.Duration, what string) {
		t.Helper()
		r := apply(placement.Command{Verb: placement.Renew, Regions: []string{"eu-west"}})
		if h.Answered(r.Grants[0], at(sent)) != want {
			t.Fatal(what)
		}
	}
	l := follow()
	apply(placement.Command{Verb: placement.Begin, ID: "plan", Log: "L", Expect: l.Epoch, Actor: "a", Reason: "r", Plan: "p",
		Move: &placement.Move{Kind: placement.Planned, Target: "eu-central", HomeDigest: l.Terms.Digest, TargetDigest: l.Terms.Digest}})
	answered(true, 100*time.Second, "a planned move that begins takes a lease from who has not heard of it")
	l = follow()
	answered(true, 101*time.Second, "or from who has")
	if err := h.Check("L", l.Epoch, at(120*time.Second)); err != nil {
		t.Fatal(err)
	}
	apply(placement.Command{Verb: placement.Abort, ID: "no", Log: "L", Op: "plan", Expect: l.Epoch, Actor: "a", Reason: "r"})
	answered(false, 102*time.Second, "an epoch that was given up is covered")
	l = follow()
	apply(placement.Command{Verb: placement.Opened, ID: "open", Log: "L", Region: "eu-west", Expect: l.Epoch, Actor: "a", Reason: "r", Point: &placement.Point{}})
	follow()
	answered(true, 102*time.Second, "the next epoch is not covered")
}
