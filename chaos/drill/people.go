package drill

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"domicile/api"
	"domicile/api/client"
	pb "domicile/api/domicile/v1"
	"domicile/api/wire"
	"domicile/chaos/drill/history"
	"domicile/regions/approval"
	"domicile/regions/placement"
)

// Move adds a log that is moved for real. What could only be asked of it while it is away is
// not expected any more.
func (p *Plan) Move(topic, log, to string) {
	p.Exercise = append(p.Exercise, Exercise{Topic: topic, Log: log, To: to})
	p.Expect = slices.DeleteFunc(p.Expect, func(e Expect) bool {
		return e.Topic == topic && !slices.Contains([]string{history.Before, history.AtCut, history.AfterHeal}, e.At)
	})
}

// PlanMoves asks the target of each log that is exercised what its move would be. Where
// people have to approve it, the id of that plan is written into p: they sign it before the
// drill begins. What a rule refuses now would be refused in mid-cut too, and is an error.
func PlanMoves(ctx context.Context, f *Federation, p *Plan) error {
	if err := f.exercisable(p); err != nil {
		return err
	}
	resolved := f.resolve(p, "")
	for i := range p.Exercise {
		x := &p.Exercise[i]
		m, err := f.planMove(ctx, resolved, x)
		if err != nil {
			return err
		}
		if m.GetApprovals() > 0 {
			x.Move = m.GetId()
		}
	}
	return nil
}

// planMove asks a target for the plan of a move to it.
func (f *Federation) planMove(ctx context.Context, p *history.Plan, x *Exercise) (*pb.MovePlan, error) {
	n, ok := f.Nodes[x.To]
	if !ok {
		return nil, &api.Error{Code: api.UnknownRegion, Op: "plan move", Region: x.To, Hint: "no context reaches it"}
	}
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	n, err := seated(ctx, n)
	if err != nil {
		return nil, err
	}
	m, err := n.Admin.PlanMove(ctx, moveOf(p, x))
	if err == nil && m.GetId() == "" {
		err = &api.Error{Code: api.PlacementRefused, Op: "plan move", Topic: x.Topic, Region: x.To, Field: "exercise", Hint: refusal(m)}
	}
	return m, err
}

// moveOf is what a target is asked for an exercise: a move by force, within the RPO that the
// topic declares.
func moveOf(p *history.Plan, x *Exercise) *pb.MoveRequest {
	rpo, divergent := int64(0), false
	for _, t := range p.Topics {
		if t.Name == x.Topic {
			rpo, divergent = int64(t.RPO), t.Isolation == string(placement.Accept)
		}
	}
	return &pb.MoveRequest{Topic: x.Topic, Slot: x.Log, Kind: string(placement.Forced), Target: x.To, AcceptSpanNano: &rpo, AcceptDivergence: divergent}
}

// movable asks each target whether it would begin its move: by exactly the plan that people
// have approved, which must not end before the move begins.
func (r *run) movable(ctx context.Context) error {
	for i := range r.Plan.Exercise {
		x := &r.Plan.Exercise[i]
		m, err := r.found.planMove(ctx, r.plan, x)
		if err != nil {
			return err
		}
		refuse := func(hint string) error {
			return &api.Error{Code: api.PermissionDenied, Op: "preflight", Topic: x.Topic, Region: x.To, Field: fmt.Sprintf("exercise[%d].move", i), Value: x.Move, Hint: hint}
		}
		switch {
		case m.GetApprovals() == 0:
			continue
		case x.Move == "":
			return refuse("people have to approve this move: drill plan isolate --exercise writes the id that they sign")
		}
		asked, cancel := context.WithTimeout(ctx, answerWithin)
		s, err := atSeat(asked, r, x.To, func(c *client.Client) (*pb.StartMoveResponse, error) {
			return c.StartMove(asked, &pb.StartMoveRequest{Move: moveOf(r.plan, x), Plan: x.Move, Reason: "drill " + r.ID, DryRun: true, Approvals: r.Approvals})
		})
		cancel()
		if err != nil {
			return err
		}
		if begins := r.Clock.Now().Add(r.Plan.Baseline + armWithin); wire.TimeFromProto(s.GetPlan().GetExpiresUnixNano()).Before(begins) {
			return refuse("that plan ends before the move would begin: plan the drill anew, and have it approved")
		}
	}
	return nil
}

// whose notes in the plan who runs the drill and who has approved it, as the region says
// that is isolated. A drill that it would not hold has nobody: preflight says why.
func (r *run) whose(ctx context.Context) {
	n := r.Nodes[r.Plan.Isolate]
	if n == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	if s, err := n.Admin.ArmDrill(ctx, r.request(true)); err == nil {
		r.plan.By, r.plan.Approved = s.GetBy(), s.GetApproved()
	}
}

// approvals are those that came with the plan, and those that have come since.
func (r *run) approvals() []string {
	all := slices.Clone(r.Approvals)
	files, _ := filepath.Glob(filepath.Join(r.Dir, ApprovalsFolder, "*"))
	for _, file := range files {
		if info, err := os.Stat(file); err != nil || info.Size() > maxPlan {
			continue // nothing that a person has signed
		}
		text, _ := os.ReadFile(file)
		all = append(all, approval.Lines(string(text))...)
	}
	return all
}

// consented waits until enough people approve the plan of a move back, and answers its id;
// "" if nobody has to. The plan rests on the epoch that the log has by now, so it can't be
// approved before.
func (r *run) consented(ctx context.Context, target string, q *pb.MoveRequest) (string, error) {
	n, err := r.seat(ctx, target)
	if err != nil {
		return "", err
	}
	p, err := n.Admin.PlanMove(ctx, q)
	switch {
	case err != nil:
		return "", err
	case p.GetId() == "":
		return "", errors.New(refusal(p))
	case p.GetApprovals() == 0:
		return "", nil
	}
	r.Say(fmt.Sprintf("%s goes home once %d more have approved: domicile failover approve %s --plan %s --role %s --print > %s",
		wire.LogFromProto(p.GetLog()), p.GetApprovals(), q.GetTopic(), p.GetId(), strings.Join(p.GetApprovalRoles(), "|"), filepath.Join(r.Dir, ApprovalsFolder, "NAME")))
	for {
		_, err := n.Admin.StartMove(ctx, &pb.StartMoveRequest{Move: q, Plan: p.GetId(), Reason: "drill " + r.ID, DryRun: true, Approvals: r.approvals()})
		if err == nil || api.CodeOf(err) == api.Conflict { // the plan has ended, or what it rests on has changed
			return p.GetId(), err
		}
		if pass(ctx, watchEvery) != nil {
			return "", err
		}
	}
}

// peopleWithin is how long a log that is to go home waits for people.
const peopleWithin = 15 * time.Minute

// failbackWithin is the budget of the way back.
func (r *run) failbackWithin() time.Duration {
	if slices.ContainsFunc(r.Plan.Exercise, func(x Exercise) bool { return x.Move != "" }) {
		return peopleWithin
	}
	return moveWithin
}
