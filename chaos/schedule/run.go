package schedule

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"domicile/chaos/canary"
	"domicile/chaos/field"
	"domicile/chaos/lab"
	"domicile/chaos/ledger"
	"domicile/regions"
)

// Options say how a plan is run. The zero value is the example federation at the
// fastest pace.
type Options struct {
	Parent string   // where the field's directory is made; "": the system's temporary one
	Quorum []string // regions of three nodes
	Rate   int      // records a second over all regions; 0: 90
	// Patience is how long nothing may move while links and mirrors become well again; 0: two
	// minutes.
	Patience time.Duration
	// Gauges also compares what each process holds before and after.
	Gauges bool
	Break  string // a mechanism of every node that is off, so that the checks are seen red
}

// The bounds of a run's parts, for a machine that does other things as well.
const (
	startWithin     = 2 * time.Minute
	stopWithin      = time.Minute
	askRounds       = 5
	defaultRate     = 90
	defaultPatience = 2 * time.Minute
	pace            = regions.Pace(0.25)
)

// run is one plan under way.
type run struct {
	patience time.Duration
	plan     Plan
	field    *field.Field
	book     *ledger.Book
	clock    regions.Clock
	tokens   *canary.Set
	trades   []*trade
	serial   int             // of the policy that was written last
	after    sync.WaitGroup  // what waits for nodes to come up again
	coming   context.Context // ends when nobody needs to wait for that any more

	mu       sync.Mutex
	held     map[string][]int // id → tokens of its record
	findings []string
}

// ShapeOf is what a plan can strike in a federation with these quorum regions.
func ShapeOf(f *field.Field) Shape {
	s := Shape{Regions: map[string][]string{}}
	for _, n := range f.Nodes() {
		s.Regions[n.Region] = append(s.Regions[n.Region], n.Name)
	}
	return s
}

// Run carries out the plan that make makes of the federation's shape, and judges what
// is left. An error says that the run could not be carried out, a verdict what was
// found, also that the federation did not come to rest.
func Run(ctx context.Context, o Options, make func(Shape) Plan) (_ *Verdict, err error) {
	if o.Rate == 0 {
		o.Rate = defaultRate
	}
	if o.Patience == 0 {
		o.Patience = defaultPatience
	}
	f, err := field.Open(ctx, field.Options{Parent: o.Parent, Quorum: o.Quorum, Pace: pace, Break: o.Break})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close(ctx)) }()
	clock := regions.NewSteadyClock()
	r := &run{patience: o.Patience, plan: make(ShapeOf(f)), field: f, book: &ledger.Book{Clock: clock}, clock: clock, tokens: &canary.Set{}, held: map[string][]int{}, serial: 1}
	v, err := r.whole(ctx, o)
	if err != nil {
		return nil, fmt.Errorf("%w\n%s%s", err, r.plan, r.logs())
	}
	return v, nil
}

// whole is the run from its start to its verdict.
func (r *run) whole(ctx context.Context, o Options) (*Verdict, error) {
	if err := r.field.Start(); err != nil {
		return nil, err
	}
	if err := r.field.Linked(ctx, startWithin); err != nil {
		return nil, fmt.Errorf("before the first fault: %w", err)
	}
	if o.Break != "" { // what is broken is to be seen in records, not in a store that was never made
		for _, n := range r.field.Nodes() {
			if err := n.Sync(ctx); err != nil {
				return nil, err
			}
		}
	}
	for _, region := range r.field.Federation.Regions() {
		t, err := r.openTrade(region)
		if err != nil {
			return nil, err
		}
		r.trades = append(r.trades, t)
	}
	err := r.trouble(ctx, o.Gauges, time.Duration(len(r.trades))*time.Second/time.Duration(o.Rate))
	closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopWithin)
	defer cancel()
	for _, t := range r.trades {
		err = errors.Join(err, t.close(closing))
	}
	if err != nil {
		return nil, err
	}
	return r.audit(ctx)
}

// trouble lets producers and consumers work while the plan strikes, heals everything
// and waits until the federation has come to rest.
func (r *run) trouble(ctx context.Context, gauges bool, interval time.Duration) error {
	var work sync.WaitGroup
	defer work.Wait()
	watching, stopWatching := context.WithCancel(ctx)
	defer stopWatching()
	producing, stopProducing := context.WithCancel(ctx)
	defer stopProducing()
	var producers sync.WaitGroup
	for _, t := range r.trades {
		work.Go(func() { t.sample(watching) })
		work.Go(func() { t.count(watching) })
		for _, topic := range r.field.Federation.Topics() {
			work.Go(func() { t.consume(watching, topic) })
		}
	}
	if gauges {
		r.weigh(ctx, ledger.LeakBase)
	}
	for _, t := range r.trades {
		if err := lab.Poll(ctx, r.patience, func() error { return t.countOnce(ctx) }); err != nil {
			return fmt.Errorf("before the first fault: %w", err)
		}
	}
	for _, t := range r.trades {
		producers.Go(func() { t.produce(producing, interval) })
	}
	var stopComing context.CancelFunc
	r.coming, stopComing = context.WithCancel(ctx)
	defer stopComing()
	endLoad := r.book.During(ledger.Step{Kind: ledger.Load})
	err := r.strike(ctx)
	if err == nil {
		err = errors.Join(r.field.Heal(ctx), r.field.Start())
	}
	if err == nil {
		r.finding(r.field.Linked(ctx, r.patience))
	}
	stopComing()
	r.after.Wait()
	stopProducing()
	producers.Wait()
	endLoad()
	if err == nil {
		r.settle(ctx)
	}
	if err == nil && gauges {
		r.weigh(ctx, ledger.LeakAgain)
	}
	return err
}

// weigh notes what each node's process holds, three times.
func (r *run) weigh(ctx context.Context, point ledger.StepKind) {
	r.book.Point(point)
	for range 3 {
		if lab.Pass(ctx, time.Second) != nil {
			return
		}
		for _, n := range r.field.Nodes() {
			g, err := n.Gauges(ctx)
			r.finding(err)
			for name, v := range map[string]float64{ledger.HeapBytes: float64(g.HeapBytes), ledger.Goroutines: float64(g.Goroutines), ledger.Descriptors: float64(g.Descriptors)} {
				r.book.Note(ledger.Event{Gauge: &ledger.Gauge{Region: n.Region, Node: n.Gateway, Name: name, Value: v}})
			}
		}
	}
}

// settle asks again about what nobody could say, and lets the mirrors catch up.
func (r *run) settle(ctx context.Context) {
	for range askRounds {
		open := 0
		for _, t := range r.trades {
			open += t.askAgain(ctx)
		}
		if open == 0 {
			break
		}
	}
	if err := r.field.CaughtUp(ctx, r.clock.Now(), r.patience); err != nil {
		r.finding(fmt.Errorf("the mirrors do not catch up: %w", err))
		return
	}
	r.book.Point(ledger.Converged)
	for _, t := range r.trades {
		r.finding(lab.Poll(ctx, r.patience, func() error { return t.countOnce(ctx) }))
	}
}

// finding notes something that must not be; nil is nothing.
func (r *run) finding(err error) {
	if err == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.findings = append(r.findings, err.Error())
}

// logs is the end of what every node wrote.
func (r *run) logs() string {
	var text string
	for _, n := range r.field.Nodes() {
		text += "\nthe log of " + n.Name + " ends:\n" + n.LogEnd()
	}
	return text
}
