package failover

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"domicile/api"
)

// DefaultRate is how many records a second the producer sends.
const DefaultRate = 2000

// Options say how the story is run.
type Options struct {
	Rate   int      // records a second; 0: DefaultRate
	Serve  []string // how this program serves a node with open doors: the path of node.yaml is appended. Required
	Story  io.Writer
	Parent string // where temporary files go; "": the system's place
	Hooks  Hooks
}

// Hooks spoil what is checked, from Go code only, so that a check can be seen to fail.
type Hooks struct {
	// Invent adds an ack that nobody gave.
	Invent bool
}

// Check is one claim, held against the ledger.
type Check struct {
	Claim string `json:"claim"`
	Holds bool   `json:"holds"`
	Saw   string `json:"saw"`
}

// Step is one line of the story.
type Step struct {
	Step    string  `json:"step"`
	Seconds float64 `json:"seconds"`
	Saw     string  `json:"saw"`
}

// Result is what was seen.
type Result struct {
	Acked    int     `json:"acked"`
	Void     int     `json:"acked_and_left_behind"`
	Named    int     `json:"named_at_the_cut"`
	Unknown  int     `json:"unknown_at_the_cut"`
	PauseMS  []int64 `json:"switchover_write_pause_ms"`
	RTOMS    int64   `json:"forced_rto_ms"`       // from the operator's word to the first ack
	AnswerMS int64   `json:"authority_answer_ms"` // of it: until the authority had taken the word; it may have lost its leader
	Lost     int     `json:"lost"`
	Doubled  int     `json:"doubled"`
	Steps    []Step  `json:"steps"`
	Checks   []Check `json:"checks"`
	Seconds  float64 `json:"seconds"`
	Rate     int     `json:"records_per_second"`
	Finished bool    `json:"finished"`
}

// Holds reports whether the story came to its end and every claim holds.
func (r *Result) Holds() bool {
	for _, c := range r.Checks {
		if !c.Holds {
			return false
		}
	}
	return r.Finished && len(r.Checks) > 0
}

// story is one run.
type story struct {
	Options
	world  *world
	ledger *ledger
	began  time.Time
	result Result
	stop   func() // of the producer; nil: none runs
}

// Run tells the story. err is for a run that could not be made or did not come to its end;
// a claim that does not hold is in the result. Everything that it started has ended and its
// files are gone when it returns.
func Run(ctx context.Context, o Options) (_ *Result, err error) {
	if o.Rate == 0 {
		o.Rate = DefaultRate
	}
	if o.Story == nil {
		o.Story = io.Discard
	}
	if len(o.Serve) == 0 {
		return nil, errors.New("failover: how a node is served is not told")
	}
	root, err := os.MkdirTemp(o.Parent, "domicile-failover-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(root)) }()
	s := &story{Options: o, ledger: newLedger(), began: time.Now(), result: Result{Rate: o.Rate}}
	s.world, err = found(root, o.Serve, west)
	if err != nil {
		return nil, err
	}
	defer func() {
		s.rest()
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
		defer cancel()
		err = errors.Join(err, s.world.close(closing))
	}()
	err = s.tell(ctx)
	s.result.Finished = err == nil
	s.result.Seconds = time.Since(s.began).Seconds()
	return &s.result, err
}

// step does one part of the story and says what was seen.
func (s *story) step(ctx context.Context, name string, do func(context.Context) (string, error)) error {
	began := time.Now()
	saw, err := do(ctx)
	took := time.Since(began)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	s.result.Steps = append(s.result.Steps, Step{name, took.Seconds(), saw})
	fmt.Fprintf(s.Story, "%-28s %6.1f s  %s\n", name, took.Seconds(), saw)
	return nil
}

func (s *story) check(claim string, holds bool, format string, args ...any) {
	s.result.Checks = append(s.result.Checks, Check{claim, holds, fmt.Sprintf(format, args...)})
}

// poll asks until there is no complaint, for a minute at most.
func poll(ctx context.Context, ask func() error) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		err := ask()
		if err == nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return errors.Join(ctx.Err(), err)
		}
	}
}

// The regions and the log of the story.
const (
	west  = "eu-west" // the home, and a process of its own
	east  = "us-east" // takes over
	south = "ap-south"
	topic = "catalog.updates"
)

func log() api.LogID {
	return api.LogID{Tenant: api.DefaultTenant, Topic: topic, Slot: api.HomeSlot}
}
