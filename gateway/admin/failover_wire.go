package admin

import (
	"slices"

	"domicile/api"
	pb "domicile/api/domicile/v1"
	"domicile/api/wire"
	"domicile/gateway/failover"
	"domicile/regions/placement"
)

func planToProto(p *failover.Plan) *pb.MovePlan {
	m := &pb.MovePlan{
		Id: p.ID, ExpiresUnixNano: wire.TimeToProto(p.Expires), Log: wire.LogToProto(p.Request.Log), Incarnation: p.Log.Incarnation,
		Epoch: wire.EpochToProto(p.Log.Epoch), Status: string(p.Log.Status), Kind: string(p.Kind), Home: p.Log.Home, Target: p.Target,
		Loss: lossToProto(&p.Loss), RpoNano: int64(p.Log.Terms.RPO), WaitNano: int64(p.Wait), HomeHeard: p.Heard,
		Approvals: uint32(p.Needs()), ApprovalRoles: p.Roles(), Notes: p.Notes, RtoNano: int64(p.RTO),
	}
	for _, c := range p.Checks {
		m.Checks = append(m.Checks, &pb.MoveCheck{Rule: c.Rule, State: string(c.State), Text: c.Text, Code: string(c.Code)})
	}
	offers := failover.Offers(&p.Log)
	for _, c := range p.Copies {
		mark := &pb.CopyMark{Region: c.Region, Role: "copy", Known: c.Known, SafeKnown: !c.Safe.IsZero(), LagKnown: c.LagKnown, PendingKnown: c.PendingKnown,
			Withheld: c.Withheld, Eligible: slices.Contains(offers, c.Region), Why: c.Cause}
		switch {
		case c.Home:
			mark.Role = "home"
		case !mark.Eligible && mark.Why == "":
			mark.Why = "it is no target of this log"
		}
		if c.Known {
			mark.Sequence = c.Sequence
		}
		if mark.SafeKnown {
			mark.SafeUnixNano = wire.TimeToProto(c.Safe)
		}
		if c.LagKnown {
			mark.LagNano = int64(c.Lag)
		}
		if c.PendingKnown {
			mark.Pending = c.Pending
		}
		m.Copies = append(m.Copies, mark)
	}
	return m
}

// lossToProto carries a bound only while it is known.
func lossToProto(l *placement.Loss) *pb.MoveLoss {
	m := &pb.MoveLoss{}
	if l == nil {
		return m
	}
	if l.Span != nil {
		m.SpanKnown, m.SpanNano = true, int64(*l.Span)
	}
	if l.Records != nil {
		m.RecordsKnown, m.Records = true, *l.Records
	}
	return m
}

func stateToProto(id api.LogID, l *placement.Log) *pb.MoveState {
	m := &pb.MoveState{
		Log: wire.LogToProto(id), Incarnation: l.Incarnation, Home: l.Home, Epoch: wire.EpochToProto(l.Epoch), Status: string(l.Status),
		Refused: string(l.Refused), Reason: l.Reason, Actor: l.Actor, Targets: failover.Offers(l),
	}
	if op := l.Op; op != nil {
		m.Op, m.Kind, m.Target, m.Step, m.Plan, m.Cut = op.ID, string(op.Kind), op.Target, string(op.Step), op.Plan, op.Cut
		m.Lost, m.Approvals = lossToProto(op.Lost), uint32(l.Terms.Approvals)
		if op.Proof != nil {
			m.Proof, m.Compared = string(op.Proof.Kind), op.Comparison()
		}
		for _, a := range op.Approvals {
			m.Approved = append(m.Approved, a.Actor+" ("+a.Role+")")
		}
	}
	for _, h := range l.History {
		m.History = append(m.History, &pb.EndedEpoch{Epoch: wire.EpochToProto(h.Epoch), Home: h.Home, EndKnown: h.EndKnown, End: h.End, How: string(h.How), Compared: h.Comparison()})
	}
	if r := l.Rival; r != nil {
		m.RivalHome, m.RivalEpoch = r.Home, wire.EpochToProto(r.Epoch)
	}
	for _, d := range l.Divergences {
		m.Tails = append(m.Tails, &pb.OpenTail{Epoch: wire.EpochToProto(d.Epoch), Region: d.Region, From: d.From, To: d.To, Count: d.Count, Fate: string(d.Fate)})
	}
	return m
}
