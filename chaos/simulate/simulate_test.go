package simulate_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"domicile/chaos/drill"
	"domicile/chaos/drill/history"
	"domicile/chaos/drill/report"
	"domicile/chaos/simulate"
	"domicile/deploy"
)

// childEnv makes this test binary the process with the bubble, or one that does nothing.
const (
	childEnv = "DOMICILE_SIMULATION_CHILD"
	still    = "still"
)

func TestMain(m *testing.M) {
	switch path := os.Getenv(childEnv); path {
	case "":
		os.Exit(m.Run())
	case still:
		_, _ = io.Copy(io.Discard, os.Stdin)
	default:
		simulate.Be(path, os.Stdout)
	}
}

func self(job string) *exec.Cmd {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childEnv+"="+job)
	return cmd
}

const rpo = 5 * time.Second

// world writes a federation whose catalogue may move, and a plan that isolates eu-west.
func world(t *testing.T, change func(manifest string) string) simulate.Options {
	t.Helper()
	dir := t.TempDir()
	t.Setenv("TMPDIR", t.TempDir())
	manifest := strings.Replace(string(deploy.FederationYAML), "    home: eu-west                 # only with writes: home\n    mirror: [all]\n",
		"    home: eu-west\n    mirror: [all]\n    failover: {mode: manual, targets: [us-east, ap-south], rpo: "+rpo.String()+", rto: 1m}\n", 1)
	manifest += "\nauthority: {voters: [eu-west, us-east, ap-south]}\n"
	if change != nil {
		manifest = change(manifest)
	}
	o := simulate.Options{
		ID: "forecast", Dir: filepath.Join(dir, "drill"), Federation: filepath.Join(dir, "federation.yaml"), Policies: filepath.Join(dir, "policies"), Plan: plan(),
		Controller: "test", At: time.Now(), Self: self, Say: func(line string) { t.Log(line) },
	}
	if err := os.WriteFile(o.Federation, []byte(manifest), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := deploy.WritePolicies(o.Policies); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(o.Dir, 0o700); err != nil {
		t.Fatal(err)
	}
	return o
}

func plan() drill.Plan {
	p := drill.NewPlan()
	p.Isolate, p.Peers, p.Reason = "eu-west", []string{"ap-south", "us-east"}, "test"
	p.Last(time.Minute, 0, 5*time.Second)
	if os.Getenv("DOMICILE_LONG") != "" {
		p.Last(time.Hour, 0, time.Minute)
	}
	feed := func(region, topic, class, residency string) {
		p.Feeds = append(p.Feeds, drill.Feed{Region: region, Topic: topic, Tags: map[string]string{"class": class, "residency": residency}, Rate: 20, Size: 256})
	}
	feed("eu-west", "catalog.updates", "catalog", "global")
	feed("eu-west", "orders", "order", "eu")
	feed("us-east", "orders", "order", "eu")
	feed("us-east", "orders", "order", "us")
	for _, topic := range []string{"orders", "health.records"} {
		p.Expect = append(p.Expect, drill.Expect{Topic: topic, At: history.Always, Want: history.Denied, Why: history.WhyResides})
	}
	for _, at := range []string{history.Before, history.AtCut, history.HalfRPO} {
		p.Expect = append(p.Expect, drill.Expect{Topic: "catalog.updates", At: at, Want: history.Allowed})
	}
	p.Expect = append(p.Expect, drill.Expect{Topic: "catalog.updates", At: history.TwiceRPO, Want: history.Denied, Why: history.WhyLag})
	return p
}

// TestR14i_SimulatedHour plays a cut, of an hour under DOMICILE_LONG and of a minute else: at
// its end lag is as long as the cut, residents may go nowhere at any time, the catalogue may
// until its RPO, all is accounted for afterwards, and every form of the report says that it
// was a simulation.
func TestR14i_SimulatedHour(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: what it plays is another process")
	}
	o := world(t, nil)
	began := time.Now()
	result, err := simulate.Run(t.Context(), o)
	t.Logf("%s of real time", time.Since(began).Round(time.Millisecond))
	if err != nil || result.Outcome != history.Completed {
		t.Fatalf("%+v %v", result, err)
	}
	h, err := history.Open(filepath.Join(o.Dir, drill.HistoryFile))
	if err != nil {
		t.Fatal(err)
	}
	r := report.Judge(h)
	for _, c := range r.Checks {
		t.Logf("%v %d %s: %s", c.OK, c.Judged, c.Name, c.Text)
	}
	if r.Verdict != report.Pass || r.Cut.Held() > o.Plan.For || o.Plan.For-r.Cut.Held() > 10*time.Millisecond {
		t.Errorf("%s: %s", r.Verdict, r.Line)
	}
	busy := 0
	for _, l := range r.Lags {
		if l.Log != "catalog.updates@home" || !l.Parted {
			continue
		}
		busy++
		// The last figure is as old as the time between two questions, and safe time as a beat.
		off := max(500*time.Millisecond, o.Plan.For/720) + time.Second
		if l.Most == nil || math.Abs(*l.Most-o.Plan.For.Seconds()) > off.Seconds() || l.Slope == nil || math.Abs(*l.Slope-1) > 0.001 || l.Unknown > 0 {
			t.Errorf("%s in %s: %s, %d unknown", l.Log, l.Target, figures(l.Most, l.Slope), l.Unknown)
		} else {
			t.Logf("%s in %s: %s", l.Log, l.Target, figures(l.Most, l.Slope))
		}
	}
	if busy != 2 {
		t.Errorf("%d lags of the catalogue", busy)
	}
	probed(t, h)
	marked(t, r, h)
	nothingLeft(t)
}

func figures(lag, slope *float64) string {
	if lag == nil || slope == nil {
		return "unknown"
	}
	return fmt.Sprintf("%.3f s behind at the heal, %.5f s/s", *lag, *slope)
}

// probed holds the answers about moves against what was declared.
func probed(t *testing.T, h *history.History) {
	said := map[string]int{}
	for i := range h.Events {
		p := h.Events[i].Probe
		switch {
		case p == nil:
		case p.Topic != "catalog.updates":
			said["resident"]++
			if p.Allowed || p.Why != history.WhyResides {
				t.Errorf("a resident log: %+v", p)
			}
		default:
			said[fmt.Sprint(p.Moment, " ", p.Allowed, p.Why)]++
		}
	}
	for _, want := range []string{"resident", "before true", "0 true", "rpo/2 true", "2rpo falselag"} {
		if said[want] == 0 {
			t.Errorf("no answer %q: %v", want, said)
		}
	}
}

// marked looks for the word in every form of a report, and has it verified.
func marked(t *testing.T, r *report.Report, h *history.History) {
	var text, page, md, junit bytes.Buffer
	for _, err := range []error{r.JSON(&text), r.HTML(&page), r.Markdown(&md), r.JUnit(&junit)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for form, want := range map[*bytes.Buffer][]string{
		&text:  {`"simulated": {`, `"line": "SIMULATED: `, "counts as evidence of nothing"},
		&page:  {"<title>SIMULATED drill ", "<b>SIMULATED</b>", "evidence of nothing"},
		&md:    {"# SIMULATED drill ", "SIMULATED: ", "evidence of nothing"},
		&junit: {`name="SIMULATED drill `},
	} {
		for _, w := range want {
			if !strings.Contains(form.String(), w) {
				t.Errorf("no %q in %.300s", w, form)
			}
		}
	}
	v, err := report.Verify(&text, h)
	if err != nil || !v.Holds || !v.Simulated {
		t.Errorf("%+v %v", v, err)
	}
	if err := drill.Prove(t.Context(), &drill.Config{Simulated: h.Head.Simulated}, h.Chain, nil); err == nil {
		t.Error("a simulation was taken for evidence")
	}
}

// nothingLeft looks that no simulation left its stores.
func nothingLeft(t *testing.T) {
	t.Helper()
	if left, err := filepath.Glob(filepath.Join(os.Getenv("TMPDIR"), "domicile-simulation-*")); err != nil || len(left) > 0 {
		t.Error("left behind:", left, err)
	}
}

// TestR14i_SimulationThatStandsStillIsEnded: virtual time can't see that it does not pass, so
// a clock on the wall does.
func TestR14i_SimulationThatStandsStillIsEnded(t *testing.T) {
	o := world(t, nil)
	o.Still = 2 * time.Second
	o.Self = func(string) *exec.Cmd { return self(still) }
	result, err := simulate.Run(t.Context(), o)
	if err == nil || !strings.Contains(err.Error(), "stood still for 2.0s") || result.Outcome != "" {
		t.Errorf("%+v %v", result, err)
	}
	if text, err := os.ReadFile(filepath.Join(o.Dir, "simulation.dump")); err != nil || !bytes.Contains(text, []byte("goroutine 1")) {
		t.Errorf("no goroutines in %.200s %v", text, err)
	}
	nothingLeft(t)
}

// TestR14i_AKilledSimulationLeavesNothing: neither the death of the process nor a user who
// has had enough leaves a store or a process.
func TestR14i_AKilledSimulationLeavesNothing(t *testing.T) {
	for _, who := range []string{"killed", "interrupted"} {
		t.Run(who, func(t *testing.T) {
			o := world(t, nil)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			var process *exec.Cmd
			o.Self = func(job string) *exec.Cmd { process = self(job); return process }
			o.Say = func(string) { // its first word
				if who == "killed" {
					_ = process.Process.Kill()
				} else {
					cancel()
				}
			}
			result, err := simulate.Run(ctx, o)
			if err == nil || result.Outcome != "" {
				t.Errorf("%+v %v", result, err)
			}
			if process.ProcessState == nil {
				t.Error("its process was not waited for")
			}
			nothingLeft(t)
		})
	}
}
