package schedule

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"domicile/chaos/field"
	"domicile/chaos/lab"
	"domicile/chaos/ledger"
)

// healWithin bounds the healing of one fault.
const healWithin = 30 * time.Second

// narrow is a line of 50 kbit/s at the pace of the nodes: their heartbeats are four
// times as many.
const narrow = 200_000 // bits a second

// strike carries out the steps: lanes side by side, each one step after the other. When it returns everything is healed that can be healed
// without waiting, and every node was started again.
func (r *run) strike(ctx context.Context) error {
	start := time.Now()
	lanes := map[string][]Step{}
	for _, s := range r.plan.Steps {
		lanes[s.lane] = append(lanes[s.lane], s)
	}
	var work sync.WaitGroup
	errs := make(chan error, len(lanes))
	for _, lane := range lanes {
		work.Go(func() {
			for _, s := range lane {
				if err := lab.Pass(ctx, time.Until(start.Add(s.At))); err != nil {
					errs <- err
					return
				}
				if err := r.fault(ctx, s); err != nil {
					errs <- fmt.Errorf("%s: %w", s, err)
					return
				}
			}
		})
	}
	work.Wait()
	close(errs)
	var all []error
	for err := range errs {
		all = append(all, err)
	}
	if err := errors.Join(all...); err != nil {
		return err
	}
	return lab.Pass(ctx, time.Until(start.Add(r.plan.Span)))
}

// fault is one step from its begin to its end. In the history it begins when it holds
// and ends before it is healed; what comes up again is noted as starting until its
// region is linked.
func (r *run) fault(ctx context.Context, s Step) error {
	if s.Kind == ledger.PolicyFlip {
		return r.flip(ctx, s)
	}
	heal, err := r.begin(ctx, s)
	if err != nil {
		return err
	}
	ends := r.note(s)
	err = lab.Pass(ctx, s.For)
	started := r.starting(s)
	for _, end := range ends {
		end()
	}
	healing, cancel := context.WithTimeout(context.WithoutCancel(ctx), healWithin)
	defer cancel()
	err = errors.Join(err, heal(healing))
	r.after.Go(func() { started(r.coming) })
	return err
}

// Starting is what a node is after a fault until its region is linked again.
const Starting ledger.StepKind = "starting"

// starting notes that the regions of a step come up again from now on. What it
// returns waits until they are up, or the run gives up waiting, and notes that.
func (r *run) starting(s Step) (wait func(context.Context)) {
	names := []string{s.From, s.To}
	if s.From == "" {
		names = []string{r.field.Node(s.Nodes[0]).Region}
	}
	var ends []func()
	for _, name := range names {
		ends = append(ends, r.book.During(ledger.Step{Kind: Starting, Region: name}))
	}
	return func(ctx context.Context) {
		for i, name := range names {
			_ = r.field.LinkedIn(ctx, name, r.patience) // if it never is, Linked says so at the end
			ends[i]()
		}
	}
}

// note writes the step into the history, and returns what writes its end.
func (r *run) note(s Step) (ends []func()) {
	if s.From != "" {
		return []func(){r.book.During(ledger.Step{Kind: s.Kind, Region: s.From, Peer: s.To, Value: string(s.Loss)})}
	}
	for _, name := range s.Nodes {
		n := r.field.Node(name)
		step := ledger.Step{Kind: s.Kind, Region: n.Region, Node: n.Gateway}
		if s.Skew != 0 {
			step.Value = s.Skew.String()
		}
		ends = append(ends, r.book.During(step))
	}
	region := r.field.Node(s.Nodes[0]).Region
	if all := len(r.field.Of(region)); all > 1 && 2*len(s.Nodes) > all && (s.Kind == ledger.Kill || s.Kind == ledger.PowerCut) {
		ends = append(ends, r.book.During(ledger.Step{Kind: ledger.NoQuorum, Region: region}))
	}
	return ends
}

// begin does what the step says and returns how it ends.
func (r *run) begin(ctx context.Context, s Step) (heal func(context.Context) error, err error) {
	var nodes []*field.Node
	for _, name := range s.Nodes {
		nodes = append(nodes, r.field.Node(name))
	}
	again := func(context.Context) error { return startAll(nodes) }
	switch s.Kind {
	case ledger.Cut, ledger.CutOneWay:
		return r.cut(ctx, s)
	case ledger.SlowLine:
		return func(ctx context.Context) error { return r.field.Widen(ctx, s.From, s.To) }, r.field.Narrow(ctx, s.From, s.To, narrow)
	case ledger.Isolation:
		return r.isolate(ctx, nodes[0], s.For+healWithin)
	case ledger.Kill:
		for _, n := range nodes {
			n.Kill()
		}
		return again, nil
	case ledger.PowerCut:
		return again, r.field.PowerCut(ctx, nodes...)
	case ledger.Pause:
		return func(context.Context) error { return nodes[0].Resume() }, nodes[0].Pause()
	case ledger.Stop:
		return again, nodes[0].Stop(ctx)
	case ledger.ClockStep:
		right := func() error { return nodes[0].Skew(0) }
		// One that is still starting may read its clock only after the step, and keep to it.
		if !s.Again && answers(ctx, nodes[0]) {
			return func(context.Context) error { return right() }, nodes[0].Skew(s.Skew)
		}
		nodes[0].Kill()
		return restart(nodes[0], right), errors.Join(nodes[0].Skew(s.Skew), nodes[0].Start())
	case ledger.DiskFull:
		if answers(ctx, nodes[0]) { // it has to come back by itself once there is room
			return nodes[0].FreeDisk, nodes[0].FillDisk()
		}
		return func(ctx context.Context) error { // a start on a full disk is refused, maybe only just now
			return restart(nodes[0], func() error { return nodes[0].FreeDisk(ctx) })(ctx)
		}, nodes[0].FillDisk()
	case ledger.DiskError, ledger.SlowDisk:
		what := "error=EIO"
		if s.Kind == ledger.SlowDisk {
			what = "delay_enter=200ms"
		}
		mend, err := nodes[0].Break(field.Syncs, what, "")
		return restart(nodes[0], mend), err
	}
	return nil, fmt.Errorf("nobody knows how to do %q", s.Kind)
}

// answers reports whether a node has come up, so that what happens to it does not happen to
// its start.
func answers(ctx context.Context, n *field.Node) bool {
	_, _, err := n.Ready(ctx)
	return err == nil
}

// isolate cuts a node off from the others of its region until it is mended.
func (r *run) isolate(ctx context.Context, n *field.Node, lasts time.Duration) (heal func(context.Context) error, err error) {
	each := func(do func(from, to *field.Node) error) (err error) {
		for _, other := range r.field.Of(n.Region) {
			if other != n {
				err = errors.Join(err, do(n, other), do(other, n))
			}
		}
		return err
	}
	err = each(func(from, to *field.Node) error { return r.field.Cut(ctx, from, to, field.Drop, lasts) })
	return func(ctx context.Context) error {
		return each(func(from, to *field.Node) error { return r.field.Mend(ctx, from, to, field.Drop) })
	}, err
}

// restart mends what is broken and gives the node a new start.
func restart(n *field.Node, mend func() error) func(context.Context) error {
	return func(context.Context) error {
		err := mend()
		n.Kill()
		return errors.Join(err, n.Start())
	}
}

func startAll(nodes []*field.Node) error {
	var errs []error
	for _, n := range nodes {
		errs = append(errs, n.Start())
	}
	return errors.Join(errs...)
}

// cut cuts until it is mended; should nobody live to do that it ends in the kernel.
func (r *run) cut(ctx context.Context, s Step) (heal func(context.Context) error, err error) {
	each := func(do func(from, to *field.Node) error) (err error) {
		for _, from := range r.field.Of(s.From) {
			for _, to := range r.field.Of(s.To) {
				err = errors.Join(err, do(from, to))
				if s.Kind == ledger.Cut {
					err = errors.Join(err, do(to, from))
				}
			}
		}
		return err
	}
	err = each(func(from, to *field.Node) error { return r.field.Cut(ctx, from, to, s.Loss, s.For+healWithin) })
	return func(ctx context.Context) error {
		return each(func(from, to *field.Node) error { return r.field.Mend(ctx, from, to, s.Loss) })
	}, err
}
