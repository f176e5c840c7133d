package field_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	pb "domicile/api/domicile/v1"
	"domicile/chaos/drill"
	"domicile/chaos/drill/history"
	verdict "domicile/chaos/drill/report"
	"domicile/chaos/field"
	"domicile/chaos/lab"
	"domicile/deploy"
	"domicile/regions"
)

// drilled is a field in which drills are permitted, as a controller reaches it.
type drilled struct {
	*testing.T
	*field.Field
	nodes map[string]*drill.Node
	rules []byte // of the packet filter, before anything was cut
}

// ruleset is every rule that the kernel has, without how long elements live.
func ruleset(t *testing.T) []byte {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "nft", "list", "ruleset").Output()
	must(t, err)
	return out
}

func openDrilled(t *testing.T, quorum ...string) *drilled {
	d := &drilled{T: t, nodes: map[string]*drill.Node{}}
	d.Field = open(t, field.Options{Quorum: quorum, Manifest: append(bytes.Clone(deploy.FederationYAML), "\ndrills: {max_for: 10m}\n"...)})
	d.rules = ruleset(t)
	for _, n := range d.Nodes() {
		of, _ := d.Federation.Region(n.Region)
		x := &drill.Node{Region: n.Region, Name: n.Gateway, Place: of.Boundary, Address: n.Admin()}
		var err error
		x.Admin, err = n.Desk()
		must(t, err)
		x.Door, err = n.Client(1)
		must(t, err)
		t.Cleanup(func() { x.Admin.Close(); x.Door.Close() })
		if first := d.nodes[n.Region]; first != nil {
			first.Others = append(first.Others, x)
		} else {
			d.nodes[n.Region] = x
		}
	}
	return d
}

// filterLease is what a starved machine needs, not a node.
const filterLease = 10 * time.Second

// draft is a plan to isolate eu-west by the packet filter.
func (d *drilled) draft() (p drill.Plan) {
	must(d.T, lab.Poll(d.Context(), soon, func() error {
		f, err := drill.Look(d.Context(), d.nodes)
		if err == nil {
			p, err = drill.Draft(f, "eu-west", 20, "test")
		}
		return err
	}))
	p.Gate, p.StopWhen.AckP99 = "nftables", 0 // the machine does other things too
	p.Baseline, p.For, p.Lease, p.CatchUp = time.Second, filterLease, filterLease, 3*time.Minute
	return p
}

// same looks that the kernel has the rules of before, within a time.
func (d *drilled) same(within time.Duration) {
	d.Helper()
	began := time.Now()
	if err := lab.Poll(d.Context(), soon, func() error {
		if now := ruleset(d.T); !bytes.Equal(now, d.rules) {
			return fmt.Errorf("before:\n%s\nnow:\n%s", d.rules, now)
		}
		return nil
	}); err != nil {
		d.Error(err)
	}
	if took := time.Since(began); took > within {
		d.Errorf("the rules were the same after %s, want %s", took, within)
	}
}

// each asks every node the same.
func (d *drilled) each(ask func(n *drill.Node) error) {
	d.Helper()
	for _, n := range d.nodes {
		for _, x := range append([]*drill.Node{n}, n.Others...) {
			must(d.T, ask(x))
		}
	}
}

// hold arms the plan at every node, and cuts if it is told to, as a controller does that
// then falls silent.
func (d *drilled) hold(id string, p drill.Plan, cut bool) {
	d.Helper()
	must(d.T, lab.Poll(d.Context(), soon, func() error {
		_, err := drill.Try(d.Context(), &drill.Config{ID: id, Plan: p, Confirmed: true, Nodes: d.nodes, Clock: regions.NewSteadyClock()})
		return err
	}))
	d.each(func(n *drill.Node) error {
		_, err := n.Admin.ArmDrill(d.Context(), &pb.ArmDrillRequest{Id: id, Spec: p.Spec(), Reason: "test"})
		return err
	})
	if cut {
		d.each(func(n *drill.Node) error { _, err := n.Admin.CutDrill(d.Context(), id); return err })
	}
}

// TestR14i_TheKernelsCutEndsWhateverDies: a packet filter cuts eu-west off. The host's rules
// are the same as before after a whole drill, after a controller that falls silent in each
// phase, and after a node that is killed; what that had cut ends while it is dead.
func TestR14i_TheKernelsCutEndsWhateverDies(t *testing.T) {
	d := openDrilled(t)
	p := d.draft()
	bad := p
	bad.Planes = []string{"control", "data"}
	if _, err := drill.Try(t.Context(), &drill.Config{ID: "some", Plan: bad, Confirmed: true, Nodes: d.nodes, Clock: regions.NewSteadyClock()}); err == nil || !strings.Contains(err.Error(), "share one port") {
		t.Errorf("some lanes of a link: %v", err)
	}
	d.whole(p)
	const late = 3 * (filterLease + time.Second)
	if os.Getenv("DOMICILE_LONG") != "" {
		d.hold("armed", p, false)
		d.same(late)
		d.hold("cut", p, true)
		d.same(late)
	}
	d.hold("healing", p, true)
	if now := ruleset(t); bytes.Count(now, []byte("table inet domicile-drill/")) != 3 || !bytes.Contains(now, []byte("/healing {")) {
		t.Errorf("cut by\n%s", now)
	}
	d.down("healing")
	_, err := d.nodes["eu-west"].Admin.HealDrill(t.Context(), "healing")
	must(t, err)
	d.same(late)
	d.killed(p)
	d.lost(p)
	if why := d.stepped(p); why != nil {
		t.Log("no clock was stepped:", why)
	}
}

// lost: the controller's calls to all nodes hang in the midst of the cut, as when it loses its
// own line. The nodes heal by themselves, and it says that it had no control.
func (d *drilled) lost(p drill.Plan) {
	p.For = time.Minute
	ended := make(chan drill.Result, 1)
	go func() {
		result, err := drill.Run(context.WithoutCancel(d.Context()), drill.Config{ID: "lost", Plan: p, Dir: d.TempDir(), Nodes: d.nodes, Confirmed: true, Controller: "test", Clock: regions.NewSteadyClock()})
		if err != nil {
			d.Error(err)
		}
		ended <- result
	}()
	cuts := func() int { return bytes.Count(ruleset(d.T), []byte("table inet domicile-drill/")) }
	wait := func(want int) {
		must(d.T, lab.Poll(d.Context(), soon, func() error {
			if n := cuts(); n != want {
				return fmt.Errorf("%d nodes cut, want %d", n, want)
			}
			return nil
		}))
	}
	wait(3)
	line := func(script string) {
		c := exec.CommandContext(d.Context(), "nft", script)
		if out, err := c.CombinedOutput(); err != nil {
			d.Fatalf("%v: %s", err, out)
		}
	}
	_, port, _ := strings.Cut(d.nodes["eu-west"].Address, ":")
	line("add table inet controllers_line; add chain inet controllers_line in { type filter hook input priority -20; }; add rule inet controllers_line in tcp dport " + port + " drop")
	began := time.Now()
	wait(0)
	if took := time.Since(began); took > 3*(filterLease+time.Second) {
		d.Errorf("healed %s after the controller had lost its line", took)
	}
	line("delete table inet controllers_line")
	if result := <-ended; result.Outcome != history.Uncontrolled {
		d.Errorf("the drill ended as %+v", result)
	}
	d.same(time.Minute)
}

// stepped: a lease is no matter of the wall clock.
func (d *drilled) stepped(p drill.Plan) error {
	p.Lease, p.For = 4*time.Minute, 4*time.Minute
	d.hold("stepped", p, true)
	if err := d.Node("eu-west").Skew(time.Hour); err != nil {
		return err
	}
	d.down("stepped")
	s, err := d.nodes["eu-west"].Admin.DrillStatus(d.Context())
	must(d.T, err)
	if s.GetId() != "stepped" || s.GetLeftNano() > int64(p.Lease) || len(s.GetCuts()) != 2 {
		d.Errorf("an hour later: %v", s)
	}
	d.each(func(n *drill.Node) error { _, err := n.Admin.HealDrill(d.Context(), "stepped"); return err })
	d.same(time.Minute)
	return nil
}

// down keeps the cut until the other side sees the link down.
func (d *drilled) down(id string) {
	must(d.T, lab.Poll(d.Context(), soon, func() error {
		d.each(func(n *drill.Node) error { _, err := n.Admin.RenewDrill(d.Context(), id); return err })
		s, err := d.nodes["us-east"].Admin.Status(d.Context())
		if err == nil && !slices.ContainsFunc(s.GetLinks(), func(l *pb.LinkState) bool { return l.GetPeer() == "eu-west" && l.GetState() == "down" }) {
			err = fmt.Errorf("us-east sees %v", s.GetLinks())
		}
		return err
	}))
}

// killed: the lease of the killed node's own table ends in the kernel, and what is left of
// it is removed when the node starts.
func (d *drilled) killed(p drill.Plan) {
	d.hold("killed", p, true)
	victim := d.Node("us-east")
	victim.Kill()
	must(d.T, lab.Poll(d.Context(), soon, func() error {
		if now := ruleset(d.T); bytes.Contains(now, []byte("expires")) || bytes.Equal(now, d.rules) {
			return fmt.Errorf("now:\n%s", now)
		}
		return nil
	}))
	must(d.T, victim.Start())
	must(d.T, d.Linked(d.Context(), soon))
	d.same(time.Minute)
}

// whole is a drill from its plan to its report.
func (d *drilled) whole(p drill.Plan) {
	must(d.T, lab.Poll(d.Context(), soon, func() error {
		_, err := drill.Try(d.Context(), &drill.Config{ID: "whole", Plan: p, Confirmed: true, Nodes: d.nodes, Clock: regions.NewSteadyClock()})
		return err
	}))
	dir := d.TempDir()
	result, err := drill.Run(context.WithoutCancel(d.Context()), drill.Config{ID: "whole", Plan: p, Dir: dir, Nodes: d.nodes, Confirmed: true, Controller: "test", Clock: regions.NewSteadyClock()})
	if err != nil || result.Outcome != history.Completed {
		d.Fatalf("%+v %v", result, err)
	}
	d.same(time.Minute)
	h, err := history.Open(filepath.Join(dir, drill.HistoryFile))
	must(d.T, err)
	judged := verdict.Judge(h)
	for _, c := range judged.Checks {
		if slices.Contains([]string{verdict.CheckKept, verdict.CheckCopied, verdict.CheckReconcile, verdict.CheckScan}, c.Name) && (!c.OK || c.Judged == 0) {
			d.Errorf("%s: judged %d: %s", c.Name, c.Judged, c.Text)
		}
	}
	if judged.Plan.Gate != "nftables" {
		d.Errorf("the report says %q", judged.Plan.Gate)
	}
}
