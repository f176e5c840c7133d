package policy

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"domicile/api"
	"domicile/regions"
)

// settler turns verdicts into decisions: it checks their form, lays the floor under
// them and keeps one copy of each.
type settler struct {
	g          *Generation
	federation *regions.Federation
	mu         sync.Mutex
	known      map[string]*Decision
}

// settle checks a verdict. Only a valid one becomes a decision.
func (s *settler) settle(q Question, v Verdict) (*Decision, error) {
	if err := s.checkForm(q, v); err != nil {
		return nil, err
	}
	d := &Decision{Allow: v.Allow, Regions: slices.Clone(v.Regions), Destination: v.Destination, Reasons: slices.Clone(v.Reasons)}
	slices.Sort(d.Regions)
	s.layFloor(q, d)
	if d.Allow {
		if err := s.checkDestination(q, d); err != nil {
			return nil, err
		}
	} else {
		d.Regions, d.Destination = nil, ""
		d.Code = q.Point.denial()
	}
	slices.SortFunc(d.Reasons, func(a, b Reason) int {
		return cmp.Or(cmp.Compare(a.Code, b.Code), cmp.Compare(a.Rule, b.Rule), cmp.Compare(a.Text, b.Text))
	})
	if !d.Allow {
		d.err = refusal(q, s.g.Revision, d.Reasons)
	}
	return s.shared(q, d), nil
}

func (s *settler) checkForm(q Question, v Verdict) error {
	if len(v.Reasons) == 0 {
		return errors.New("the decision gives no reason")
	}
	for i, r := range v.Regions {
		if _, ok := s.federation.Region(r); !ok {
			return fmt.Errorf("the decision names %q, which is no region; %s", r, hintNearest("", r, s.federation.Regions()))
		}
		if slices.Contains(v.Regions[:i], r) {
			return fmt.Errorf("the decision names region %q twice", r)
		}
	}
	if v.Destination != "" && q.Point != Admit {
		return errors.New("only admit has a destination")
	}
	if v.Allow && len(v.Regions) == 0 {
		return errors.New("the decision allows but names no region")
	}
	if v.Allow && q.Point != Admit && !slices.Contains(v.Regions, q.Target) {
		return fmt.Errorf("the decision allows but its regions leave out the target %s", q.Target)
	}
	return nil
}

// layFloor narrows an allow to what the map alone permits. Transit has no floor: it
// is a rule's to permit.
func (s *settler) layFloor(q Question, d *Decision) {
	if !d.Allow || q.Point == Transit {
		return
	}
	residency := residencyOf(q.Tags)
	outside := func(r string) bool { return !s.federation.MayRest(residency, r) }
	narrowed := slices.DeleteFunc(slices.Clone(d.Regions), outside)
	if len(narrowed) < len(d.Regions) {
		d.Regions = narrowed
		d.Reasons = append(d.Reasons, Reason{Code: ReasonBoundary, Text: "a record of residency " + residency + " rests in its boundary only"})
	}
	if q.Point == Admit {
		d.Allow = len(narrowed) > 0
		return
	}
	d.Allow = slices.Contains(narrowed, q.Target)
	if d.Allow && q.Point == Consume && residency != regions.GlobalResidency && outside(q.Place) {
		d.Allow = false
		d.Reasons = append(d.Reasons, Reason{Code: ReasonPlace, Text: "a resident record goes to readers with a place in its boundary only"})
	}
}

func residencyOf(tags []api.Tag) string {
	for _, t := range tags {
		if t.Name == regions.ResidencyTag {
			return t.Value
		}
	}
	return ""
}

// checkDestination: a record that has no log where it was published needs exactly
// one region that takes it. A topic with one log needs none: it goes home.
func (s *settler) checkDestination(q Question, d *Decision) error {
	if q.Point != Admit {
		return nil
	}
	t, ok := s.federation.Topic(q.Topic)
	if !ok || t.Writes == regions.WritesHome {
		return nil
	}
	takes := func(r string) bool { return slices.Contains(d.Regions, r) && slices.Contains(t.Regions, r) }
	if d.Destination != "" && !takes(d.Destination) {
		return fmt.Errorf("destination %q may not keep the record: it is not among %s, or the topic has no log there", d.Destination, strings.Join(d.Regions, ", "))
	}
	if d.Destination == "" && !takes(q.Origin) {
		return fmt.Errorf("the record may not stay in %s and no rule gives its destination: write destination contains \"<region>\" for it", q.Origin)
	}
	return nil
}

// shared returns the one copy of a decision. Refusals carry the topic and region of
// their error, so those belong to what makes two decisions the same.
func (s *settler) shared(q Question, d *Decision) *Decision {
	key := fmt.Sprintf("%v|%q|%q|%q", d.Allow, d.Regions, d.Destination, d.Reasons)
	if d.err != nil {
		key += "|" + string(d.Code) + "|" + d.err.Op + "|" + d.err.Topic + "|" + d.err.Region
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if old, ok := s.known[key]; ok {
		return old
	}
	s.known[key] = d
	return d
}

// refusals are the ready-made errors for what no cell stands for, so that a refusal
// costs no allocation either.
type refusals struct {
	unknown              [points]*Decision
	class, place, region [points]*api.Error
	floor                [points][]*api.Error // by combination
}

func newRefusals(g *Generation) refusals {
	var r refusals
	for p := range Point(points) {
		refuse := func(field, hint string) *api.Error {
			return &api.Error{Code: p.denial(), Op: p.String(), Field: field, Hint: hint, Revision: g.Revision}
		}
		reason := Reason{Code: ReasonUnknown, Text: "a value outside the policy's vocabulary"}
		r.unknown[p] = &Decision{Code: p.denial(), Reasons: []Reason{reason}, err: refuse("", hintOf([]Reason{reason}))}
		r.unknown[p].err.Reason = reason.Code
		r.class[p] = refuse("principal.class", "the principal's class is not in the catalog: "+joinSome(g.words.classes.words))
		r.place[p] = refuse("principal.place", "the principal's place is no region: "+joinSome(g.words.regions.words))
		r.region[p] = refuse("region", "no region of the federation: "+joinSome(g.words.regions.words))
		r.floor[p] = newFloorRefusals(g, p)
	}
	return r
}

func newFloorRefusals(g *Generation, p Point) []*api.Error {
	errs := make([]*api.Error, len(g.words.combos))
	for i, c := range g.words.combos {
		reason := ReasonBoundary
		hint := ReasonBoundary + ": a record of residency " + c.residency + " rests in its boundary only, whatever the policy says"
		if p == Consume {
			reason = ReasonPlace
			hint = ReasonPlace + ": a record of residency " + c.residency + " goes to readers in its boundary only, whatever the policy says"
		}
		errs[i] = &api.Error{Code: p.denial(), Op: p.String(), Topic: c.topic, Hint: hint, Revision: g.Revision, Reason: reason}
	}
	return errs
}
