// Package schedule runs a federation of processes under a seeded plan of faults, with
// producers and consumers in every region, and judges what is left: plan, strike,
// heal, converge, check. The same seed makes the same plan; what the machine does
// with it is never quite the same, so a seed that was red once is tried several times.
package schedule

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"domicile/chaos/field"
	"domicile/chaos/ledger"
)

// Plan is what happens to a federation, and when.
type Plan struct {
	Seed  uint64
	Span  time.Duration // from the first record to the healing of everything
	Steps []Step        // by At
}

// Step is one fault.
type Step struct {
	At, For time.Duration // since the start, and how long it lasts at least
	Kind    ledger.StepKind
	Nodes   []string   // those that are struck, in the order in which they start again
	From    string     // of a cut: both regions
	To      string     // of a cut: both regions
	Loss    field.Loss // of a cut
	Skew    time.Duration
}

// Shape is what a plan may strike.
type Shape struct {
	Regions map[string][]string // the nodes of each region
	Kinds   []ledger.StepKind   // nil: all that Generate knows
}

// linkKinds and nodeKinds are the faults that Generate knows. Those that are named
// twice come twice as often.
var (
	linkKinds = []ledger.StepKind{ledger.Cut, ledger.Cut, ledger.CutOneWay}
	nodeKinds = []ledger.StepKind{ledger.Kill, ledger.Kill, ledger.PowerCut, ledger.PowerCut, ledger.Pause, ledger.Stop, ledger.DiskFull, ledger.DiskError, ledger.SlowDisk, ledger.ClockStep}
)

// The bounds of a fault and of the calm between two on the same lane, in a second's
// time of a node at the fastest pace.
const (
	shortest = 300 * time.Millisecond
	longest  = 3 * time.Second
)

// Generate makes the plan of a seed: one lane of faults on links and one on nodes,
// side by side.
func Generate(seed uint64, shape Shape, span time.Duration) Plan {
	rng := rand.New(rand.NewPCG(seed, 0xD031C11E))
	p := Plan{Seed: seed, Span: span}
	names := make([]string, 0, len(shape.Regions))
	for name := range shape.Regions {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, lane := range []struct {
		kinds []ledger.StepKind
		make  func(*rand.Rand, ledger.StepKind, []string, Shape) Step
	}{{linkKinds, linkStep}, {nodeKinds, nodeStep}} {
		kinds := slices.DeleteFunc(slices.Clone(lane.kinds), func(k ledger.StepKind) bool {
			return shape.Kinds != nil && !slices.Contains(shape.Kinds, k)
		})
		if len(kinds) == 0 {
			continue
		}
		for at := between(rng, 0, longest/3); at < span; {
			s := lane.make(rng, kinds[rng.IntN(len(kinds))], names, shape)
			s.At, s.For = at, min(between(rng, shortest, longest), span-at)
			p.Steps = append(p.Steps, s)
			at += s.For + between(rng, shortest, longest/2)
		}
	}
	slices.SortStableFunc(p.Steps, func(a, b Step) int { return cmp.Compare(a.At, b.At) })
	return p
}

// between is a length of time in whole milliseconds, so that the plan's text is whole.
func between(rng *rand.Rand, low, high time.Duration) time.Duration {
	return low + time.Duration(rng.Int64N((high-low).Milliseconds()))*time.Millisecond
}

func linkStep(rng *rand.Rand, kind ledger.StepKind, names []string, _ Shape) Step {
	pair := rng.Perm(len(names))
	s := Step{Kind: kind, From: names[pair[0]], To: names[pair[1]], Loss: field.Drop}
	if rng.IntN(3) == 0 {
		s.Loss = field.Reject
	}
	return s
}

// nodeStep strikes one node, or of a region that has several any number of them.
func nodeStep(rng *rand.Rand, kind ledger.StepKind, names []string, shape Shape) Step {
	nodes := slices.Clone(shape.Regions[names[rng.IntN(len(names))]])
	rng.Shuffle(len(nodes), func(i, j int) { nodes[i], nodes[j] = nodes[j], nodes[i] })
	many := 1
	if kind == ledger.Kill || kind == ledger.PowerCut {
		many += rng.IntN(len(nodes))
	}
	s := Step{Kind: kind, Nodes: nodes[:many]}
	if kind == ledger.ClockStep {
		s.Skew = between(rng, time.Second, time.Hour)
		if rng.IntN(2) == 0 {
			s.Skew = -s.Skew
		}
	}
	return s
}

// String is the plan as it is printed when something is found.
func (p Plan) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "seed %d, %s of faults\n", p.Seed, p.Span)
	for _, s := range p.Steps {
		fmt.Fprintf(&b, "  %6.3fs  %s\n", s.At.Seconds(), s)
	}
	return b.String()
}

// String is one fault in words.
func (s Step) String() string {
	what := string(s.Kind)
	switch {
	case s.Kind == ledger.Cut:
		what += " " + s.From + " and " + s.To + " (" + string(s.Loss) + ")"
	case s.Kind == ledger.CutOneWay:
		what += " " + s.From + " to " + s.To + " (" + string(s.Loss) + ")"
	default:
		what += " " + strings.Join(s.Nodes, ", ")
	}
	if s.Skew != 0 {
		what += " by " + s.Skew.String()
	}
	return what + " for " + s.For.String()
}
