package field_test

import (
	"bytes"
	"fmt"
	"maps"
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
// the one to which the seat moves in the middle of it opens its links under it, and the
// controller asks that one; a plan that does not reach each of them is refused. By the gates in
// the nodes, whose holder hangs, and by their kernels, whose holder is killed.
func TestR14i_ACutHoldsWhereverTheSeatGoes(t *testing.T) {
	d := openDrilled(t, "eu-west")
	p := d.draft()
	p.Gate, p.Lease, p.For = "process", 4*time.Minute, 4*time.Minute // nothing ends it but a word
	eu := d.nodes["eu-west"]
	half := *eu
	half.Others = eu.Others[:1]
	if _, err := drill.Try(t.Context(), &drill.Config{ID: "half", Plan: p, Confirmed: true, Clock: regions.NewSteadyClock(),
		Nodes: map[string]*drill.Node{"eu-west": &half, "us-east": d.nodes["us-east"], "ap-south": d.nodes["ap-south"]}}); err == nil || !strings.Contains(err.Error(), "the region has 3 nodes") && !strings.Contains(err.Error(), "name a context for each") {
		t.Errorf("two of three nodes: %v", err)
	}
	d.hold("seat", p, true)
	r := &region{T: t, nodes: d.Of("eu-west")}
	old, _ := r.holder(nil)
	d.cutOff(old, "us-east")
	must(t, old.Pause())
	next, _ := r.holder(old)
	d.cutOff(next, "us-east")
	d.cutOff(d.Node("us-east"), "eu-west")
	if _, err := publish(t, d.Node("us-east"), order("across", "eu")); err == nil {
		t.Error("a record crossed the cut")
	}
	must(t, lab.Poll(t.Context(), soon, func() error {
		f, err := drill.Look(t.Context(), d.first(old))
		if err == nil && f.Drill["eu-west"].GetNode() != next.Gateway {
			err = fmt.Errorf("asked of %s, the seat is at %s", f.Drill["eu-west"].GetNode(), next.Gateway)
		}
		return err
	}))
	must(t, old.Resume())
	must(t, lab.Poll(t.Context(), soon, func() error {
		_, err := d.desk(old).Admin.RenewDrill(t.Context(), "seat")
		return err
	}))
	d.each(func(n *drill.Node) error { _, err := n.Admin.HealDrill(t.Context(), "seat"); return err })
	must(t, d.Linked(t.Context(), soon))
	p.Gate = "nftables"
	d.kernels(r, p)
}

// kernels: each node has a table of its own. The holder is killed, and finds its table gone
// once it has started; the cut holds without it, and afterwards every rule is as before.
func (d *drilled) kernels(r *region, p drill.Plan) {
	d.hold("kernels", p, true)
	tables := func(want int) {
		d.Helper()
		if now := ruleset(d.T); bytes.Count(now, []byte("table inet domicile-drill/")) != want {
			d.Errorf("want %d tables:\n%s", want, now)
		}
	}
	tables(5)
	old, _ := r.holder(nil)
	d.cutOff(old, "us-east")
	old.Kill()
	next, _ := r.holder(old)
	d.cutOff(next, "us-east")
	d.cutOff(d.Node("us-east"), "eu-west")
	if _, err := publish(d.T, d.Node("us-east"), order("around", "eu")); err == nil {
		d.Error("a record crossed the cut")
	}
	tables(5)
	must(d.T, old.Start())
	must(d.T, lab.Poll(d.Context(), soon, func() error { _, err := d.desk(old).Admin.DrillStatus(d.Context()); return err }))
	tables(4)
	s, err := d.desk(old).Admin.DrillStatus(d.Context())
	if err != nil || s.GetId() != "" || len(s.GetCuts()) > 0 {
		d.Errorf("a node that has started again holds %v %v", s, err)
	}
	d.each(func(n *drill.Node) error {
		if n == d.desk(old) {
			return nil
		}
		_, err := n.Admin.HealDrill(d.Context(), "kernels")
		return err
	})
	d.same(time.Minute)
	must(d.T, d.Linked(d.Context(), soon))
}

// cutOff waits until a node sees a link down, by the drill's gate.
func (d *drilled) cutOff(n *field.Node, peer string) {
	d.Helper()
	must(d.T, lab.Poll(d.Context(), soon, func() error {
		s, err := d.desk(n).Admin.Status(d.Context())
		if err == nil && !slices.ContainsFunc(s.GetLinks(), func(l *pb.LinkState) bool {
			return l.GetPeer() == peer && l.GetState() == "down"
		}) {
			err = fmt.Errorf("%s sees %v", n.Name, s.GetLinks())
		}
		return err
	}))
}

// first are the regions as a controller knows them that took that node for its region's.
func (d *drilled) first(n *field.Node) map[string]*drill.Node {
	nodes := maps.Clone(d.nodes)
	at := d.desk(n)
	of := *at
	of.Others = nil
	for _, x := range append([]*drill.Node{d.nodes[n.Region]}, d.nodes[n.Region].Others...) {
		if x != at {
			of.Others = append(of.Others, x)
		}
	}
	nodes[n.Region] = &of
	return nodes
}

// desk is a node as the controller reaches it.
func (d *drilled) desk(n *field.Node) *drill.Node {
	first := d.nodes[n.Region]
	return append([]*drill.Node{first}, first.Others...)[slices.IndexFunc(d.Of(n.Region), func(o *field.Node) bool { return o == n })]
}
