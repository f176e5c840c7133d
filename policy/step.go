package policy

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"domicile/api"
	"domicile/regions"
)

// ReasonStale is why a policy that nobody renewed lets nothing cross a border.
const ReasonStale = "D404_POLICY_STALE"

// revision is what people and acks call a generation.
func revision(serial int64, step int, digest string) string {
	short := digest[:min(len(digest), 8)]
	if step == 0 {
		return fmt.Sprintf("%d-%s", serial, short)
	}
	return fmt.Sprintf("%d.%d-%s", serial, step, short)
}

// stepOf is the step in a revision; 0 for one that says none.
func stepOf(revision string) int {
	number, _, _ := strings.Cut(revision, "-")
	_, text, _ := strings.Cut(number, ".")
	step, err := strconv.Atoi(text)
	if err != nil {
		return 0
	}
	return step
}

// Fenced is the generation as one under which judgements of older ones are not taken from
// other regions any more.
func (g *Generation) Fenced() *Generation {
	next := *g
	next.floor = g.Serial
	return &next
}

// Lapsed is the generation, one step further, as it decides when its time is over: nothing
// crosses a border any more, and everything else is as it was. What is refused so waits,
// and is judged anew under the policy that comes next. f is the federation it was judged
// for, until is for people.
func (g *Generation) Lapsed(f *regions.Federation, until string) *Generation {
	next := *g
	next.Step++
	next.lapsed = true
	next.Revision = revision(g.Serial, next.Step, g.Digest)
	next.table = make([]*Decision, len(g.table))
	hint := ReasonStale + ": the policy was valid until " + until + ", and nothing crosses a border until one that is valid is activated"
	lapse := lapse{federation: f, known: map[*Decision]map[string]*Decision{}, hint: hint, revision: next.Revision}
	for i, d := range g.table {
		if d == nil {
			continue
		}
		c, _ := g.layout.cell(uint32(i))
		next.table[i] = lapse.settle(g.question(c), d)
	}
	next.refused = newRefusals(&next)
	return &next
}

// HasLapsed reports whether the generation's time is over.
func (g *Generation) HasLapsed() bool { return g.lapsed }

// lapse turns decisions into those of a policy whose time is over.
type lapse struct {
	federation *regions.Federation
	known      map[*Decision]map[string]*Decision // one copy of each; by where it was asked
	hint       string
	revision   string
}

// settle is the decision of one question. A refusal stays as it is, under its own
// revision.
func (l *lapse) settle(q Question, d *Decision) *Decision {
	if !d.Allow || q.Point != Admit && !l.crosses(q) {
		return d
	}
	origin := q.Origin
	if known := l.known[d][origin+" "+q.Topic+" "+q.Point.String()]; known != nil {
		return known
	}
	out := l.refusal(q)
	if q.Point == Admit {
		out = l.admit(q, d)
	}
	if l.known[d] == nil {
		l.known[d] = map[string]*Decision{}
	}
	l.known[d][origin+" "+q.Topic+" "+q.Point.String()] = out
	return out
}

func (l *lapse) refusal(q Question) *Decision {
	region := q.Target
	if q.Point == Admit {
		region = q.Origin
	}
	return &Decision{Code: api.PolicyUnavailable, Reasons: []Reason{{Code: ReasonStale, Text: l.hint}},
		err: &api.Error{Code: api.PolicyUnavailable, Op: q.Point.String(), Topic: q.Topic, Region: region, Hint: l.hint, Revision: l.revision, Reason: ReasonStale}}
}

// crosses reports whether an allow would let something out of one legal area into
// another. What is not known to stay in one crosses.
func (l *lapse) crosses(q Question) bool {
	switch q.Point {
	case MirrorEgress, MirrorIngress:
		return !l.same(q.Origin, q.Target)
	case Consume:
		return !l.same(q.Place, q.Target)
	case Transit:
		return !l.staysWith(q, q.Target)
	}
	return false
}

// same reports whether two regions lie in one boundary; a region in none is by itself.
func (l *lapse) same(a, b string) bool {
	return a == b && a != None || slices.Contains(l.federation.Neighbours(a), b)
}

// staysWith reports whether a record that leaves a region goes to one of the same
// boundary: a resident one goes to its own boundary, a global one to its topic's home.
func (l *lapse) staysWith(q Question, region string) bool {
	if residency := residencyOf(q.Tags); residency != regions.GlobalResidency {
		return l.federation.MayRest(residency, region)
	}
	t, ok := l.federation.Topic(q.Topic)
	return ok && t.Writes == regions.WritesHome && l.same(t.Home, region)
}

// admit keeps a record in the boundary in which it was published.
func (l *lapse) admit(q Question, d *Decision) *Decision {
	out := *d
	out.Regions = slices.DeleteFunc(slices.Clone(d.Regions), func(r string) bool { return !l.same(q.Origin, r) })
	t, known := l.federation.Topic(q.Topic)
	goes := q.Origin // to which log
	switch {
	case known && t.Writes == regions.WritesHome:
		goes = t.Home
	case known && (!slices.Contains(t.Regions, q.Origin) || !slices.Contains(d.Regions, q.Origin)):
		goes = d.Destination
	}
	if !slices.Contains(out.Regions, goes) {
		return l.refusal(q)
	}
	if !slices.Contains(out.Regions, out.Destination) {
		out.Destination = ""
	}
	return &out
}
