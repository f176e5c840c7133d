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

// Step is one fault, or one thing that operators do.
type Step struct {
	At, For time.Duration // since the start, and how long it lasts at least
	Kind    ledger.StepKind
	Nodes   []string   // those that are struck, in the order in which they start again
	From    string     // of a fault of a link: both regions
	To      string     // of a fault of a link: both regions
	Loss    field.Loss // of a cut
	Skew    time.Duration
	Again   bool     // of a clock step: the node is also killed, and starts with the wrong clock
	Regions []string // of a policy flip: in the order in which they activate it

	lane string
}

// Shape is what a plan may strike.
type Shape struct {
	Regions map[string][]string // the nodes of each region
	Kinds   []ledger.StepKind   // nil: all that Generate knows
}

// What Generate knows. Those that are named twice come twice as often.
var (
	longKinds = []ledger.StepKind{ledger.Cut, ledger.Cut, ledger.CutOneWay, ledger.SlowLine}
	linkKinds = []ledger.StepKind{ledger.Cut, ledger.Cut, ledger.CutOneWay}
	nodeKinds = []ledger.StepKind{ledger.Kill, ledger.Kill, ledger.PowerCut, ledger.PowerCut, ledger.Pause, ledger.Stop, ledger.DiskFull, ledger.DiskError, ledger.SlowDisk, ledger.ClockStep}
	trioKinds = []ledger.StepKind{ledger.Isolation, ledger.Isolation, ledger.Pause} // of a region of several nodes, besides
	flipKinds = []ledger.StepKind{ledger.PolicyFlip}
)

// The bounds of a fault and of the calm between two on the same lane, in a second's
// time of a node at the fastest pace. A takeover takes longer than a fault of a node: what
// one has to come of lasts up to takeover.
const (
	shortest = 300 * time.Millisecond
	longest  = 3 * time.Second
	takeover = 8 * time.Second
	// lasting is how long the one fault lasts that every plan has on a link, if the span
	// allows: long enough for what regions say of their lags and links to be due, and
	// then for a line to be fitted through it.
	lasting = 10 * time.Second
)

// generator makes a plan.
type generator struct {
	rng   *rand.Rand
	shape Shape
	span  time.Duration
	names []string // of the regions
	steps []Step
}

// Generate makes the plan of a seed, lanes of faults side by side: one that lasts on one
// link, short ones on the other links, those of nodes, and policies that change. Nothing
// else strikes one end of the lasting fault, so that its word on it can be judged.
func Generate(seed uint64, shape Shape, span time.Duration) Plan {
	g := &generator{rng: rand.New(rand.NewPCG(seed, 0xD031C11E)), shape: shape, span: span}
	for name := range shape.Regions {
		g.names = append(g.names, name)
	}
	slices.Sort(g.names)
	struck, links := g.names, g.pairs()
	if kinds := g.allowed(longKinds); len(links) > 0 && len(kinds) > 0 {
		s := g.onLink(kinds, links)
		s.For = min(g.between(lasting, lasting+time.Second), span)
		s.At, s.lane = g.between(0, min(span-s.For, time.Second)), "lasting"
		g.steps = append(g.steps, s)
		spared := s.From
		if len(shape.Regions[spared]) > len(shape.Regions[s.To]) {
			spared = s.To
		}
		struck = slices.DeleteFunc(slices.Clone(g.names), func(n string) bool { return n == spared })
		links = slices.DeleteFunc(links, func(l [2]string) bool { return l == [2]string{s.From, s.To} || l == [2]string{s.To, s.From} })
	}
	if kinds := g.allowed(linkKinds); len(links) > 0 && len(kinds) > 0 {
		g.lane("links", longest/2, func() Step { return g.onLink(kinds, links) })
	}
	if len(g.allowed(nodeKinds)) > 0 {
		g.lane("nodes", longest/2, func() Step { return g.onNodes(struck[g.rng.IntN(len(struck))]) })
	}
	if len(g.allowed(flipKinds)) > 0 {
		g.lane("policies", 4*longest, func() Step {
			return Step{Kind: ledger.PolicyFlip, Regions: g.shuffled(g.names), For: g.between(shortest, longest)}
		})
	}
	slices.SortStableFunc(g.steps, func(a, b Step) int { return cmp.Compare(a.At, b.At) })
	return Plan{Seed: seed, Span: span, Steps: g.steps}
}

// allowed is what the shape has of some kinds.
func (g *generator) allowed(kinds []ledger.StepKind) []ledger.StepKind {
	return slices.DeleteFunc(slices.Clone(kinds), func(k ledger.StepKind) bool {
		return g.shape.Kinds != nil && !slices.Contains(g.shape.Kinds, k)
	})
}

// lane fills the span with one step after the other, and at most calm in between.
func (g *generator) lane(name string, calm time.Duration, next func() Step) {
	for at := g.between(0, longest/3); at < g.span; {
		s := next()
		s.At, s.For, s.lane = at, min(s.For, g.span-at), name
		g.steps = append(g.steps, s)
		at += s.For + g.between(shortest, calm)
	}
}

// between is a length of time in whole milliseconds, so that the plan's text is whole.
func (g *generator) between(low, high time.Duration) time.Duration {
	return low + time.Duration(g.rng.Int64N(max((high-low).Milliseconds(), 1)))*time.Millisecond
}

func (g *generator) shuffled(list []string) []string {
	list = slices.Clone(list)
	g.rng.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
	return list
}

// pairs lists the ordered pairs of regions.
func (g *generator) pairs() (pairs [][2]string) {
	for _, a := range g.names {
		for _, b := range g.names {
			if a != b {
				pairs = append(pairs, [2]string{a, b})
			}
		}
	}
	return pairs
}

func (g *generator) onLink(kinds []ledger.StepKind, links [][2]string) Step {
	pair := links[g.rng.IntN(len(links))]
	s := Step{Kind: kinds[g.rng.IntN(len(kinds))], From: pair[0], To: pair[1], For: g.between(shortest, longest)}
	if s.Kind != ledger.SlowLine {
		s.Loss = field.Drop
		if g.rng.IntN(3) == 0 {
			s.Loss = field.Reject
		}
	}
	return s
}

// onNodes strikes one node of a region, or of one that has several any number of them.
func (g *generator) onNodes(region string) Step {
	nodes, kinds := g.shuffled(g.shape.Regions[region]), nodeKinds
	if len(nodes) > 1 {
		kinds = slices.Concat(nodeKinds, trioKinds)
	}
	kinds = g.allowed(kinds)
	s := Step{Kind: kinds[g.rng.IntN(len(kinds))], For: g.between(shortest, longest)}
	many := 1
	switch s.Kind {
	case ledger.Kill, ledger.PowerCut:
		many += g.rng.IntN(len(nodes))
	case ledger.Isolation, ledger.Pause:
		if len(nodes) > 1 {
			s.For = g.between(longest, takeover)
		}
	case ledger.ClockStep:
		s.Skew = g.between(time.Second, time.Hour).Truncate(time.Second)
		if g.rng.IntN(2) == 0 {
			s.Skew = -s.Skew
		}
		s.Again = g.rng.IntN(2) == 0
	}
	s.Nodes = nodes[:many]
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
	switch s.Kind {
	case ledger.Cut:
		what += " " + s.From + " and " + s.To + " (" + string(s.Loss) + ")"
	case ledger.CutOneWay:
		what += " " + s.From + " to " + s.To + " (" + string(s.Loss) + ")"
	case ledger.SlowLine:
		what += " " + s.From + " and " + s.To
	case ledger.PolicyFlip:
		what += " " + strings.Join(s.Regions, ", ")
	default:
		what += " " + strings.Join(s.Nodes, ", ")
	}
	if s.Skew != 0 {
		what += " by " + s.Skew.String()
	}
	if s.Again {
		what += ", killed and started so,"
	}
	return what + " for " + s.For.String()
}
