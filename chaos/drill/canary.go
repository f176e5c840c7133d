package drill

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"domicile/api"
	"domicile/chaos/drill/history"
	"domicile/regions"
)

// Canary is a look for leaks with nothing cut: resident records are published at the doors
// of all regions, at home and to be handed on, and then looked for in the files of every
// node. All of it is required but Say.
type Canary struct {
	ID         string
	Dir        string // of this look, made already; the history is written there
	Nodes      map[string]*Node
	Rate       int           // records a second of each producer
	For        time.Duration // that they publish
	CatchUp    time.Duration // in which copies are complete afterwards
	Controller string        // this program and its version
	Clock      regions.Clock
	Say        func(line string) // told of each step, for people; nil: nobody is
}

// CanaryVerdict is what a look has shown.
type CanaryVerdict string

// Verdicts of a look.
const (
	Clean    CanaryVerdict = "clean"    // every node was searched: none outside, and those at home were found
	Leaked   CanaryVerdict = "leaked"   // some are where they may not rest, whatever else went wrong
	Unproven CanaryVerdict = "unproven" // neither is known
)

// Sighting is what the search of one node's files saw, outside its boundary or at home.
type Sighting struct {
	Region string
	history.Scan
}

// CanaryResult is how a look ended.
type CanaryResult struct {
	Verdict CanaryVerdict
	Why     string // of one that is not clean
	Records uint64 // resident records that were acknowledged
	Seen    []Sighting
	Chain   string // the last hash of the history
}

// Watch takes one look. An error is of a look that has published nothing, or whose history
// could not be kept.
func (c Canary) Watch(ctx context.Context) (CanaryResult, error) {
	if c.Say == nil {
		c.Say = func(string) {}
	}
	found, err := Look(ctx, c.Nodes)
	if err != nil {
		return CanaryResult{}, err
	}
	p := Plan{Baseline: c.For, Feeds: found.canaries(c.Rate)}
	if len(p.Feeds) == 0 {
		return CanaryResult{}, &api.Error{Code: api.BadRequest, Op: "look for leaks", Field: "topics", Hint: "no topic takes records that are bound to a boundary: there is nothing that could be where it may not rest"}
	}
	r := &run{Config: Config{ID: c.ID, Plan: p, Dir: c.Dir, Nodes: c.Nodes, Clock: c.Clock, Say: c.Say}, found: found, plan: found.resolve(&p, "")}
	name := found.Status[found.regions()[0]].GetFederation()
	if r.history, err = history.Create(filepath.Join(c.Dir, HistoryFile), history.Head{Drill: c.ID, Federation: name, Controller: c.Controller}, c.Clock); err != nil {
		return CanaryResult{}, &api.Error{Code: api.ConfigInvalid, Op: "write history", Field: "dir", Value: c.Dir, Err: err, Hint: "give a folder that can be written, and in which nothing of that id is"}
	}
	r.note(history.Event{Plan: r.plan})
	result := r.canary(ctx, c.CatchUp)
	outcome := history.Completed
	if result.Verdict == Unproven {
		outcome = history.Aborted
	}
	result.Chain, err = r.history.Close(history.Close{Outcome: outcome, Text: result.Why})
	return result, err
}

// canaries are one row of records for each kind of resident record at each region from which
// one can get home: those that only pass through a region are the ones that must leave
// nothing there.
func (f *Federation) canaries(rate int) []Feed {
	var out []Feed
	resolved := f.resolve(&Plan{}, "")
	for i, m := range f.Topics {
		for _, combo := range m.GetCombinations() {
			words, bound, ok := tagsOf(combo)
			if !ok || bound == "" || bound == history.Global {
				continue
			}
			for _, region := range f.regions() {
				if homeOf(resolved, &resolved.Topics[i], region, bound) != "" {
					out = append(out, Feed{Region: region, Topic: m.GetName(), Tags: words, Rate: rate, Size: 256})
				}
			}
		}
	}
	return out
}

// canary publishes, waits until whatever may travel has arrived, and searches.
func (r *run) canary(ctx context.Context, catchUp time.Duration) CanaryResult {
	defer r.closeOracle(ctx)
	err := r.phase(ctx, history.Baseline, r.Plan.Baseline+checkWithin, func(ctx context.Context) error {
		if err := r.watch(ctx); err != nil {
			return err
		}
		return pass(ctx, r.Plan.Baseline)
	})
	if err == nil {
		err = r.phase(ctx, history.CatchUp, catchUp, func(ctx context.Context) error {
			err := r.settle(ctx)
			r.healed = r.Clock.Now() // copies that are complete up to here had their chance to hold what they may not
			return errors.Join(err, r.complete(ctx))
		})
	}
	if r.oracle == nil {
		return CanaryResult{Verdict: Unproven, Why: text(err)}
	}
	err = errors.Join(err, r.phase(ctx, history.Search, searchWithin, r.search))
	result := CanaryResult{Seen: r.seen}
	for _, m := range r.oracle.Marks() {
		result.Records += m.Records
	}
	result.Verdict, result.Why = judgeCanary(r.seen, result.Records, err)
	return result
}

// judgeCanary is what the searches of all nodes have shown.
func judgeCanary(seen []Sighting, records uint64, err error) (CanaryVerdict, string) {
	outside, home := false, false
	for _, s := range seen {
		if !s.Home && s.Hits > 0 {
			return Leaked, fmt.Sprintf("%d marks of records that may not rest in %s are in %s", s.Hits, s.Region, s.Where)
		}
		if s.Home && s.Hits < s.Sown {
			err = errors.Join(err, fmt.Errorf("%d of %d marks were not found in %s, where they have to be: the search shows nothing", s.Sown-s.Hits, s.Sown, s.Where))
		}
		outside, home = outside || !s.Home, home || s.Home
	}
	switch {
	case err != nil:
		return Unproven, err.Error()
	case records == 0 || !home:
		return Unproven, "no resident record was acknowledged"
	case !outside:
		return Unproven, "no region that the contexts reach is outside a boundary"
	}
	return Clean, ""
}
