package policy

import (
	"fmt"
	"slices"
	"strings"

	"domicile/api"
	"domicile/regions"
)

// MayHold reports why a region may not be the home of a log, nil if it may: whether every
// record that routing can put into the log, and every one that is stored in it, may rest
// there, and may go there from where the log's home is now. stored lists the tags of what
// is stored, each as api.TagString. What this policy does not know may not move. The error
// is an *api.Error, HomeOutsideBoundary, with the tags at fault and the rule.
func (g *Generation) MayHold(f *regions.Federation, log api.LogID, home, region string, stored []string) error {
	t, ok := f.Topic(log.Topic)
	origin, known := g.words.regions.ids[home]
	target, there := g.words.regions.ids[region]
	if !ok || !known || !there {
		return outside(g, log.Topic, region, "", "the topic or the region is not in the manifest that this policy was judged for")
	}
	for i, c := range g.words.combos {
		if c.topic != t.Name {
			continue
		}
		combo := uint32(i) + 1
		fits, routed := g.routed(f, t, log.Slot, combo, region)
		if !routed {
			continue
		}
		if fits != nil {
			return outside(g, t.Name, region, c.text(), "the policy lets them rest in "+joinSome(fits.Regions)+" only")
		}
		if err := g.mayGo(f, combo, origin, target); err != nil {
			return err
		}
	}
	for _, text := range stored {
		tags, err := api.ParseTagString(text)
		if err == nil {
			var combo Combo
			if combo, err = g.Classify(t.Name, tags); err == nil {
				err = g.mayGo(f, combo.id, origin, target)
			}
		}
		if err != nil {
			return outside(g, t.Name, region, text, "records with these tags are stored in the log: "+err.Error())
		}
	}
	return nil
}

// routed reports whether routing can put a combination into the slot, and of the decisions
// that do one that does not let it rest in region.
func (g *Generation) routed(f *regions.Federation, t *regions.Topic, slot string, combo uint32, region string) (against *Decision, routed bool) {
	n := g.layout.perCombo(Admit)
	from := g.layout.base[Admit] + (combo-1)*n
	for i := from; i < from+n; i++ {
		d := g.table[i]
		if d == nil || !d.Allow {
			continue
		}
		c, _ := g.layout.cell(i)
		if !RoutedTo(f, t, d.Regions, d.Destination, g.words.regions.word(c.origin), slot) {
			continue
		}
		if routed = true; !slices.Contains(d.Regions, region) {
			return d, true
		}
	}
	return nil, routed
}

// RoutedTo reports whether a record that was published in origin, and that admit lets rest
// in these regions with this destination, may end up in the slot. With within_boundary that
// is any slot of a boundary in which it may rest at all: which log is first is decided by
// what can be reached.
func RoutedTo(f *regions.Federation, t *regions.Topic, rests []string, destination, origin, slot string) bool {
	if t.Writes == regions.WritesHome {
		return slot == api.HomeSlot
	}
	first := destination
	if slices.Contains(rests, origin) && slices.Contains(t.Regions, origin) {
		first = origin
	}
	if first == slot || t.Route != regions.RouteWithinBoundary {
		return first == slot
	}
	return slices.ContainsFunc(f.Neighbours(slot), func(r string) bool { return slices.Contains(rests, r) })
}

// mayGo asks both ends of a crossing, and the map. A log that stays where it is crosses
// nothing.
func (g *Generation) mayGo(f *regions.Federation, combo uint32, origin, target uint8) error {
	c := g.words.combos[combo-1]
	region := g.words.regions.word(target)
	if !f.MayRest(c.residency, region) {
		return outside(g, c.topic, region, c.text(), ReasonBoundary+": a record of residency "+c.residency+" rests in its boundary only")
	}
	if origin == target {
		return nil
	}
	for _, p := range []Point{MirrorEgress, MirrorIngress} {
		d := g.Lookup(Cell{serial: g.Serial, combo: combo, point: p, origin: origin, target: target})
		if !d.Allow || slices.ContainsFunc(d.Reasons, func(r Reason) bool { return r.Code == ReasonObligation }) {
			return outside(g, c.topic, region, c.text(), p.String()+": "+hintOf(d.Reasons))
		}
	}
	return nil
}

func outside(g *Generation, topic, region, tags, why string) error {
	return &api.Error{Code: api.HomeOutsideBoundary, Op: "place log", Topic: topic, Region: region, Field: "tags", Value: tags, Revision: g.Revision,
		Hint: "the log can hold records that may not rest there: " + why}
}

// checkMoves refuses a rule of failover that residency forbids: a log that no region may
// take, and a target that may take none.
func (g *Generation) checkMoves(f *regions.Federation) error {
	for _, name := range f.Topics() {
		if t, _ := f.Topic(name); t.Movable() {
			if err := g.checkTargets(f, t); err != nil {
				return err
			}
		}
	}
	return nil
}

func (g *Generation) checkTargets(f *regions.Federation, t *regions.Topic) error {
	refuse := func(value, hint string) error {
		return &api.Error{Code: api.ConfigInvalid, Op: "check failover", Topic: t.Name, Field: "topics." + t.Name + ".failover.targets", Value: value, Revision: g.Revision, Hint: hint}
	}
	useful := map[string]bool{}
	for _, log := range f.Logs(t) {
		first, _ := f.FirstHome(log)
		var why []string
		free := false
		for _, target := range t.TargetsOf(first) {
			err := g.MayHold(f, log, first, target, nil)
			if err == nil {
				free, useful[target] = true, true
			} else {
				why = append(why, target+": "+reasonOf(err))
			}
		}
		if !free {
			return refuse(log.String(), "no target may hold the log; "+strings.Join(why, "; ")+"; write mode: never, and what people get while its home is lost, or name targets where all of it may rest")
		}
	}
	for _, target := range t.Failover.Targets {
		if !useful[target] {
			return refuse(target, "no log of the topic may rest there: take it out")
		}
	}
	return nil
}

// reasonOf is a refusal of MayHold without its frame.
func reasonOf(err error) string {
	if e, ok := err.(*api.Error); ok {
		return fmt.Sprintf("%s: %s", e.Value, e.Hint)
	}
	return err.Error()
}
