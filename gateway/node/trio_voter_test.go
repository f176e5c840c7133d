package node_test

import (
	"errors"
	"testing"

	"domicile/gateway/node"
	"domicile/regions/council"
)

// threeVote is a region of three that decides alone.
const threeVote = `
version: 1
federation: three
regions: {eu-west: {gateways: {a: "%s", b: "%s", c: "%s"}}}
boundaries: {eu: [eu-west]}
authority: {voters: [eu-west]}
topics:
  orders: {writes: local, on_home_loss: {producers: refuse, consumers: {mode: wait}, owner: o, text: t}}
`

// TestR14e_AVoterStaysWhereItsFolderIs: the region's voter lives on one node, also
// while another one holds the seat, which follows.
func TestR14e_AVoterStaysWhereItsFolderIs(t *testing.T) {
	t.Parallel()
	r := newTrioOf(t, threeVote)
	err := council.Create(council.Birth{Dir: node.CouncilDir(r.configs["b"].Data), Region: "eu-west", Authority: "A", Voters: []string{"eu-west"}, Actor: "test", Reason: "test"})
	if err != nil {
		t.Fatal(err)
	}
	r.run(names[:]...)
	elsewhere := func() error { // the seat goes to another one
		if r.holder() != "b" {
			return nil
		}
		r.halt("b")
		r.holder()
		r.run("b")
		return errors.New("the voter's node had the seat")
	}
	r.soon(elsewhere)
	r.soon(func() error {
		m, err := r.desk("b").Placements(t.Context(), "", "")
		if s := m.GetAuthority(); err == nil && (s.GetRole() != "voter" || s.GetLeader() != "eu-west" || s.GetTrouble() != "") {
			err = errors.New(s.String())
		}
		return err
	})
	r.soon(func() error {
		if err := elsewhere(); err != nil {
			return err
		}
		m, err := r.desk(r.holder()).Placements(t.Context(), "", "")
		if s := m.GetAuthority(); err == nil && (s.GetRole() != "follower" || s.GetTrouble() != "") {
			err = errors.New("the node with the seat and without the folder: " + s.String())
		}
		return err
	})
}
