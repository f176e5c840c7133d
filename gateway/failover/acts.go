package failover

import (
	"context"

	"domicile/api"
	"domicile/regions/approval"
	"domicile/regions/placement"
)

// Approve hands one person's signed consent to the plan of a move under way to the
// authority. Whoever brings it needs no role: the statement is what counts.
func (s *Service) Approve(ctx context.Context, id api.LogID, text, reason string, dryRun bool) (placement.Log, error) {
	l, err := s.moving(id)
	if err != nil {
		return l, err
	}
	signed, err := approval.Parse(text)
	if err != nil {
		return l, err
	}
	c, err := s.Verifier.Verify(signed, l.Op.Plan, rolesFor(l.Op.Kind)...)
	switch {
	case err != nil:
		return l, err
	case c.Name == l.Op.Actor:
		return l, &api.Error{Code: api.PermissionDenied, Op: "approve move", Field: "operator", Value: c.Name, Hint: "whoever asks for a move cannot approve it too"}
	case dryRun:
		return l, nil
	}
	if err := checkReason(reason); err != nil {
		return l, err
	}
	return s.act(ctx, Act{Name: "approve", Reason: reason, Log: id, Plan: l.Op.Plan}, func(ctx context.Context) (placement.Result, error) {
		return s.approve(ctx, &l, l.Op.ID, l.Op.Plan, consent{c, text})
	})
}

// Abort ends a move that is not decided yet. It ends the epoch as well: the home opens the
// next one.
func (s *Service) Abort(ctx context.Context, who string, id api.LogID, plan, reason string, dryRun bool) (placement.Log, error) {
	l, err := s.moving(id)
	switch {
	case err != nil:
		return l, err
	case l.Op.Step == placement.Flipped:
		return l, &api.Error{Code: api.PlacementRefused, Op: "abort move", Topic: id.Topic, Field: "rule", Value: placement.RuleNoReopen,
			Hint: "the new home is decided; begin a new move to leave it"}
	case plan != l.Op.Plan && (plan != "" || !dryRun):
		return l, &api.Error{Code: api.Conflict, Op: "abort move", Topic: id.Topic, Field: "plan", Value: l.Op.Plan, Hint: "the move under way follows this plan: name it"}
	case dryRun:
		return l, nil
	}
	if err := s.may(who, reason, approval.Operator, approval.Incident); err != nil {
		return l, err
	}
	return s.act(ctx, Act{Name: "abort", Reason: reason, Log: id, Plan: plan}, func(ctx context.Context) (placement.Result, error) {
		c := s.command(placement.Abort, "abort/"+l.Op.ID, &l, who, reason)
		c.Op, c.Plan = l.Op.ID, plan
		return s.Placements.Submit(ctx, c)
	})
}

// Resolve says which of two claims to a log stands. plan is what a dry run gave: it names
// both claims and the winner.
func (s *Service) Resolve(ctx context.Context, who string, id api.LogID, winner api.Epoch, home, plan, reason string, dryRun bool) (l placement.Log, want string, err error) {
	if l, err = s.find(id); err != nil {
		return l, "", err
	}
	if l.Status != placement.Contested || l.Rival == nil {
		return l, "", &api.Error{Code: api.Conflict, Op: "resolve contest", Topic: id.Topic, Field: "status", Value: string(l.Status), Hint: "nobody else claims the log"}
	}
	if (winner != l.Epoch || home != l.Home) && (winner != l.Rival.Epoch || home != l.Rival.Home) {
		return l, "", &api.Error{Code: api.BadRequest, Op: "resolve contest", Topic: id.Topic, Field: "winner", Value: winner.String(),
			Hint: l.Home + " claims it by " + l.Epoch.String() + ", " + l.Rival.Home + " by " + l.Rival.Epoch.String() + ": name one of the two"}
	}
	want = mark(l.Incarnation, l.Epoch.String(), l.Home, l.Rival.Epoch.String(), l.Rival.Home, winner.String(), home)
	if plan != want && (plan != "" || !dryRun) {
		return l, want, &api.Error{Code: api.Conflict, Op: "resolve contest", Topic: id.Topic, Field: "plan", Value: plan, Hint: "run it with --dry-run, look at both claims, and name the plan that it prints"}
	}
	if dryRun {
		return l, want, nil
	}
	if err := s.may(who, reason, approval.Incident); err != nil {
		return l, want, err
	}
	l, err = s.act(ctx, Act{Name: "resolve", Reason: reason, Log: id, Plan: plan, Forced: true}, func(ctx context.Context) (placement.Result, error) {
		c := s.command(placement.Resolve, "resolve/"+plan, &l, who, reason)
		c.Plan, c.Winner, c.Home = plan, winner, home
		return s.Placements.Submit(ctx, c)
	})
	return l, want, err
}

func (s *Service) may(who, reason string, roles ...string) error {
	if err := checkReason(reason); err != nil {
		return err
	}
	return s.Verifier.Rules.Has(who, roles...)
}

// moving is the placement of a log with a move under way.
func (s *Service) moving(id api.LogID) (placement.Log, error) {
	l, err := s.find(id)
	if err == nil && l.Op == nil {
		err = &api.Error{Code: api.Conflict, Op: "find move", Topic: id.Topic, Field: "status", Value: string(l.Status), Hint: "no move of the log is under way"}
	}
	return l, err
}

// act does something at the authority between two lines of the region's audit, and says how
// the log stands then.
func (s *Service) act(ctx context.Context, a Act, do func(context.Context) (placement.Result, error)) (placement.Log, error) {
	done, err := s.Audit(ctx, a)
	if err != nil {
		return placement.Log{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, s.Pace.Of(submitWithin))
	defer cancel()
	r, err := do(ctx)
	if done(err); err != nil {
		l, _ := s.Placements.Log(a.Log)
		return l, err
	}
	return s.caughtUp(ctx, a.Log, r), nil
}

// caughtUp is the log once this node's copy of the placement has what came of a command, and
// as the node has it if that does not come before ctx ends.
func (s *Service) caughtUp(ctx context.Context, id api.LogID, r placement.Result) placement.Log {
	for {
		all, changed := s.Placements.Placements()
		l := all[id]
		if d := l.Epoch.Compare(r.Epoch); d > 0 || d == 0 && l.Status == r.Status {
			return l
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return l
		}
	}
}

// Approved refuses a move under way to a region that this node's own manifest does not name,
// and one whose approvals do not hold, for exactly this move, by its own trust and roles. Home
// and target ask it before they act, whatever the authority says.
func (s *Service) Approved(id api.LogID, l placement.Log) error {
	op := l.Op
	if op == nil {
		return nil
	}
	if err := Named(s.Federation, id, op.Target); err != nil {
		return err
	}
	_, need := l.Approved()
	if need == 0 {
		return nil
	}
	if err := bound(op.Plan, l.Binding()); err != nil {
		return err
	}
	var signed []approval.Signed
	var why []string
	for _, a := range op.Approvals {
		one, err := approval.Parse(a.Signed)
		if err != nil {
			why = append(why, a.Actor+": "+err.Error())
			continue
		}
		signed = append(signed, one)
	}
	people, refused := s.Verifier.People(signed, op.Plan, op.Actor, rolesFor(op.Kind)...)
	for _, err := range refused {
		why = append(why, err.Error())
	}
	if len(people) < need {
		return short(id, len(people), need, rolesFor(op.Kind), why)
	}
	return nil
}
