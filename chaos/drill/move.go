package drill

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"domicile/api"
	pb "domicile/api/domicile/v1"
	"domicile/api/wire"
	"domicile/chaos/drill/history"
	"domicile/regions/placement"
)

// moved is a log that the drill has moved and has to bring back.
type moved struct {
	log      api.LogID
	from, to string
}

// exercise moves what the plan names, by force, to where it says.
func (r *run) exercise(ctx context.Context) error {
	var all error
	for i := range r.Plan.Exercise {
		x := &r.Plan.Exercise[i]
		p, err := r.move(ctx, x.To, moveOf(r.plan, x), x.Move, false)
		if p != nil {
			r.moved = append(r.moved, moved{wire.LogFromProto(p.GetLog()), p.GetHome(), p.GetTarget()})
		}
		all = errors.Join(all, err)
	}
	return all
}

// failback settles what the moves left behind and brings the logs back, without loss.
func (r *run) failback(ctx context.Context) error {
	var all error
	for _, m := range r.moved {
		q := &pb.MoveRequest{Topic: m.log.Topic, Slot: m.log.Slot, Kind: string(placement.Planned), Target: m.from}
		for {
			plan := ""
			err := r.republish(ctx, m)
			if err == nil {
				plan, err = r.consented(ctx, m.from, q)
			}
			if err == nil {
				_, err = r.move(ctx, m.from, q, plan, true)
			}
			if err == nil {
				break
			}
			if pass(ctx, watchEvery) != nil {
				all = errors.Join(all, fmt.Errorf("%s stays in %s: %w", m.log, m.to, err))
				break
			}
		}
		all = errors.Join(all, r.losses(ctx, m))
	}
	return all
}

// republish has the old home publish anew what its epoch left void.
func (r *run) republish(ctx context.Context, m moved) error {
	n, err := r.seat(ctx, m.from)
	if err != nil {
		return err
	}
	c := n.Admin
	found, err := c.Divergences(ctx, &pb.ListDivergencesRequest{Topic: m.log.Topic})
	if err != nil {
		return err
	}
	for _, d := range found.GetDivergences() {
		if wire.LogFromProto(d.GetLog()) != m.log || d.GetSettled() != "" {
			continue
		}
		q := &pb.RepublishDivergenceRequest{Topic: m.log.Topic, Slot: m.log.Slot, Epoch: d.GetEpoch(), Hash: d.GetHash(), Reason: "drill " + r.ID}
		if err := c.RepublishDivergence(ctx, q, func(*pb.RepublishDivergenceResponse) error { return nil }); err != nil {
			return err
		}
	}
	return nil
}

// move plans a move, begins it and follows it to its end. The plan is nil if nothing was
// begun. approved is the id of the plan that people have approved; "": nobody had to.
func (r *run) move(ctx context.Context, target string, q *pb.MoveRequest, approved string, back bool) (*pb.MovePlan, error) {
	n, err := r.seat(ctx, target)
	if err != nil {
		return nil, err
	}
	p, err := n.Admin.PlanMove(ctx, q)
	for err == nil && leaderless(p) && pass(ctx, watchEvery) == nil {
		p, err = n.Admin.PlanMove(ctx, q)
	}
	if err != nil {
		return nil, err
	}
	note := func(step, text string, l *pb.MoveState) {
		e := wire.EpochFromProto(l.GetEpoch())
		if l == nil {
			e = wire.EpochFromProto(p.GetEpoch())
		}
		m := &history.Move{Topic: q.GetTopic(), Log: wire.LogFromProto(p.GetLog()).String(), Kind: q.GetKind(), Step: step, Back: back, Home: p.GetHome(), To: p.GetTarget(),
			Epoch: e.String(), Plan: p.GetId(), Proof: l.GetProof(), Approved: l.GetApproved(), Text: text}
		if cut := l.GetCut(); step == history.MoveCut {
			m.Cut = &cut
		}
		r.note(history.Event{Region: n.Region, Move: m})
	}
	if p.GetId() == "" {
		why := refusal(p)
		note(history.MoveRefused, why, nil)
		return nil, errors.New(why)
	}
	p.Id = cmp.Or(approved, p.GetId())
	note(history.MoveAsked, "", nil)
	if _, err = n.Admin.StartMove(ctx, &pb.StartMoveRequest{Move: q, Plan: p.GetId(), Reason: "drill " + r.ID, Approvals: r.approvals()}); err != nil {
		note(history.MoveRefused, err.Error(), nil)
		return nil, err
	}
	return p, r.follow(ctx, target, p, note)
}

// leaderless reports whether a move is refused for want of the authority, which passes: the
// cut may have taken its leader, and the others elect one.
func leaderless(p *pb.MovePlan) bool {
	return p.GetId() == "" && slices.ContainsFunc(p.GetChecks(), func(c *pb.MoveCheck) bool { return c.GetState() == "refused" && c.GetRule() == "authority" })
}

func refusal(p *pb.MovePlan) string {
	for _, c := range p.GetChecks() {
		if c.GetState() == "refused" {
			return c.GetRule() + ": " + c.GetText()
		}
	}
	return "no rule says why"
}

// steps are the history's words for the authority's.
var steps = map[string]string{string(placement.Begun): history.MoveDecided, string(placement.Proven): history.MoveFenced, string(placement.Cut): history.MoveCut}

var errMoved = errors.New("the move has ended")

// follow notes each step of a move until its log is open at the target. Whoever has the
// target's seat tells it: another one when that moves.
func (r *run) follow(ctx context.Context, target string, p *pb.MovePlan, note func(step, text string, l *pb.MoveState)) error {
	log, last := p.GetLog(), ""
	var outcome error
	seen := func(m *pb.MoveStates) error {
		for _, l := range m.GetLogs() {
			if l.GetPlan() == p.GetId() {
				if step := steps[l.GetStep()]; step != "" && step != last {
					last = step
					note(step, "", l)
				}
				continue
			}
			switch {
			case wire.EpochFromProto(l.GetEpoch()) == wire.EpochFromProto(p.GetEpoch()): // older than the move
			case l.GetHome() == p.GetTarget() && l.GetStatus() == string(placement.Active):
				note(history.MoveOpen, "", l)
				return errMoved
			case l.GetHome() != p.GetTarget():
				note(history.MoveAborted, l.GetReason(), l)
				outcome = errors.New("the move has ended and the log stays: " + l.GetReason())
				return errMoved
			}
		}
		return nil
	}
	for {
		n, err := r.seat(ctx, target)
		if err == nil {
			err = n.Admin.WatchMoves(ctx, &pb.WatchMovesRequest{Topic: log.GetTopic(), Slot: log.GetSlot(), Watch: true}, seen)
		}
		if errors.Is(err, errMoved) {
			return outcome
		}
		if pass(ctx, watchEvery/4) != nil {
			return fmt.Errorf("the end of the move of %s was not seen: %w", log.GetTopic(), err)
		}
	}
}
