package field_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	pb "domicile/api/domicile/v1"
	"domicile/chaos/field"
	"domicile/chaos/lab"
)

// B03: the wall clocks of two processes step while they run, an hour ahead and an hour
// behind, and back: not only the node's own clock, all that its process reads. The
// step is told, nothing that is acknowledged is lost, and no lag takes it for age.
func TestB03_AClockThatStepsIsNoLag(t *testing.T) {
	r := &report{T: t, f: open(t, field.Options{})}
	eu, us := r.f.Node("eu-west"), r.f.Node("us-east")
	r.publish("before", 20)
	for _, by := range []time.Duration{time.Hour, -time.Hour, 0} {
		must(t, us.Skew(by))
		must(t, eu.Skew(-by))
		r.poll(us, func(s *pb.StatusResponse) error { return near("us-east", s.GetClock().GetStepSeconds(), by) })
		r.poll(eu, func(s *pb.StatusResponse) error { return near("eu-west", s.GetClock().GetStepSeconds(), -by) })
		r.publish("stepped by "+by.String(), 40)
		r.young("orders@eu-west", us)
	}
	r.copied()
	r.judge()
}

// near reports a step that is not the one that was made.
func near(region string, said float64, want time.Duration) error {
	if off := said - want.Seconds(); off < -1 || off > 1 {
		return fmt.Errorf("%s says that its clock stepped by %.3f s, want %s", region, said, want)
	}
	return nil
}

// poll asks a node for its status until the answer is right.
func (r *report) poll(n *field.Node, right func(*pb.StatusResponse) error) {
	r.Helper()
	desk, err := n.Desk()
	must(r.T, err)
	defer desk.Close()
	must(r.T, lab.Poll(r.Context(), soon, func() error {
		asking, cancel := context.WithTimeout(r.Context(), soon)
		defer cancel()
		s, err := desk.Status(asking)
		if err != nil {
			return err
		}
		return right(s)
	}))
}

// young waits until a node says of its copy that it is a few seconds old. Whatever it
// says before is never negative, nor as old as a clock is wrong.
func (r *report) young(log string, n *field.Node) {
	r.Helper()
	must(r.T, lab.Poll(r.Context(), soon, func() error {
		l, err := r.lag(log, n, n.Region)
		if err != nil {
			return err
		}
		old := l.GetStalenessSeconds()
		if l.GetStalenessKnown() && (old < 0 || old > 600) {
			r.Errorf("%s says that its copy of %s is %.3f s old", n.Name, log, old)
		}
		if !l.GetStalenessKnown() || old > 5 {
			return fmt.Errorf("%s says that its copy of %s is %.3f s old (known: %v)", n.Name, log, old, l.GetStalenessKnown())
		}
		return nil
	}))
}

// B03: a home that ran half an hour ahead is started again with its clock right. Its
// stamps lie ahead of its clock from then on. Cut off, its copy never says that it is
// younger than the cut.
func TestB03_AHomeThatRanAheadHidesNoLag(t *testing.T) {
	r := &report{T: t, f: open(t, field.Options{})}
	eu, us := r.f.Node("eu-west"), r.f.Node("us-east")
	for i, by := range []time.Duration{30 * time.Minute, 0} {
		eu.Kill()
		must(t, eu.Skew(by))
		must(t, eu.Start())
		must(t, r.f.Linked(t.Context(), soon))
		r.publish(fmt.Sprint("start ", i), 20)
		must(t, lab.Poll(t.Context(), soon, func() error {
			if l, err := r.lag("orders@eu-west", us, "us-east"); err != nil || l.GetCursor() < uint64(20*(i+1)) {
				return fmt.Errorf("%v, %w", l, err)
			}
			return nil
		}))
	}
	must(t, r.f.Sever(t.Context(), "eu-west", "us-east", field.Drop, time.Hour))
	cut := time.Now()
	sees(t, us, "eu-west", 0)
	for time.Since(cut) < 8*time.Second {
		before := time.Since(cut)
		l, err := r.lag("orders@eu-west", us, "us-east")
		must(t, err)
		if least := before.Seconds() - 1 - l.GetStalenessErrorSeconds(); l.GetStalenessKnown() && l.GetStalenessSeconds() < least {
			t.Fatalf("%.3f s after the cut the copy is said to be %.3f s old", before.Seconds(), l.GetStalenessSeconds())
		}
		must(t, lab.Pass(t.Context(), 200*time.Millisecond))
	}
	must(t, r.f.Heal(t.Context()))
	r.copied()
	r.judge()
}
