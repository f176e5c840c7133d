package drill_test

import (
	"context"
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"domicile/api"
	"domicile/chaos/drill"
	"domicile/chaos/drill/history"
	"domicile/chaos/drill/report"
	"domicile/chaos/lab"
	"domicile/regions"
)

func long(t *testing.T) {
	t.Helper()
	if os.Getenv("DOMICILE_LONG") == "" {
		t.Skip("a minute or more each: DOMICILE_LONG=1")
	}
}

// TestR14i_AControllerKilledInAMove: it dies in the midst of the move, or of the way back. The
// cut ends with its lease; the move ends by its own rules, without whoever began it; and the
// report does not say that the drill was whole.
func TestR14i_AControllerKilledInAMove(t *testing.T) {
	long(t)
	for _, phase := range []history.Phase{history.Exercise, history.Failback} {
		t.Run(string(phase), func(t *testing.T) {
			r := open(t)
			p := r.plan(t)
			p.For, p.Exercise = 15*time.Second, []drill.Exercise{{Topic: catalog, To: "us-east"}}
			p.Expect = slices.DeleteFunc(slices.Clone(p.Expect), func(e drill.Expect) bool { return e.Topic == catalog })
			c, path := r.start(t, p, "moving")
			if err := lab.Poll(t.Context(), 3*time.Minute, func() error {
				h, err := history.Open(path)
				if err == nil && !slices.ContainsFunc(h.Events, func(e history.Event) bool {
					return e.Move != nil && e.Move.Back == (phase == history.Failback) && (e.Move.Back || e.Move.Step != history.MoveAsked)
				}) {
					err = fmt.Errorf("no move is under way yet")
				}
				return err
			}); err != nil {
				t.Fatal(err)
			}
			if err := c.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			_ = c.Wait()
			how := r.clean(t, "moving", 3*(p.Lease+time.Second))
			if want := map[history.Phase]string{history.Exercise: "lapsed", history.Failback: "healed"}[phase]; len(how) != 3 || slices.ContainsFunc(how, func(h string) bool { return h != want }) {
				t.Errorf("it ended by %v", how)
			}
			t.Log("the catalogue's home:", r.oneHome(t))
			h, err := history.Open(path)
			if err != nil || h.Closed() != nil {
				t.Fatalf("the history says that it was finished: %v", err)
			}
			if v := report.Judge(h); v.Verdict == report.Pass || v.Source.Closed {
				t.Errorf("the report: %s, %+v", v.Verdict, v.Source)
			}
		})
	}
}

const catalog = "catalog.updates"

// oneHome waits until all regions agree on the catalogue's home and it takes records.
func (r *rig) oneHome(t *testing.T) (home string) {
	t.Helper()
	if err := lab.Poll(t.Context(), 3*time.Minute, func() error {
		home = ""
		for name, n := range r.nodes {
			m, err := n.Admin.Topics(t.Context(), catalog)
			if err != nil || len(m.GetTopics()) != 1 || len(m.GetTopics()[0].GetLogs()) != 1 {
				return fmt.Errorf("%s: %v %w", name, m.GetTopics(), err)
			}
			of := m.GetTopics()[0].GetLogs()[0].GetHome()
			if home != "" && of != home {
				return fmt.Errorf("%s says %s, another %s", name, of, home)
			}
			home = of
		}
		ack, err := r.nodes["ap-south"].Door.Publish(t.Context(), &api.Record{Topic: catalog, Body: []byte("after"), Tags: []api.Tag{{Name: "residency", Value: "global"}, {Name: "class", Value: "catalog"}}})
		if err == nil && ack.Region != home {
			err = fmt.Errorf("acknowledged by %s, home %s", ack.Region, home)
		}
		return err
	}); err != nil {
		t.Error(err)
	}
	return home
}

// TestR14i_TwoControllersWithOnePlan: while one of them cuts the other waits or is refused, and
// it ends nothing that is not its own.
func TestR14i_TwoControllersWithOnePlan(t *testing.T) {
	long(t)
	r := open(t)
	p := r.plan(t)
	r.ready(t, p)
	ended := make(chan drill.Result, 2)
	for i := range 2 {
		c := drill.Config{ID: fmt.Sprint("twin-", i), Plan: p, Dir: t.TempDir(), Nodes: r.nodes, Confirmed: true, Controller: "test", Clock: regions.NewSteadyClock()}
		go func() {
			result, _ := drill.Run(context.WithoutCancel(t.Context()), c)
			ended <- result
		}()
	}
	for range 2 { // one after the other is no harm
		if result := <-ended; result.Outcome != history.Completed && result.Outcome != history.Refused {
			t.Errorf("one ended as %+v", result)
		}
	}
	r.clean(t, "twin-0", time.Minute)
}

// TestR14i_LanesAndDirectionsAreJudgedApart: the lane of records and copies alone, each way.
// Copies across the direction that is cut stand still and are judged by the oracle; nothing is
// lost, and what is said of each copy is no better than it was.
func TestR14i_LanesAndDirectionsAreJudgedApart(t *testing.T) {
	long(t)
	r := open(t)
	p := r.plan(t)
	for _, one := range []struct {
		planes    []string
		direction string
	}{{[]string{"data"}, "both"}, {[]string{"control", "data"}, "out"}, {[]string{"control", "data"}, "in"}} {
		t.Run(fmt.Sprint(one), func(t *testing.T) {
			p := p
			p.Planes, p.Direction = one.planes, one.direction
			r.ready(t, p)
			judged := r.judged(t, drill.Config{ID: fmt.Sprintf("lanes-%s-%d", one.direction, len(one.planes)), Plan: p})
			for _, c := range judged.Checks {
				t.Logf("%v %d %s: %s", c.OK, c.Judged, c.Name, c.Text)
				if slices.Contains([]string{report.CheckLagFloor, report.CheckKept, report.CheckCopied, report.CheckReconcile, report.CheckResident, report.CheckControl}, c.Name) && !c.OK {
					t.Errorf("%s: %s", c.Name, c.Text)
				}
			}
			behind := uint64(0)
			for _, b := range judged.Behind {
				behind += uint64(b.Records)
			}
			if behind == 0 {
				t.Error("no copy was behind at the heal")
			}
		})
	}
}
