package drill_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"domicile/chaos/drill"
	"domicile/chaos/drill/history"
	"domicile/chaos/drill/report"
	"domicile/chaos/lab"
	"domicile/deploy"
	"domicile/gateway/door"
	"domicile/gateway/node"
	"domicile/regions"
	"domicile/regions/fabric/fabrictest"
	"domicile/regions/identity"
)

// childEnv makes this test binary a controller: it runs the drill that the file tells of.
const childEnv = "DOMICILE_DRILL_CHILD"

func TestMain(m *testing.M) {
	if path := os.Getenv(childEnv); path != "" {
		os.Exit(beController(path))
	}
	fabrictest.VerifyTestMain(m)
}

// job is what a controller of its own process is told.
type job struct {
	ID, Dir string
	Plan    drill.Plan
	Doors   map[string]string // region → address
	Admins  map[string]string
	Places  map[string]string
	People  people
}

// uncontrolled is what a controller ends with that has lost its drill.
const uncontrolled = 3

func beController(path string) int {
	var j job
	text, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(text, &j)
	}
	nodes := map[string]*drill.Node{}
	for region := range j.Admins {
		nodes[region] = &drill.Node{Region: region, Place: j.Places[region], Address: j.Admins[region]}
		if err == nil {
			err = j.People.reach(nodes[region], nil, j.Doors[region])
		}
	}
	var result drill.Result
	if err == nil {
		result, err = drill.Run(context.Background(), drill.Config{ID: j.ID, Dir: j.Dir, Plan: j.Plan, Nodes: nodes, Confirmed: true, Controller: "test", Clock: regions.NewSteadyClock()})
	}
	switch {
	case result.Outcome == history.Uncontrolled:
		return uncontrolled
	case err != nil || result.Outcome != history.Completed:
		fmt.Fprintln(os.Stderr, result, err)
		return 1
	}
	return 0
}

// rig is a federation in which drills are permitted and the catalogue may move.
type rig struct {
	lab    *lab.Lab
	nodes  map[string]*drill.Node
	people people
	slow   *atomic.Int64 // nanoseconds that each sync of eu-west's disk takes longer
}

// sync is a disk's, and slow while the rig says so.
func (r *rig) sync(dir *os.File) error {
	if d := time.Duration(r.slow.Load()); d > 0 {
		<-time.After(d)
	}
	return dir.Sync()
}

const rpo = 5 * time.Second

func open(t *testing.T, trios ...string) *rig {
	t.Helper()
	manifest := string(deploy.FederationYAML)
	manifest = strings.Replace(manifest, "    home: eu-west                 # only with writes: home\n    mirror: [all]\n",
		"    home: eu-west\n    mirror: [all]\n    failover: {mode: manual, targets: [us-east, ap-south], rpo: "+rpo.String()+", rto: 1m}\n", 1)
	manifest += "\nauthority: {voters: [eu-west, us-east, ap-south]}\ndrills: {max_for: 2m}\n"
	r := &rig{nodes: map[string]*drill.Node{}, slow: &atomic.Int64{}}
	l, err := lab.Open(t.Context(), lab.Options{Parent: t.TempDir(), Manifest: []byte(manifest), Trios: trios, Config: func(region string, c *node.Config) {
		c.Principals = []door.PrincipalRule{{Match: "*", Class: "app", Place: region}}
	}, Seams: func(region string, s *node.Seams) {
		s.Dev = false
		if region == "eu-west" {
			s.Hooks.Fabric.Sync = r.sync
		}
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	if err := lab.Poll(t.Context(), 3*time.Minute, func() error { return l.Linked(t.Context()) }); err != nil {
		t.Fatal(err)
	}
	r.lab, r.people = l, people{Dir: t.TempDir()}
	r.people.certify(t, l.Authority, identity.Client, 12*time.Hour)
	r.people.certify(t, l.Authority, identity.Operator, 12*time.Hour)
	r.nodes = r.reach(t, r.people, nil)
	return r
}

// reach is the regions as these people reach them: at the node that has the seat, and at the
// others.
func (r *rig) reach(t *testing.T, p people, dial dialer) map[string]*drill.Node {
	t.Helper()
	nodes := map[string]*drill.Node{}
	for _, region := range r.lab.Regions() {
		of, _ := r.lab.Federation.Region(region.Name)
		n := &drill.Node{Region: region.Name, Place: of.Boundary}
		var doors []string
		for _, g := range region.Gateways() {
			doors = append(doors, g.Node().Door())
			if x := (drill.Node{Region: region.Name, Name: g.Name, Address: g.Node().Admin()}); g == region.Holder() {
				n.Name, n.Address = x.Name, x.Address
			} else {
				n.Others = append(n.Others, &x)
			}
		}
		if err := p.reach(n, dial, doors...); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			n.Door.Close()
			for _, x := range append(n.Others, n) {
				x.Admin.Close()
			}
			if n.Desk != nil {
				n.Desk.Close()
			}
		})
		nodes[region.Name] = n
	}
	return nodes
}

// plan isolates eu-west for as long as the catalogue needs to be too far behind.
func (r *rig) plan(t *testing.T) drill.Plan {
	t.Helper()
	var p drill.Plan
	err := lab.Poll(t.Context(), 30*time.Second, func() error {
		f, err := drill.Look(t.Context(), r.nodes)
		if err != nil {
			return err
		}
		p, err = drill.Draft(f, "eu-west", 20, "test")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	p.StopWhen.AckP99 = 0 // the machine does other things too
	p.Baseline, p.For, p.Lease, p.CatchUp = 2*time.Second, 2*rpo+time.Second, 2*time.Second, time.Minute
	return p
}

// ready waits until nothing stands against the plan, and the catalogue may fail over.
func (r *rig) ready(t *testing.T, p drill.Plan) {
	t.Helper()
	if err := lab.Poll(t.Context(), 3*time.Minute, func() error {
		for _, peer := range p.Peers {
			m, err := r.nodes[peer].Admin.Permissions(t.Context(), "catalog.updates")
			if err != nil || len(m.GetLogs()) != 1 || !m.GetLogs()[0].GetAllowed() {
				return fmt.Errorf("%v %v", m.GetLogs(), err)
			}
		}
		_, err := drill.Try(t.Context(), &drill.Config{ID: "try", Plan: p, Confirmed: true, Nodes: r.nodes, Clock: regions.NewSteadyClock()})
		return err
	}); err != nil {
		t.Fatal(err)
	}
}

// TestR14i_Decision14_ADrillRunsAndHealsWhateverDies: eu-west is cut off from two others under
// traffic. What the rules say is asked at each moment; everything is accounted for
// afterwards; and a controller that is killed leaves nothing cut.
func TestR14i_Decision14_ADrillRunsAndHealsWhateverDies(t *testing.T) {
	r := open(t)
	p := r.plan(t)
	t.Run("whole", func(t *testing.T) { r.whole(t, p) })
	t.Run("moved", func(t *testing.T) { r.exercised(t, p) })
	t.Run("slow", func(t *testing.T) { r.slowed(t, p) })
	t.Run("certificate", func(t *testing.T) { r.certificate(t, p) })
	phases := []history.Phase{history.ProbePhase}
	if os.Getenv("DOMICILE_LONG") != "" {
		phases = []history.Phase{history.Baseline, history.Arm, history.Cut, history.ProbePhase, history.Heal, history.CatchUp}
		t.Run("a minute at a thousand a second", r.minute)
		t.Run("stopped", func(t *testing.T) { r.stopped(t, p) })
		t.Run("renewed", func(t *testing.T) { r.renewed(t, p) })
	}
	for _, phase := range phases {
		t.Run("killed in "+string(phase), func(t *testing.T) { r.killed(t, p, phase) })
	}
}

func (r *rig) whole(t *testing.T, p drill.Plan) {
	r.ready(t, p)
	dir := t.TempDir()
	result, err := drill.Run(t.Context(), drill.Config{ID: "whole", Plan: p, Dir: dir, Nodes: r.nodes, Controller: "test", Clock: regions.NewSteadyClock()})
	if err != nil || result.Outcome != history.Completed {
		t.Fatalf("%+v %v", result, err)
	}
	h, err := history.Open(filepath.Join(dir, drill.HistoryFile))
	if err != nil || h.Torn || h.Closed() == nil || h.Chain != result.Chain {
		t.Fatalf("%v %+v", err, h)
	}
	said, acked, rows := map[string]bool{}, 0, 0
	for _, e := range h.Events {
		switch {
		case e.Probe != nil && e.Probe.Topic != "catalog.updates":
			if e.Probe.Allowed || e.Probe.Why != history.WhyResides {
				t.Errorf("a resident log: %+v", e.Probe)
			}
		case e.Probe != nil:
			said[fmt.Sprint(e.Probe.Moment, " ", e.Probe.Allowed, e.Probe.Why)] = true
		case e.Told != nil && e.Told.Outcome == history.Acked:
			acked += len(e.Told.Rows)
		case e.Reconcile != nil:
			rows++
			if e.Reconcile.Unexplained != 0 {
				t.Errorf("not accounted for: %+v", e.Reconcile)
			}
		case e.Outside != nil, e.Stop != nil:
			t.Errorf("%+v %+v", e.Outside, e.Stop)
		}
	}
	if !said["before true"] || !said["2rpo falselag"] || said["2rpo true"] || acked == 0 || rows < 9 {
		t.Errorf("said %v, %d acked, %d rows", said, acked, rows)
	}
	r.clean(t, "whole", time.Minute)
	if err := drill.Prove(t.Context(), &drill.Config{ID: "whole", Plan: p, Nodes: r.nodes}, result.Chain, nil); err != nil {
		t.Error(err)
	}
	for name, n := range r.nodes {
		if s, err := n.Admin.DrillStatus(t.Context()); err != nil || s.GetProof().GetId() != "whole" || s.GetProof().GetChain() != result.Chain {
			t.Errorf("evidence in %s: %v %v", name, s.GetProof(), err)
		}
	}
}

// exercised: the catalogue is really moved in mid-cut, and comes back. What the regions say
// that was left behind is the oracle's set, and no more than that is gone.
func (r *rig) exercised(t *testing.T, p drill.Plan) {
	r.ready(t, p)
	p.Lease = 6 * time.Second // a move is work on a machine that does other things too
	p.For, p.Exercise = 15*time.Second, []drill.Exercise{{Topic: "catalog.updates", To: "us-east"}}
	p.Expect = slices.DeleteFunc(slices.Clone(p.Expect), func(e drill.Expect) bool { return e.Topic == "catalog.updates" })
	judged := r.judged(t, drill.Config{ID: "moved", Plan: p})
	for _, m := range judged.Moves {
		t.Logf("%s to %s: RTO %v, lost %d, %d reports", m.Log, m.To, m.RTO, m.Lost, len(m.Reports))
		if !m.Back && (m.Lost == 0 || m.RTO == nil || len(m.Reports) != 2) {
			t.Errorf("%+v", m)
		}
	}
	for _, c := range judged.Checks {
		if slices.Contains([]string{report.CheckLoss, report.CheckKept, report.CheckCopied, report.CheckReconcile, report.CheckScan}, c.Name) && (!c.OK || c.Judged == 0) {
			t.Errorf("%s: judged %d: %s", c.Name, c.Judged, c.Text)
		}
	}
	r.clean(t, "moved", time.Minute)
}

// slowed: a disk that becomes slow under the cut makes acknowledgements late, and the cut
// ends early for that. Were they late before, nothing would have been cut.
func (r *rig) slowed(t *testing.T, p drill.Plan) {
	const limit = 2 * time.Second
	r.ready(t, p)
	p.For, p.Lease, p.StopWhen.AckP99 = time.Minute, 20*time.Second, limit
	defer r.slow.Store(0)
	for try := range 3 {
		c := drill.Config{ID: fmt.Sprint("slow-", try), Plan: p, Confirmed: true, Dir: t.TempDir(), Nodes: r.nodes, Controller: "test", Clock: regions.NewSteadyClock(), Say: func(line string) {
			if line == string(history.ProbePhase) {
				r.slow.Store(int64(limit + limit/2))
			}
			if line == string(history.Heal) {
				r.slow.Store(0)
			}
		}}
		result, err := drill.Run(t.Context(), c)
		if result.Outcome == history.Refused && strings.Contains(fmt.Sprint(err), "ack_p99") {
			continue // this machine is slow without any fault
		}
		if err != nil || result.Outcome != history.Aborted || !strings.Contains(result.Why, "ack p99 above") {
			t.Errorf("%+v %v", result, err)
		}
		r.clean(t, c.ID, time.Minute)
		return
	}
	t.Skip("99 of 100 acknowledgements take longer than " + limit.String() + " here without any fault")
}

// judged runs a drill to its end and judges what it recorded.
func (r *rig) judged(t *testing.T, c drill.Config) *report.Report {
	t.Helper()
	c.Dir, c.Nodes, c.Controller, c.Clock = t.TempDir(), r.nodes, "test", regions.NewSteadyClock()
	result, err := drill.Run(t.Context(), c)
	if err != nil || result.Outcome != history.Completed {
		t.Fatalf("%+v %v", result, err)
	}
	h, err := history.Open(filepath.Join(c.Dir, drill.HistoryFile))
	if err != nil {
		t.Fatal(err)
	}
	return report.Judge(h)
}

// minute is a cut of 60 s under 1,000 records a second in each region, judged by the bounds
// that a plan has by default: for a machine that does nothing else.
func (r *rig) minute(t *testing.T) {
	f, err := drill.Look(t.Context(), r.nodes)
	if err != nil {
		t.Fatal(err)
	}
	p, err := drill.Draft(f, "eu-west", 1000, "test")
	if err != nil {
		t.Fatal(err)
	}
	p.Last(time.Minute, 3*time.Second, 10*time.Second)
	r.ready(t, p)
	judged := r.judged(t, drill.Config{ID: "minute", Plan: p, Confirmed: true})
	for _, c := range judged.Checks {
		t.Logf("%v %d %s: %s", c.OK, c.Judged, c.Name, c.Text)
	}
	if judged.Verdict != report.Pass {
		t.Errorf("%s: %s", judged.Verdict, judged.Line)
	}
}

// clean looks that no region holds anything, within a time.
func (r *rig) clean(t *testing.T, id string, within time.Duration) (how []string) {
	t.Helper()
	began := time.Now()
	if err := lab.Poll(t.Context(), time.Minute, func() error {
		how = nil
		f, err := drill.Look(t.Context(), r.nodes)
		if err != nil {
			return err
		}
		for region, s := range f.Drill {
			if s.GetId() != "" || len(s.GetCuts()) > 0 {
				return fmt.Errorf("%s holds %s: %v", region, s.GetId(), s.GetCuts())
			}
			if s.GetLast().GetId() == id {
				how = append(how, s.GetLast().GetHow())
			}
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
	if took := time.Since(began); took > within {
		t.Errorf("healed after %s, want %s", took, within)
	}
	return how
}

// start runs a controller in a process of its own.
func (r *rig) start(t *testing.T, p drill.Plan, id string) (c *exec.Cmd, past string) {
	t.Helper()
	r.ready(t, p)
	j := job{ID: id, Dir: t.TempDir(), Plan: p, People: r.people, Doors: map[string]string{}, Admins: map[string]string{}, Places: map[string]string{}}
	for _, region := range r.lab.Regions() {
		j.Doors[region.Name], j.Admins[region.Name], j.Places[region.Name] = region.Node().Door(), region.Node().Admin(), r.nodes[region.Name].Place
	}
	text, err := json.Marshal(j)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "job.json")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	c = exec.Command(os.Args[0])
	c.Env, c.Stderr = append(os.Environ(), childEnv+"="+file), os.Stderr
	c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	return c, filepath.Join(j.Dir, drill.HistoryFile)
}

// reached waits until a history has begun a phase.
func reached(t *testing.T, path string, phase history.Phase) {
	t.Helper()
	if err := lab.Poll(t.Context(), time.Minute, func() error {
		h, err := history.Open(path)
		if err != nil {
			return err
		}
		if !slices.ContainsFunc(h.Events, func(e history.Event) bool { return e.Step != nil && e.Step.Phase == phase && !e.Step.End }) {
			return fmt.Errorf("not in %s yet", phase)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

func (r *rig) killed(t *testing.T, p drill.Plan, phase history.Phase) {
	id := "killed-" + strings.ToLower(string(phase))
	c, path := r.start(t, p, id)
	reached(t, path, phase)
	if err := c.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = c.Wait()
	how := r.clean(t, id, 3*(p.Lease+time.Second))
	if slices.Contains([]history.Phase{history.Cut, history.ProbePhase}, phase) && (len(how) != 3 || slices.ContainsFunc(how, func(h string) bool { return h != "lapsed" })) {
		t.Errorf("it ended by %v", how)
	}
	h, err := history.Open(path)
	if err != nil || h.Closed() != nil {
		t.Errorf("the history says that it was finished: %v", err)
	}
}

// stopped: a controller that sleeps longer than its lease has lost the drill, and says so.
func (r *rig) stopped(t *testing.T, p drill.Plan) {
	c, path := r.start(t, p, "stopped")
	reached(t, path, history.ProbePhase)
	if err := c.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	r.clean(t, "stopped", 3*(p.Lease+time.Second))
	if err := c.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	_ = c.Wait()
	h, err := history.Open(path)
	if err != nil || c.ProcessState.ExitCode() != uncontrolled || h.Closed() == nil || h.Closed().Outcome != history.Uncontrolled {
		t.Errorf("ended with %d: %v", c.ProcessState.ExitCode(), err)
	}
}
