package failover

import (
	"context"
	"slices"
	"time"

	"domicile/api"
	"domicile/regions/placement"
)

// Verdict is in one word why a log may fail over to a region or not.
type Verdict string

// The verdicts. All but Allowed refuse.
const (
	Allowed   Verdict = "allowed"
	Residency Verdict = "residency" // a record of the log may not rest there
	Never     Verdict = "never"     // the topic is declared not to move
	NoTarget  Verdict = "target"    // the topic does not name the region
	TooFar    Verdict = "lag"       // more would be lost than the topic accepts
	Unknown   Verdict = "unknown"   // nobody knows how much would be lost
	NoCouncil Verdict = "authority" // the placement authority is out of reach
	ByRule    Verdict = "rule"      // another rule
)

// Permission is whether a log may fail over to a region now: what a forced move within the
// topic's own limits would be told.
type Permission struct {
	Log       api.LogID
	Home      string
	Epoch     api.Epoch
	Target    string
	Movable   bool
	Verdict   Verdict
	Rule      string // that refuses
	Code      api.Code
	Text      string
	RPO       time.Duration // declared; 0: none is
	Loss      placement.Loss
	Approvals int
}

// Permit asks whether a log that may move may fail over to a region, and begins nothing.
func (s *Service) Permit(ctx context.Context, id api.LogID, target string) (Permission, error) {
	l, err := s.find(id)
	if err != nil {
		return Permission{}, err
	}
	rpo := l.Terms.RPO
	p, err := s.Plan(ctx, Request{Log: id, Kind: placement.Forced, Target: target, Accept: placement.Loss{Span: &rpo}, Divergent: l.Tenure().Isolation == placement.Accept})
	if err != nil {
		return Permission{}, err
	}
	return permission(&p), nil
}

// permission is what a forced plan says in one word. It is a pure function.
func permission(p *Plan) Permission {
	out := Permission{Log: p.Request.Log, Home: p.Log.Home, Epoch: p.Log.Epoch, Target: p.Target, Movable: true, RPO: p.Log.Terms.RPO, Verdict: Allowed, Loss: p.Loss, Approvals: p.Needs()}
	i := slices.IndexFunc(p.Checks, func(c Check) bool { return c.State == Refused })
	if i < 0 {
		return out
	}
	c := p.Checks[i]
	out.Rule, out.Code, out.Text = c.Rule, c.Code, c.Text
	t := p.Log.Terms
	switch {
	case c.Rule == placement.RulePinned:
		out.Verdict = Never
	case c.Rule == placement.RuleBoundary && slices.Contains(t.Allowed, p.Target) && !slices.Contains(t.Targets, p.Target):
		out.Verdict = NoTarget
	case c.Rule == placement.RuleBoundary:
		out.Verdict = Residency
	case c.Rule == Authority:
		out.Verdict = NoCouncil
	case c.Rule == placement.RuleUnknown:
		out.Verdict = Unknown
	case c.Rule == placement.RuleCutFirst:
		out.Verdict = TooFar
	default:
		out.Verdict = ByRule
	}
	return out
}

// Pinned is the permission of a log that never moves. denied is why the policy would not
// let the region hold it; nil: it would.
func Pinned(id api.LogID, home string, epoch api.Epoch, target string, denied error) Permission {
	out := Permission{Log: id, Home: home, Epoch: epoch, Target: target, Verdict: Never, Rule: placement.RulePinned, Code: api.PlacementRefused, Text: "the topic says failover: never"}
	if denied != nil {
		out.Verdict, out.Rule, out.Code, out.Text = Residency, placement.RuleBoundary, api.HomeOutsideBoundary, reason(denied)
	}
	return out
}
