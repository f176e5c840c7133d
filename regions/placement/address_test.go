package placement_test

import (
	"testing"

	"domicile/api"
	"domicile/regions/placement"
)

// TestS01_OneIncarnationOfAnAddress: a second incarnation of a log is not taken in, nor can
// another log be altered into it, until the first one is retired.
func TestS01_OneIncarnationOfAnAddress(t *testing.T) {
	s := &placement.State{}
	index := uint64(0)
	do := func(c placement.Command) error {
		index++
		c.Actor, c.Reason = "anna", "a test"
		_, err := s.Apply(index, c)
		return err
	}
	declare := func(log, address string) placement.Command {
		terms := placement.Terms{Allowed: []string{"eu-west", "us-east"}, Targets: []string{"eu-west", "us-east"}, Mode: placement.Manual, Isolation: placement.Accept, Digest: "d", Address: address}
		return placement.Command{Verb: placement.Declare, ID: "declare/" + log, Log: log, Expect: api.StaticEpoch("eu-west"), Home: "eu-west", Region: "eu-west", Terms: &terms}
	}
	for _, c := range []placement.Command{{Verb: placement.Found, ID: "f", Founding: &placement.Founding{Authority: "A"}}, declare("first", "orders"), declare("other", "books"), declare("older", "")} {
		if err := do(c); err != nil {
			t.Fatal(err)
		}
	}
	if err := do(declare("second", "orders")); api.CodeOf(err) != api.Conflict {
		t.Errorf("a second incarnation: %v", err)
	}
	alter := declare("other", "orders")
	alter.Verb, alter.ID, alter.Home = placement.Alter, "alter", ""
	if err := do(alter); api.CodeOf(err) != api.Conflict {
		t.Errorf("another log becomes one: %v", err)
	}
	if err := do(placement.Command{Verb: placement.Retire, ID: "r", Log: "first", Expect: api.StaticEpoch("eu-west"), Region: "eu-west"}); err != nil {
		t.Fatal(err)
	}
	if err := do(declare("second", "orders")); err != nil {
		t.Errorf("after the first was let go of: %v", err)
	}
}
