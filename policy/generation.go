package policy

import (
	"context"
	"fmt"
	"iter"
	"runtime"
	"sync"
	"sync/atomic"

	"domicile/api"
	"domicile/regions"
)

// Generation is one activated policy: its vocabulary and the decision of every
// cell. It is immutable and safe for concurrent use.
type Generation struct {
	Serial   int64
	Step     int    // of one serial: higher once time has changed what it decides
	Digest   string // of everything that decides: catalog, rules, kernel, engine
	Revision string // "<serial>-<first 8 of the digest>", "<serial>.<step>-…" after a step

	lapsed   bool   // its time is over
	floor    int64  // a judgement of an older serial than this is not taken from another region
	manifest string // digest of the federation it was judged for
	words    *vocabulary
	layout   layout
	table    []*Decision
	cells    int
	refused  refusals
}

// Judge answers one question by the written rules alone. It must be safe for
// concurrent use and give the same answer every time. An error refuses the load.
type Judge func(ctx context.Context, q Question) (Verdict, error)

// Verdict is what the rules say, before the floor.
type Verdict struct {
	Allow       bool
	Regions     []string
	Destination string
	Reasons     []Reason
}

// Build judges the whole domain of a catalog and returns the generation. digest is
// of everything the judge reads. It refuses a catalog that does not fit the
// federation (ConfigInvalid), a rule of failover that residency forbids (the same), a
// domain above MaxCells, and any verdict that is malformed or an error (PolicyError, naming
// the first such cell: the same one every time). Where a verdict is wider than the record's boundary it is narrowed.
func Build(ctx context.Context, c *Catalog, f *regions.Federation, digest string, judge Judge) (*Generation, error) {
	g, err := empty(c, f, digest)
	if err != nil {
		return nil, err
	}
	if err := g.judgeAll(ctx, f, judge); err != nil {
		return nil, err
	}
	g.refused = newRefusals(g)
	if err := g.checkMoves(f); err != nil {
		return nil, err
	}
	return g, nil
}

// empty is a generation whose table holds no decision yet.
func empty(c *Catalog, f *regions.Federation, digest string) (*Generation, error) {
	if err := c.Check(f); err != nil {
		return nil, err
	}
	g := &Generation{Serial: c.Serial, Step: c.Terms.Step(c.At), Digest: digest, manifest: f.Digest()}
	g.Revision = revision(g.Serial, g.Step, digest)
	g.words = newVocabulary(c, f)
	combos, classes, regionCount := len(g.words.combos), len(c.Classes), len(f.Regions())
	if n := domainSize(uint64(combos), uint64(classes), uint64(regionCount)); n > MaxCells {
		return nil, badCatalog("topics", fmt.Sprintf("%d cells", n), fmt.Sprintf(
			"at most %d: %d combinations × (%d classes × %d places × (2 × %d + %d²) + 2 × %d × %d) for %d regions; fewer combinations per topic helps most",
			MaxCells, combos, classes, regionCount+1, regionCount, regionCount, regionCount, regionCount-1, regionCount))
	}
	g.layout = newLayout(combos, classes, regionCount)
	g.table = make([]*Decision, g.layout.size())
	return g, nil
}

// judgeAll fills the table. It leaves a core to the records that are judged
// meanwhile under the active generation.
func (g *Generation) judgeAll(ctx context.Context, f *regions.Federation, judge Judge) error {
	const chunk = 64
	s := settler{g: g, federation: f, known: map[string]*Decision{}}
	size := g.layout.size()
	var next atomic.Uint32
	var firstBad atomic.Uint32
	firstBad.Store(size)
	var errs sync.Map // index → error
	var workers sync.WaitGroup
	for range max(1, runtime.GOMAXPROCS(0)-1) {
		workers.Go(func() {
			for from := next.Add(chunk) - chunk; from < size; from = next.Add(chunk) - chunk {
				for i := from; i < min(from+chunk, size) && i < firstBad.Load(); i++ {
					if err := g.judgeOne(ctx, i, &s, judge); err != nil {
						errs.Store(i, err)
						lower(&firstBad, i)
					}
				}
			}
		})
	}
	workers.Wait()
	if err := ctx.Err(); err != nil {
		return &api.Error{Code: api.PolicyError, Op: "judge the domain", Err: err, Hint: "loading ran out of time"}
	}
	if err, bad := errs.Load(firstBad.Load()); bad {
		return err.(error)
	}
	for _, d := range g.table {
		if d != nil {
			g.cells++
		}
	}
	return nil
}

func lower(v *atomic.Uint32, to uint32) {
	for old := v.Load(); to < old && !v.CompareAndSwap(old, to); old = v.Load() {
	}
}

func (g *Generation) judgeOne(ctx context.Context, i uint32, s *settler, judge Judge) error {
	cell, ok := g.layout.cell(i)
	if !ok {
		return nil
	}
	q := g.question(cell)
	v, err := judge(ctx, q)
	if err == nil {
		g.table[i], err = s.settle(q, v)
	}
	if err != nil {
		return &api.Error{Code: api.PolicyError, Op: "judge", Field: q.String(), Err: err,
			Hint: "every question of the domain needs a valid answer before a policy is activated"}
	}
	return nil
}

// Again answers as the generation does: a Judge for one of the same catalog, rules and
// federation under another serial.
func (g *Generation) Again(_ context.Context, q Question) (Verdict, error) {
	d, err := g.Ask(q)
	if err != nil {
		return Verdict{}, err
	}
	return Verdict{Allow: d.Allow, Regions: d.Regions, Destination: d.Destination, Reasons: d.Reasons}, nil
}

// Cells is the number of questions that were judged.
func (g *Generation) Cells() int { return g.cells }

// Classes lists the catalog's principal classes, sorted. It must not be changed.
func (g *Generation) Classes() []string { return g.words.classes.words }

// Classify finds the combination of a record's tags in the topic's vocabulary, byte
// by byte. It fails with UnknownTopic, UnknownTag, MissingTag, BadTag or
// CombinationNotAllowed, each with the way out.
func (g *Generation) Classify(topic string, tags []api.Tag) (Combo, error) {
	return g.words.classify(topic, tags)
}

// Residency is the residency of a combination, "" for one that is not of this
// generation.
func (g *Generation) Residency(c Combo) string {
	if c.id == 0 || int(c.id) > len(g.words.combos) {
		return ""
	}
	return g.words.combos[c.id-1].residency
}

// Lookup is the decision of a cell. It never returns nil: what is no cell of this
// generation gets a refusal.
func (g *Generation) Lookup(c Cell) *Decision {
	if i, ok := g.layout.index(c); ok && c.serial == g.Serial {
		if d := g.table[i]; d != nil {
			return d
		}
	}
	return g.refused.unknown[int(c.point)%points]
}

// Ask is the decision of a question in words, for explanations. Words outside the
// vocabulary fail as Classify does, or with BadRequest.
func (g *Generation) Ask(q Question) (*Decision, error) {
	c, err := g.Cell(q)
	if err != nil {
		return nil, err
	}
	return g.Lookup(c), nil
}

// Cell reduces a question to its cell. Tags may be in any order and leave out what
// is None; fields that do not apply may be "" or None.
func (g *Generation) Cell(q Question) (Cell, error) {
	tags := make([]api.Tag, 0, len(q.Tags))
	for _, t := range q.Tags {
		if t.Value != None {
			tags = append(tags, t)
		}
	}
	combo, err := g.Classify(q.Topic, tags)
	if err != nil {
		return Cell{}, err
	}
	c := Cell{serial: g.Serial, combo: combo.id, point: q.Point}
	for _, f := range []struct {
		id          *uint8
		set         numbered
		field, word string
	}{
		{&c.class, g.words.classes, "class", q.Class}, {&c.place, g.words.regions, "place", q.Place},
		{&c.origin, g.words.regions, "origin", q.Origin}, {&c.target, g.words.regions, "target", q.Target},
	} {
		if f.word == "" || f.word == None {
			continue
		}
		id, ok := f.set.ids[f.word]
		if !ok {
			return Cell{}, &api.Error{Code: api.BadRequest, Op: "ask policy", Field: f.field, Value: f.word, Hint: hintNearest("", f.word, f.set.words)}
		}
		*f.id = id
	}
	if c.point == Transit && c.origin == 0 {
		c.origin = c.target
	}
	if i, ok := g.layout.index(c); !ok || g.table[i] == nil {
		return Cell{}, &api.Error{Code: api.BadRequest, Op: "ask policy", Field: "point", Value: q.Point.String(),
			Hint: "admit: class, place, origin; transit: class, place, target; mirror: origin and another target; consume: class, place, origin, target"}
	}
	return c, nil
}

// Question puts a cell of this generation into words. The answer for any other cell
// is the zero Question.
func (g *Generation) Question(c Cell) Question {
	if _, ok := g.layout.index(c); !ok || c.serial != g.Serial {
		return Question{}
	}
	return g.question(c)
}

func (g *Generation) question(c Cell) Question {
	combo := g.words.combos[c.combo-1]
	return Question{
		Point: c.point, Topic: combo.topic, Tags: combo.tags,
		Class: g.words.classes.word(c.class), Place: g.words.regions.word(c.place),
		Origin: g.words.regions.word(c.origin), Target: g.words.regions.word(c.target),
	}
}

// All walks the whole domain with its decisions, always in the same order.
func (g *Generation) All() iter.Seq2[Question, *Decision] {
	return func(yield func(Question, *Decision) bool) {
		for i, d := range g.table {
			if d == nil {
				continue
			}
			c, _ := g.layout.cell(uint32(i))
			if !yield(g.question(c), d) {
				return
			}
		}
	}
}
