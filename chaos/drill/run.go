package drill

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"domicile/api"
	pb "domicile/api/domicile/v1"
	"domicile/chaos/drill/history"
	"domicile/chaos/drill/oracle"
	"domicile/regions"
	"domicile/regions/identity"
)

// HistoryFile is the history in a drill's folder. ApprovalsFolder is where people put
// approvals while it runs, a line each, any number to a file: those of moves back, of which
// nobody can know the plan before.
const (
	HistoryFile     = "history.jsonl"
	ApprovalsFolder = "approvals"
)

// Config says what is run, by whom and on which regions. All of it is required but
// Approvals, Trust, Say, Every and Simulated.
type Config struct {
	ID         string
	Plan       Plan
	Digest     string // of the plan's file
	Dir        string // of this drill, made already; nothing in it is replaced
	Nodes      map[string]*Node
	Approvals  []string       // signed statements: of the drill, and of moves in it
	Confirmed  bool           // somebody has said yes to what real records it costs
	Controller string         // this program and its version
	Trust      identity.Trust // by whom regions' reports of loss may be signed; nil: signatures are not checked
	Clock      regions.Clock
	Say        func(line string)  // told of each step, for people; nil: nobody is
	Every      time.Duration      // between two questions to a region for its lags and links; 0: 500 ms
	Simulated  *history.Simulated // the nodes live in virtual time; nil: they do not
}

// Result is how a drill ended.
type Result struct {
	Outcome history.Outcome
	Why     string // of one that was not completed
	Chain   string // the last hash of the history
}

// Budgets of phases that the plan says nothing of.
const (
	checkWithin  = time.Minute
	armWithin    = 30 * time.Second
	healWithin   = 30 * time.Second
	moveWithin   = 2 * time.Minute
	reconcile    = time.Minute
	searchWithin = 5 * time.Minute
	closeWithin  = 15 * time.Second
	watchEvery   = time.Second
	renewalParts = 3 // of a lease
)

// run is one drill under way.
type run struct {
	Config
	history *history.Writer
	found   *Federation   // as preflight met it
	plan    *history.Plan // as it is in the history
	oracle  *oracle.Oracle
	cutAt   time.Time // zero: nothing was cut yet
	healed  time.Time
	moved   []moved
	seen    []Sighting // by the search
}

// Run carries a drill out, from its preflight to a history that is whole. What was cut is
// healed before it returns, also when ctx ends; nodes that can't be reached heal by
// themselves within the lease. A refusal before the cut is a Result, with the error that
// says why.
func Run(ctx context.Context, c Config) (Result, error) {
	if c.Say == nil {
		c.Say = func(string) {}
	}
	if err := c.Plan.Check(); err != nil {
		return Result{Outcome: history.Refused}, err
	}
	found, err := Look(ctx, c.Nodes)
	if err != nil {
		return Result{Outcome: history.Refused}, err
	}
	r := &run{Config: c, found: found, plan: found.resolve(&c.Plan, c.Digest)}
	r.whose(ctx)
	name := found.Status[found.regions()[0]].GetFederation()
	if r.history, err = history.Create(filepath.Join(c.Dir, HistoryFile), history.Head{Drill: c.ID, Federation: name, Controller: c.Controller, Simulated: c.Simulated}, c.Clock); err != nil {
		return Result{Outcome: history.Refused}, &api.Error{Code: api.ConfigInvalid, Op: "write history", Field: "dir", Value: c.Dir, Err: err, Hint: "give a folder that can be written, and in which no drill of that id is"}
	}
	outcome, why := r.play(ctx)
	result := Result{Outcome: outcome, Why: text(why)}
	result.Chain, err = r.history.Close(history.Close{Outcome: outcome, Text: result.Why})
	if outcome == history.Refused {
		err = errors.Join(why, err)
	}
	return result, err
}

// Prove tells every node that took part that the drill has passed: from then on they say
// how old that evidence is, and that of the moves which it has measured.
func Prove(ctx context.Context, c *Config, chain string, moves []*pb.ProvenMove) error {
	if c.Simulated != nil {
		return errors.New("a simulated drill proves nothing")
	}
	nodes, err := members(c.Nodes, &c.Plan)
	if err != nil {
		return err
	}
	return all(ctx, nodes, func(ctx context.Context, n *Node) error {
		_, err := n.Admin.ProveDrill(ctx, &pb.ProveDrillRequest{Id: c.ID, Chain: chain, Moves: moves})
		return err
	})
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return strings.ReplaceAll(err.Error(), "\n", "; ")
}

// play runs the phases. The error is why the drill was not completed.
func (r *run) play(ctx context.Context) (history.Outcome, error) {
	r.note(history.Event{Plan: r.plan})
	if err := r.phase(ctx, history.Preflight, checkWithin, r.preflight); err != nil {
		return history.Refused, err
	}
	defer r.closeOracle(ctx)
	if err := r.phase(ctx, history.Baseline, r.Plan.Baseline+checkWithin, r.baseline); err != nil {
		return history.Refused, err
	}
	held, err := r.arm(ctx)
	if err != nil {
		return history.Refused, err
	}
	broke := r.underCut(ctx, held)
	control := r.heal(context.WithoutCancel(ctx), held)
	if ctx.Err() != nil {
		return history.Aborted, errors.Join(errors.New("it was interrupted"), control)
	}
	after := r.after(ctx)
	switch {
	case control != nil:
		return history.Uncontrolled, errors.Join(control, broke, after)
	case broke != nil:
		return history.Aborted, errors.Join(broke, after)
	case after != nil:
		return history.Aborted, after
	}
	return history.Completed, nil
}

// underCut is the time in which links are cut. It ends early with what broke it.
func (r *run) underCut(ctx context.Context, held *hold) error {
	ctx, broken := context.WithCancelCause(ctx)
	defer broken(nil)
	defer context.AfterFunc(held.broken, func() { broken(context.Cause(held.broken)) })()
	ctx, cancel := context.WithTimeoutCause(ctx, r.Plan.For, errTime)
	defer cancel()
	err := r.phase(ctx, history.Cut, armWithin, func(ctx context.Context) error {
		if err := held.cut(ctx); err != nil {
			return err
		}
		r.Say(fmt.Sprintf("%s is cut off from %d regions for %s", r.Plan.Isolate, len(r.Plan.Peers), regions.Span(r.Plan.For)))
		return r.probe(ctx, 0)
	})
	if err != nil {
		return err
	}
	if len(r.Plan.Exercise) > 0 {
		err = r.phase(ctx, history.Exercise, moveWithin, r.exercise)
	}
	watched := r.phase(ctx, history.ProbePhase, r.Plan.For, r.probes)
	return errors.Join(err, watched)
}

// errTime says that the cut has lasted as long as it was planned to.
var errTime = errors.New("the cut has lasted as planned")

// after is what comes once everything is healed.
func (r *run) after(ctx context.Context) error {
	err := r.phase(ctx, history.CatchUp, r.Plan.CatchUp, r.catchUp)
	if len(r.moved) > 0 {
		err = errors.Join(err, r.phase(ctx, history.Failback, r.failbackWithin(), r.failback))
	}
	within := reconcile
	if err != nil {
		within = answerWithin // what has not caught up in its time is said, not waited for again
	}
	err = errors.Join(err, r.phase(ctx, history.ReconcileAll, within, r.reconcile))
	err = errors.Join(err, r.phase(ctx, history.Search, searchWithin, r.search))
	return errors.Join(err, r.phase(ctx, history.ReportPhase, closeWithin, func(ctx context.Context) error {
		return r.ask(ctx, history.AfterHeal, nil)
	}))
}

// phase runs one phase within its budget and notes its begin and its end.
func (r *run) phase(ctx context.Context, p history.Phase, budget time.Duration, do func(context.Context) error) error {
	r.Say(string(p))
	if err := r.history.Begin(p, budget); err != nil {
		return err
	}
	bounded, cancel := context.WithTimeout(ctx, budget)
	defer cancel()
	err := do(bounded)
	return errors.Join(err, r.history.End(p, err == nil, text(err)))
}

// note writes an event. A history that can't be written ends no drill here: its writer
// says so when it is closed.
func (r *run) note(e history.Event) { _ = r.history.Note(e) }

func (r *run) closeOracle(ctx context.Context) {
	if r.oracle == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeWithin)
	defer cancel()
	if err := r.oracle.Close(ctx); err != nil {
		r.Say("the oracle: " + err.Error())
	}
}

// pass lets time go by, or says why not all of it did.
func pass(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
