package policy

import (
	"slices"
	"sync/atomic"

	"domicile/api"
	"domicile/regions"
)

// Pass is the right to work with one generation until Leave. Its methods are safe
// for concurrent use. Every refusal is an *api.Error with the revision and, in Hint,
// the rule; it is shared and must not be changed, and holds nothing of the record.
type Pass struct {
	gate *Gate
	held *held
	left atomic.Bool
}

// Leave gives the generation back. Calling it again does nothing.
func (p *Pass) Leave() {
	if !p.left.Swap(true) {
		p.held.leave()
	}
}

// Stale reports whether another generation is active by now: what this pass judged
// and has not handed over is to be judged again.
func (p *Pass) Stale() bool { return p.gate.current.Load() != p.held }

// Generation is the pinned generation, nil if no policy was active.
func (p *Pass) Generation() *Generation { return p.held.gen }

// Serial is the generation's serial, 0 if no policy was active.
func (p *Pass) Serial() int64 {
	if p.held.gen == nil {
		return 0
	}
	return p.held.gen.Serial
}

// Revision is the generation's revision, "" if no policy was active.
func (p *Pass) Revision() string {
	if p.held.gen == nil {
		return ""
	}
	return p.held.gen.Revision
}

// Behind reports whether the other side of a link judged by a newer policy than this one:
// what is denied here may be allowed once this region has it too.
func (p *Pass) Behind(serial int64, revision string) bool {
	if ours := p.Serial(); ours != serial {
		return ours < serial
	}
	return p.held.gen != nil && p.held.gen.Step < stepOf(revision)
}

// TooOld reports whether a judgement of another region, under a policy of this serial, is
// older than this region still takes: it is asked for anew.
func (p *Pass) TooOld(serial int64) bool { return p.held.gen != nil && serial < p.held.gen.floor }

// Admit asks where a record that was published in region origin may rest. It fails
// with a vocabulary error, ResidencyDenied or PolicyUnavailable.
func (p *Pass) Admit(r *api.Record, who regions.Principal, origin string) (Admission, error) {
	a := ask{point: Admit, record: r, who: &who, origin: origin}
	d, err := p.decide(&a)
	if err != nil {
		return Admission{}, err
	}
	out := Admission{Regions: d.Regions, Destination: d.Destination, Revision: p.held.gen.Revision}
	if p.skipFloor() {
		return out, nil
	}
	outside := func(region string) bool { return !p.gate.federation.MayRest(a.residency, region) }
	if slices.ContainsFunc(out.Regions, outside) {
		out.Regions = slices.DeleteFunc(slices.Clone(out.Regions), outside)
	}
	if len(out.Regions) == 0 || out.Destination != "" && !out.MayRest(out.Destination) {
		return Admission{}, a.floorRefusal(p)
	}
	return out, nil
}

// Transit asks whether a record published here may pass through this region's
// memory to where it may rest. It fails with a vocabulary error, TransitDenied or
// PolicyUnavailable.
func (p *Pass) Transit(r *api.Record, who regions.Principal) error {
	return p.Passed(r, who, p.gate.self)
}

// Egress asks, at region origin, whether a copy may leave for target. It fails with
// a vocabulary error, ResidencyDenied or PolicyUnavailable.
func (p *Pass) Egress(r *api.Record, origin, target string) error {
	if h := p.gate.hooks.Load(); h != nil && h.SkipEgress {
		return nil
	}
	return p.mirror(&ask{point: MirrorEgress, record: r, origin: origin, target: target})
}

// Ingress asks, at region target, whether a copy that came from origin may rest
// there. It fails with a vocabulary error, ResidencyDenied or PolicyUnavailable.
func (p *Pass) Ingress(r *api.Record, origin, target string) error {
	if h := p.gate.hooks.Load(); h != nil && h.SkipIngress {
		return nil
	}
	return p.mirror(&ask{point: MirrorIngress, record: r, origin: origin, target: target})
}

// Lawful reports whether a record may lie in a region at all, by the floor under the rules.
// Of one that can't be judged it says yes: every other question about it is refused.
func (p *Pass) Lawful(r *api.Record, region string) bool {
	g := p.held.gen
	if g == nil || p.skipFloor() {
		return true
	}
	combo, err := g.words.classify(r.Topic, r.Tags)
	return err != nil || p.gate.federation.MayRest(g.words.combos[combo.id-1].residency, region)
}

// Passed asks whether a record that another region sends may have passed through that region's
// memory. It fails as Transit does.
func (p *Pass) Passed(r *api.Record, who regions.Principal, through string) error {
	_, err := p.decide(&ask{point: Transit, record: r, who: &who, origin: through, target: through})
	return err
}

func (p *Pass) mirror(a *ask) error {
	if _, err := p.decide(a); err != nil {
		return err
	}
	if !p.skipFloor() && !p.gate.federation.MayRest(a.residency, a.target) {
		return a.floorRefusal(p)
	}
	return nil
}

// Consume asks whether a reader in this region may have a record of origin's log. It
// fails with a vocabulary error, ReadDenied or PolicyUnavailable.
func (p *Pass) Consume(r *api.Record, reader regions.Principal, origin string) error {
	a := ask{point: Consume, record: r, who: &reader, origin: origin, target: p.gate.self}
	if _, err := p.decide(&a); err != nil {
		return err
	}
	if p.skipFloor() || a.residency == regions.GlobalResidency {
		return nil
	}
	f := p.gate.federation
	if !f.MayRest(a.residency, reader.Place) || !f.MayRest(a.residency, p.gate.self) {
		return a.floorRefusal(p)
	}
	return nil
}

func (p *Pass) skipFloor() bool {
	h := p.gate.hooks.Load()
	return h != nil && h.SkipFloor
}

// ask is one question on its way to its cell.
type ask struct {
	point          Point
	record         *api.Record
	who            *regions.Principal // nil at the mirror's points
	origin, target string             // "": does not apply
	combo          Combo
	residency      string
}

func (a *ask) floorRefusal(p *Pass) error { return p.held.gen.refused.floor[a.point][a.combo.id-1] }

// decide reduces the question to its cell and looks it up. It fills in a.combo and
// a.residency.
func (p *Pass) decide(a *ask) (*Decision, error) {
	g := p.held.gen
	if g == nil {
		return nil, p.gate.noPolicy
	}
	var err error
	if a.combo, err = g.words.classify(a.record.Topic, a.record.Tags); err != nil {
		return nil, err
	}
	a.residency = g.words.combos[a.combo.id-1].residency
	c, err := a.cell(g)
	if err != nil {
		return nil, err
	}
	if h := p.gate.hooks.Load(); h != nil && h.ForceAllow {
		return p.forced(a), nil
	}
	d := g.Lookup(c)
	if p.held.asked != nil {
		p.held.count(c)
	}
	if !d.Allow {
		return nil, d.err
	}
	return d, nil
}

// cell finds the ids of everything but the combination. Words outside the closed
// sets are refused.
func (a *ask) cell(g *Generation) (Cell, error) {
	c := Cell{serial: g.Serial, combo: a.combo.id, point: a.point}
	var ok bool
	if a.who != nil {
		if c.class, ok = g.words.classes.ids[a.who.Class]; !ok {
			return c, g.refused.class[a.point]
		}
		if c.place, ok = g.words.regions.ids[a.who.Place]; !ok && a.who.Place != "" && a.who.Place != None {
			return c, g.refused.place[a.point]
		}
	}
	if c.origin, ok = g.words.regions.ids[a.origin]; !ok {
		return c, g.refused.region[a.point]
	}
	if c.target, ok = g.words.regions.ids[a.target]; !ok && a.point != Admit {
		return c, g.refused.region[a.point]
	}
	return c, nil
}

// forced is the verdict of rules that allow everything everywhere.
func (p *Pass) forced(a *ask) *Decision {
	d := &Decision{Allow: true, Regions: p.gate.federation.Regions()}
	if floor := p.gate.federation.Floor(a.residency); a.point == Admit && len(floor) > 0 && !slices.Contains(floor, a.origin) {
		d.Destination = floor[0]
	}
	return d
}
