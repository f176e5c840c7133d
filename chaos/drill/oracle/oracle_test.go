package oracle_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/goleak"

	"domicile/api"
	"domicile/chaos/drill/history"
	"domicile/chaos/drill/oracle"
	"domicile/chaos/lab"
	"domicile/regions"
	"domicile/regions/link"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	pace    = regions.Pace(0.25)
	soon    = 90 * time.Second
	cutOff  = 6 * time.Second
	isolate = "eu-west"
)

// planOf is the example federation as a plan has it.
func planOf(f *regions.Federation) *history.Plan {
	p := &history.Plan{Isolate: isolate, Peers: []string{"ap-south", "us-east"}, Planes: []string{"data", "forward", "control"}, Direction: "both", Fault: "blackhole",
		For: cutOff, Lease: 30 * time.Second, Bounds: history.Bounds{Busy: time.Second, Idle: 3 * time.Second, Clock: 200 * time.Millisecond, Beat: pace.Of(time.Second), See: 30 * time.Second, Catch: soon}}
	for _, b := range f.Boundaries() {
		p.Legal = append(p.Legal, history.Boundary{Name: b, Regions: f.Floor(b)})
	}
	for _, name := range f.Topics() {
		t, _ := f.Topic(name)
		topic := history.Topic{Name: name, Mode: t.Failover.Mode, Route: t.Route, Producers: t.OnHomeLoss.Producers}
		if name != "catalog.updates" {
			topic.Resident = f.Boundaries()
		}
		for _, log := range f.Logs(t) {
			home, _, _ := f.Home(log)
			topic.Logs = append(topic.Logs, history.Log{Log: log.String(), Home: home, Copies: f.Targets(log)})
		}
		p.Topics = append(p.Topics, topic)
		p.Expect = append(p.Expect, history.Expectation{Topic: name, Moment: history.Always, Want: history.Denied})
	}
	return p
}

func feed(region, topic, class, residency string, rate int) oracle.Feed {
	return oracle.Feed{Region: region, Topic: topic, Residency: residency, Rate: rate, Tags: []api.Tag{{Name: "class", Value: class}, {Name: regions.ResidencyTag, Value: residency}}}
}

// TestR14i_TheOracleSeesACutWithItsOwnEyes cuts a real federation and holds the history
// against what was done: every answer, every arrival, every figure.
func TestR14i_TheOracleSeesACutWithItsOwnEyes(t *testing.T) {
	ctx := t.Context()
	l, err := lab.Open(ctx, lab.Options{Parent: t.TempDir(), Pace: pace})
	must(t, err)
	defer func() { must(t, l.Close(context.WithoutCancel(ctx))) }()
	must(t, l.Linked(ctx))
	path := filepath.Join(t.TempDir(), "history.jsonl")
	w, err := history.Create(path, history.Head{Drill: "test", Federation: "example", Controller: "test"}, regions.NewSteadyClock())
	must(t, err)
	plan := planOf(l.Federation)
	must(t, w.Note(history.Event{Plan: plan}))
	c := oracle.Config{History: w, Plan: plan, Every: 200 * time.Millisecond, Feeds: []oracle.Feed{
		feed(isolate, "catalog.updates", "catalog", "global", 50), feed(isolate, "orders", "order", "eu", 20),
		feed("us-east", "orders", "order", "eu", 10), feed("us-east", "orders", "order", "global", 30), feed("ap-south", "catalog.updates", "catalog", "global", 10),
	}}
	for _, r := range l.Regions() {
		door, err := r.Door(1)
		must(t, err)
		defer door.Close()
		desk, err := r.Desk()
		must(t, err)
		defer desk.Close()
		c.Regions = append(c.Regions, oracle.Region{Name: r.Name, Door: door, Admin: desk})
	}
	must(t, w.Begin(history.Baseline, 0))
	o, err := oracle.Start(ctx, c)
	must(t, err)
	must(t, lab.Pass(ctx, 3*time.Second))
	must(t, w.End(history.Baseline, true, ""))
	must(t, w.Begin(history.Cut, cutOff))
	asked := w.Now()
	must(t, l.Cut(isolate, link.BlackHole, time.Minute))
	must(t, w.Note(history.Event{Region: isolate, Gate: &history.Gate{Act: history.ActCut, OK: true, Asked: asked}}))
	must(t, lab.Pass(ctx, cutOff))
	must(t, w.End(history.Cut, true, ""))
	must(t, w.Begin(history.Heal, 0))
	asked = w.Now()
	l.Heal()
	must(t, w.Note(history.Event{Region: isolate, Gate: &history.Gate{Act: history.ActHeal, OK: true, Asked: asked}}))
	must(t, w.End(history.Heal, true, ""))
	must(t, w.Begin(history.CatchUp, soon))
	settle, cancel := context.WithTimeoutCause(ctx, soon, fmt.Errorf("not within %s", soon))
	defer cancel()
	lacking, err := o.Settle(settle)
	if err != nil {
		t.Errorf("%v: %v", err, lacking)
	}
	must(t, w.End(history.CatchUp, true, ""))
	must(t, o.Close(settle))
	_, err = w.Close(history.Close{Outcome: history.Completed})
	must(t, err)
	h, err := history.Open(path)
	must(t, err)
	if keep := os.Getenv("DOMICILE_KEEP_HISTORY"); keep != "" {
		text, err := os.ReadFile(path)
		must(t, err)
		must(t, os.WriteFile(keep, text, 0o600))
	}
	judge(t, h)
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// judge sums the history up in the test's own way.
func judge(t *testing.T, h *history.History) {
	t.Helper()
	acked, heard, refused := map[string]uint64{}, map[string]uint64{}, map[api.Code]int{}
	gauges, down, silent := 0, 0, 0
	for i := range h.Events {
		e := &h.Events[i]
		switch {
		case e.Told != nil && e.Told.Outcome == history.Acked:
			acked[e.Told.Log+" "+e.Told.Residency] += uint64(len(e.Told.Rows))
		case e.Told != nil && e.Phase == history.Cut && e.Told.Asked == "us-east" && e.Told.Residency == "eu":
			refused[e.Told.Code] += len(e.Told.Rows)
		case e.Heard != nil:
			if e.Heard.Altered+e.Heard.Disordered > 0 {
				t.Errorf("event %d: %d altered, %d out of order", e.N, e.Heard.Altered, e.Heard.Disordered)
			}
			for _, r := range e.Heard.Runs {
				heard[r.Log+" "+r.Residency+" in "+e.Region] += r.To - r.From + 1
			}
		case e.Gauge != nil:
			gauges++
		case e.Link != nil && e.Link.State == "down":
			down++
		case e.Silent != nil:
			silent++
		}
	}
	for _, c := range []struct{ log, residency, region string }{
		{"catalog.updates@home", "global", "ap-south"}, {"catalog.updates@home", "global", "us-east"}, {"catalog.updates@home", "global", isolate},
		{"orders@us-east", "global", isolate}, {"orders@eu-west", "eu", isolate},
	} {
		if a, n := acked[c.log+" "+c.residency], heard[c.log+" "+c.residency+" in "+c.region]; a == 0 || a != n {
			t.Errorf("%s %s: %d acknowledged, %d read in %s", c.log, c.residency, a, n, c.region)
		}
	}
	for where, n := range heard {
		if where == "orders@eu-west eu in us-east" || where == "orders@eu-west eu in ap-south" {
			t.Errorf("%d records read: %s", n, where)
		}
	}
	if gauges == 0 || down == 0 || silent > 0 {
		t.Errorf("%d gauges, %d links down, %d questions without an answer", gauges, down, silent)
	}
	if len(refused) == 0 {
		t.Errorf("no order for eu was refused in us-east while eu-west was cut off")
	}
	t.Logf("acked %v\nheard %v\nrefused %v; %d gauges, %d links down", acked, heard, refused, gauges, down)
}
