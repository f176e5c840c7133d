package field_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	pb "domicile/api/domicile/v1"
	"domicile/chaos/drill"
	"domicile/chaos/field"
	"domicile/chaos/lab"
	"domicile/regions"
)

// TestR14i_ACutHoldsWhereverTheSeatGoes: all nodes of a region of three hold the cut, so that
// the one to which the seat moves in the middle of it opens its links under it; a plan that
// does not reach each of them is refused.
func TestR14i_ACutHoldsWhereverTheSeatGoes(t *testing.T) {
	d := openDrilled(t, "eu-west")
	p := d.draft()
	p.Gate, p.Lease, p.For = "process", 4*time.Minute, 4*time.Minute // nothing ends it but a word
	eu := d.nodes["eu-west"]
	half := *eu
	half.Others = eu.Others[:1]
	if _, err := drill.Try(t.Context(), &drill.Config{ID: "half", Plan: p, Confirmed: true, Clock: regions.NewSteadyClock(),
		Nodes: map[string]*drill.Node{"eu-west": &half, "us-east": d.nodes["us-east"], "ap-south": d.nodes["ap-south"]}}); err == nil || !strings.Contains(err.Error(), "the region has 3 nodes") {
		t.Errorf("two of three nodes: %v", err)
	}
	d.hold("seat", p, true)
	down := func(n *field.Node, peer string) {
		must(t, lab.Poll(t.Context(), soon, func() error {
			desk := d.desk(n)
			s, err := desk.Admin.Status(t.Context())
			if err == nil && !slices.ContainsFunc(s.GetLinks(), func(l *pb.LinkState) bool {
				return l.GetPeer() == peer && l.GetState() == "down" && strings.Contains(l.GetFault(), "of drill seat")
			}) {
				err = fmt.Errorf("%s sees %v", n.Name, s.GetLinks())
			}
			return err
		}))
	}
	r := &region{T: t, nodes: d.Of("eu-west")}
	old, _ := r.holder(nil)
	down(old, "us-east")
	must(t, old.Pause())
	next, _ := r.holder(old)
	down(next, "us-east")
	down(d.Node("us-east"), "eu-west")
	if _, err := publish(t, d.Node("us-east"), order("across", "eu")); err == nil {
		t.Error("a record crossed the cut")
	}
	must(t, old.Resume())
	must(t, lab.Poll(t.Context(), soon, func() error {
		_, err := d.desk(old).Admin.RenewDrill(t.Context(), "seat")
		return err
	}))
	d.each(func(n *drill.Node) error { _, err := n.Admin.HealDrill(t.Context(), "seat"); return err })
	must(t, d.Linked(t.Context(), soon))
}

// desk is a node as the controller reaches it.
func (d *drilled) desk(n *field.Node) *drill.Node {
	first := d.nodes[n.Region]
	return append([]*drill.Node{first}, first.Others...)[slices.IndexFunc(d.Of(n.Region), func(o *field.Node) bool { return o == n })]
}
