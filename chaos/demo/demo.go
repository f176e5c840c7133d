// Package demo tells the product's story with real regions and checks every word of
// it: orders that rest where they must, a catalogue that is everywhere, a region that
// is cut off and comes back, and a ledger of what producers were told.
package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"domicile/api"
	"domicile/chaos/canary"
	"domicile/chaos/lab"
	"domicile/chaos/ledger"
	"domicile/chaos/tap"
	"domicile/gateway/node"
	"domicile/policy"
	"domicile/regions"
)

// Defaults and bounds of the options.
const (
	DefaultFor  = 25 * time.Second
	MinFor      = 2 * time.Second
	MaxFor      = time.Hour
	DefaultRate = 120 // records a second
	MinRate     = 10
	MaxRate     = 5000
)

// The regions of the story, as in the example federation.
const (
	cutRegion  = "eu-west"  // is cut off
	idleRegion = "ap-south" // writes nothing into its own logs meanwhile
	usRegion   = "us-east"  // sends the probes
)

// Options say how a demo runs. The zero value is the demo of the command without
// flags, told to nobody.
type Options struct {
	For   time.Duration // how long producers publish; 0: DefaultFor. The rest takes some seconds more
	Rate  int           // records a second over all regions; 0: DefaultRate
	Stay  bool          // when the checks are done, keep the regions up until ctx ends
	JSON  bool          // Out gets one line of JSON, nothing else
	Out   io.Writer     // nil: nobody
	Story io.Writer     // where the story goes in JSON mode; nil: nobody
	// Command is how the reader calls this program, for commands to paste.
	Command string
	Parent  string       // where temporary files go; "": the system's place
	Pace    regions.Pace // of the nodes; tests are quicker
	Hooks   Hooks
}

// Hooks break one mechanism each, from Go code only, so that its check can be seen
// to fail.
type Hooks struct {
	SkipEgress  bool // nothing is judged on leaving
	SkipIngress bool // nothing is judged on arriving
	SkipFloor   bool // the boundary is not checked again under the rules
	NoBarrier   bool // acks do not wait for the disk
	NoDedupe    bool // the store forgets which ids it holds
	LeakOne     bool // one resident token is written into a foreign region's files
	LoseOne     bool // one acknowledged record is missing from what is read back
	LoseToken   bool // the tokens of one acknowledged record were never in its home's files
	// Gauge replaces what was read from an exported lag gauge.
	Gauge func(region, log string, seconds float64) float64
}

// Run tells the story and returns what it found. err is for a run that could not be
// made, or was called off; a check that does not hold is in the Result. Everything it
// started has ended and its files are gone when it returns.
func Run(ctx context.Context, o Options) (_ Result, err error) {
	if err := o.complete(); err != nil {
		return newResult(), err
	}
	r := newRun(o)
	defer func() { err = errors.Join(err, r.close(ctx)) }()
	if err := r.story(ctx); err != nil {
		return r.result, err
	}
	r.result.Seconds = r.clock.Now().Sub(r.started).Seconds()
	if err := r.report(); err != nil {
		return r.result, err
	}
	if o.Stay {
		err = r.stay(ctx)
	}
	return r.result, err
}

// close ends whatever is still there.
func (r *run) close(ctx context.Context) error {
	err := r.closeDoors(ctx)
	if r.lab != nil {
		err = errors.Join(err, r.lab.Close(context.WithoutCancel(ctx)))
	}
	return err
}

func (o *Options) complete() error {
	if o.For == 0 {
		o.For = DefaultFor
	}
	if o.Rate == 0 {
		o.Rate = DefaultRate
	}
	if o.Out == nil {
		o.Out = io.Discard
	}
	if o.Story == nil || !o.JSON {
		o.Story = io.Discard
		if !o.JSON {
			o.Story = o.Out
		}
	}
	if o.Command == "" {
		o.Command = "domicile"
	}
	bad := func(field, value, hint string) error {
		return &api.Error{Code: api.BadRequest, Op: "demo", Field: field, Value: value, Hint: hint}
	}
	if o.For < MinFor || o.For > MaxFor {
		return bad("for", o.For.String(), fmt.Sprintf("%s to %s", MinFor, MaxFor))
	}
	if o.Rate < MinRate || o.Rate > MaxRate {
		return bad("rate", fmt.Sprint(o.Rate), fmt.Sprintf("%d to %d records a second", MinRate, MaxRate))
	}
	return nil
}

// run is one demo under way.
type run struct {
	*voice
	o         Options
	clock     regions.Clock
	started   time.Time
	lab       *lab.Lab
	tokens    *canary.Set
	tap       *tap.Tap
	book      *ledger.Book
	traffic   *traffic
	recorders map[string]*recorder // per region
	doors     map[string]*entrance
	probing   probing
	watch     *watch
	reused    api.Code // the answer to another body under a used id
	leaked    int      // bytes of tokens found outside their boundary
	result    Result
}

func newRun(o Options) *run {
	r := &run{voice: newVoice(o.Story), o: o, clock: regions.NewSteadyClock(), tokens: &canary.Set{}, book: &ledger.Book{}, result: newResult(), recorders: map[string]*recorder{}}
	r.started, r.tap = r.clock.Now(), tap.New(r.tokens, r.clock)
	r.traffic = newTraffic(r.clock, o.Pace, r.book)
	return r
}

func (r *run) story(ctx context.Context) error {
	for _, step := range []func(context.Context) error{r.open, r.introduce, r.trade, r.settle, r.probe, r.stop, r.audit} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return nil
}

// open starts the federation.
func (r *run) open(ctx context.Context) error {
	r.say("Three regions start on this machine: real sockets, real disks, real policies.")
	for _, name := range []string{cutRegion, idleRegion, usRegion} {
		r.recorders[name] = newRecorder(r.clock.Now)
	}
	var err error
	r.lab, err = lab.Open(ctx, lab.Options{Parent: r.o.Parent, Pace: r.o.Pace, Seams: r.seams})
	if err != nil {
		return err
	}
	if err := r.openDoors(); err != nil {
		return err
	}
	if err := r.lab.Linked(ctx); err != nil {
		return err
	}
	r.say("Every region has proven both directions of its links.")
	r.say("")
	return nil
}

// seams puts the recorder where the fabric syncs, the tap on the links, and the hooks where
// they break.
func (r *run) seams(region string, s *node.Seams) {
	rec, h := r.recorders[region], r.o.Hooks
	s.FollowPolicies = r.o.Stay
	s.Hooks.Fabric.Sync = rec.sync
	s.Hooks.Fabric.Released = rec.releasing
	s.Hooks.Fabric.NoBarrier, s.Hooks.Fabric.NoDedupe = h.NoBarrier, h.NoDedupe
	s.Hooks.Link = r.tap.Hooks(region)
	s.Hooks.Policy = policy.Hooks{SkipIngress: h.SkipIngress, SkipFloor: h.SkipFloor, ForceAllow: r.probing.forced(region)}
	s.Hooks.Mirror.SkipEgress = func(log api.LogID, target string) bool {
		return h.SkipEgress || r.probing.past(log, target)
	}
}

// report tells the result. In JSON mode the object comes last, also where both
// streams end up in one file.
func (r *run) report() error {
	r.say("")
	r.say("What was checked:")
	r.result.tell(r.say)
	r.say("")
	if r.result.Holds() {
		r.say("Everything holds, after %.0f s.", r.result.Seconds)
	} else {
		r.say("Not everything holds: %v.", r.result.Failed())
	}
	if !r.o.JSON {
		return nil
	}
	return r.result.writeJSON(r.o.Out)
}

// regionNames are the names of the regions, in order.
func (r *run) regionNames() []string { return r.lab.Federation.Regions() }
