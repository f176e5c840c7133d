package field_test

import (
	"context"
	"errors"
	"os"
	"testing"
	"time"

	"domicile/api"
	"domicile/chaos/field"
	"domicile/chaos/lab"
	"domicile/regions"
	"domicile/regions/fabric/fabrictest"
)

func TestMain(m *testing.M) {
	field.Enter()
	fabrictest.VerifyTestMain(m)
}

const (
	quick = regions.Pace(0.25) // the fastest that nodes support
	soon  = 3 * time.Minute    // generous: other tests share the machine, and a policy is compiled by each node
)

// open starts a field whose links are up.
func open(t *testing.T, o field.Options) *field.Field {
	t.Helper()
	return openWith(t, o, func(string) error { return nil })
}

// openWith is open with other policies.
func openWith(t *testing.T, o field.Options, policies func(dir string) error) *field.Field {
	t.Helper()
	field.Need(t)
	o.Parent = t.TempDir()
	if o.Pace == 0 {
		o.Pace = quick
	}
	f, err := field.Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			for _, n := range f.Nodes() {
				t.Logf("the log of %s ends:\n%s", n.Name, n.LogEnd())
			}
		}
		if err := f.Close(context.Background()); err != nil {
			t.Error(err)
		}
		if left, err := os.ReadDir(o.Parent); err != nil || len(left) != 0 {
			t.Errorf("the field left %v, %v", left, err)
		}
	})
	must(t, policies(f.Policies()))
	must(t, f.Start())
	must(t, f.Linked(t.Context(), soon))
	return f
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func order(id, residency string) *api.Record {
	return &api.Record{ID: id, Topic: "orders", Body: []byte(id), Tags: []api.Tag{{Name: "class", Value: "order"}, {Name: "residency", Value: residency}}}
}

// publish publishes one record once.
func publish(t *testing.T, n *field.Node, r *api.Record) (api.Ack, error) {
	t.Helper()
	c, err := n.Client(1)
	must(t, err)
	defer c.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	return c.Publish(ctx, r)
}

func sees(t *testing.T, n *field.Node, peer string, up float64) {
	t.Helper()
	must(t, lab.Poll(t.Context(), soon, func() error {
		page, err := n.Metrics(t.Context())
		if err != nil {
			return err
		}
		for _, m := range page {
			if m.Name == lab.LinkUp && m.Labels["peer"] == peer && m.Value == up {
				return nil
			}
		}
		return errors.New(n.Name + " sees the link to " + peer + " in the other state")
	}))
}

// R14a: cuts in the kernel, of three kinds: both sides see the link down, also when
// only one direction is lost; each side's own records are stored; it heals.
func TestR14a_KernelCutsAreSeenFromBothSides(t *testing.T) {
	f := open(t, field.Options{})
	eu, us := f.Node("eu-west"), f.Node("us-east")
	for name, do := range map[string]func(time.Duration) error{
		"black hole": func(d time.Duration) error { return f.Sever(t.Context(), "eu-west", "us-east", field.Drop, d) },
		"reset":      func(d time.Duration) error { return f.Sever(t.Context(), "eu-west", "us-east", field.Reject, d) },
		"one way":    func(d time.Duration) error { return f.Cut(t.Context(), eu, us, field.Drop, d) },
	} {
		must(t, do(time.Hour))
		sees(t, eu, "us-east", 0)
		sees(t, us, "eu-west", 0)
		if _, err := publish(t, us, order("eu "+name, "eu")); err == nil {
			t.Errorf("%s: an EU order was acknowledged although eu-west is cut off", name)
		}
		for region, n := range map[string]*field.Node{"eu": eu, "us": us} {
			if _, err := publish(t, n, order(region+" own "+name, region)); err != nil {
				t.Errorf("%s: %s stands alone and refuses its own record: %v", name, n.Name, err)
			}
		}
		must(t, f.Heal(t.Context()))
		must(t, f.Linked(t.Context(), soon))
	}
	must(t, f.Sever(t.Context(), "eu-west", "us-east", field.Drop, 4*time.Second))
	sees(t, eu, "us-east", 0)
	must(t, f.Linked(t.Context(), soon)) // nobody healed it
}

// RA1: killed, paused, without power, with a full disk: what was acknowledged is
// there, and what could not be stored was not acknowledged.
func TestRA1_AFieldDoesToNodesWhatTheWorldDoes(t *testing.T) {
	f := open(t, field.Options{})
	eu := f.Node("eu-west")
	kept := map[string]api.Ack{}
	take := func(id string) {
		t.Helper()
		ack, err := publish(t, eu, order(id, "eu"))
		if err != nil {
			t.Fatalf("%s: %v", id, err)
		}
		kept[id] = ack
	}
	back := func() {
		t.Helper()
		must(t, eu.Start())
		must(t, f.Linked(t.Context(), soon))
		for id, before := range kept {
			if again, err := publish(t, eu, order(id, "eu")); err != nil || !again.Duplicate || again.Sequence != before.Sequence {
				t.Fatalf("%s: was acknowledged at %d, now %+v, %v", id, before.Sequence, again, err)
			}
		}
	}
	take("before the kill")
	eu.Kill()
	back()
	take("before the power cut")
	must(t, f.PowerCut(t.Context(), eu))
	back()
	must(t, eu.Pause())
	sees(t, f.Node("us-east"), "eu-west", 0)
	must(t, eu.Resume())
	must(t, f.Linked(t.Context(), soon))
	take("after the pause")
	eu.Kill()
	must(t, eu.Skew(time.Hour))
	back()
	take("an hour ahead")
	must(t, f.Stop(t.Context()))
}
