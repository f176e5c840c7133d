package main

import (
	pb "domicile/api/domicile/v1"
)

type planView struct {
	ID        string      `json:"plan,omitempty"` // absent: a rule refuses it
	Expires   string      `json:"expires"`
	Log       string      `json:"log"`
	Kind      string      `json:"kind"`
	Home      string      `json:"home"`
	Target    string      `json:"target"`
	Epoch     string      `json:"epoch"`
	Status    string      `json:"status"`
	HomeHeard bool        `json:"home_heard"`
	Checks    []checkView `json:"checks"`
	Copies    []copyView  `json:"copies"`
	LossSpan  *float64    `json:"loss_seconds"` // null: not known
	LossCount *uint64     `json:"loss_records"`
	RPO       float64     `json:"rpo_seconds"`
	RTO       float64     `json:"rto_seconds"`
	Wait      float64     `json:"wait_seconds"`
	Approvals uint32      `json:"approvals"`
	Roles     []string    `json:"approval_roles"`
	Notes     []string    `json:"notes,omitempty"`
}

type checkView struct {
	Rule  string `json:"rule"`
	State string `json:"state"`
	Text  string `json:"text"`
	Code  string `json:"code,omitempty"`
}

type copyView struct {
	Region   string   `json:"region"`
	Role     string   `json:"role"`
	Sequence *uint64  `json:"sequence"` // null: not known
	Lag      *float64 `json:"lag_seconds"`
	Pending  *uint64  `json:"pending"`
	Safe     string   `json:"safe_time,omitempty"`
	Withheld uint64   `json:"withheld"`
	Eligible bool     `json:"eligible"`
	Why      string   `json:"why,omitempty"`
}

func ifKnown[T any](known bool, v T) *T {
	if !known {
		return nil
	}
	return &v
}

func nanoSeconds(n int64) float64 { return float64(n) / 1e9 }

func viewPlan(p *pb.MovePlan) planView {
	v := planView{
		ID: p.GetId(), Expires: rfc3339(p.GetExpiresUnixNano()), Log: logName(p.GetLog()), Kind: p.GetKind(), Home: p.GetHome(), Target: p.GetTarget(),
		Epoch: epochText(p.GetEpoch()), Status: p.GetStatus(), HomeHeard: p.GetHomeHeard(), Checks: []checkView{}, Copies: []copyView{},
		LossSpan: ifKnown(p.GetLoss().GetSpanKnown(), nanoSeconds(p.GetLoss().GetSpanNano())), LossCount: ifKnown(p.GetLoss().GetRecordsKnown(), p.GetLoss().GetRecords()),
		RPO: nanoSeconds(p.GetRpoNano()), RTO: nanoSeconds(p.GetRtoNano()), Wait: nanoSeconds(p.GetWaitNano()),
		Approvals: p.GetApprovals(), Roles: p.GetApprovalRoles(), Notes: p.GetNotes(),
	}
	for _, c := range p.GetChecks() {
		v.Checks = append(v.Checks, checkView{c.GetRule(), c.GetState(), c.GetText(), c.GetCode()})
	}
	for _, c := range p.GetCopies() {
		one := copyView{Region: c.GetRegion(), Role: c.GetRole(), Sequence: ifKnown(c.GetKnown(), c.GetSequence()), Lag: ifKnown(c.GetLagKnown(), nanoSeconds(c.GetLagNano())),
			Pending: ifKnown(c.GetPendingKnown(), c.GetPending()), Withheld: c.GetWithheld(), Eligible: c.GetEligible(), Why: c.GetWhy()}
		if c.GetSafeKnown() {
			one.Safe = rfc3339(c.GetSafeUnixNano())
		}
		v.Copies = append(v.Copies, one)
	}
	return v
}

func rfc3339(nano int64) string { return nanoTime(nano).Format("2006-01-02T15:04:05.000Z07:00") }

type moveView struct {
	Log       string      `json:"log"`
	Home      string      `json:"home"`
	Epoch     string      `json:"epoch"`
	Status    string      `json:"status"`
	Targets   []string    `json:"targets"`
	Refused   string      `json:"refused,omitempty"`
	Reason    string      `json:"reason,omitempty"`
	Actor     string      `json:"actor,omitempty"`
	Kind      string      `json:"kind,omitempty"`
	Target    string      `json:"target,omitempty"`
	Step      string      `json:"step,omitempty"`
	Plan      string      `json:"plan,omitempty"`
	Proof     string      `json:"proof,omitempty"`
	Compared  string      `json:"compared,omitempty"` // same | not compared
	Approved  []string    `json:"approved,omitempty"`
	Approvals uint32      `json:"approvals,omitempty"`
	History   []endedView `json:"history"`
	RivalHome string      `json:"rival_home,omitempty"`
	Rival     string      `json:"rival_epoch,omitempty"`
	Tails     []tailView  `json:"tails,omitempty"`
	Preview   string      `json:"preview,omitempty"`
	Preplan   string      `json:"preview_plan,omitempty"`
}

type endedView struct {
	Epoch string  `json:"epoch"`
	Home  string  `json:"home"`
	End   *uint64 `json:"end"` // null: not known yet
	How   string  `json:"how"`
	// Compared is same or not compared: the copy that took over beside its home's records.
	Compared string `json:"compared,omitempty"`
}

type tailView struct {
	Epoch  string `json:"epoch"`
	Region string `json:"region"`
	From   uint64 `json:"from"`
	To     uint64 `json:"to"`
	Count  uint64 `json:"count"`
	Fate   string `json:"fate"`
}

func viewMove(l *pb.MoveState) moveView {
	v := moveView{
		Log: logName(l.GetLog()), Home: l.GetHome(), Epoch: epochText(l.GetEpoch()), Status: l.GetStatus(), Targets: append([]string{}, l.GetTargets()...),
		Refused: l.GetRefused(), Reason: l.GetReason(), Actor: l.GetActor(), Kind: l.GetKind(), Target: l.GetTarget(), Step: l.GetStep(), Plan: l.GetPlan(),
		Proof: l.GetProof(), Compared: l.GetCompared(), Approved: l.GetApproved(), Approvals: l.GetApprovals(), History: []endedView{}, Preview: l.GetPreview(), Preplan: l.GetPreviewPlan(),
	}
	if l.GetRivalHome() != "" {
		v.RivalHome, v.Rival = l.GetRivalHome(), epochText(l.GetRivalEpoch())
	}
	for _, h := range l.GetHistory() {
		v.History = append(v.History, endedView{epochText(h.GetEpoch()), h.GetHome(), ifKnown(h.GetEndKnown(), h.GetEnd()), h.GetHow(), h.GetCompared()})
	}
	for _, t := range l.GetTails() {
		v.Tails = append(v.Tails, tailView{epochText(t.GetEpoch()), t.GetRegion(), t.GetFrom(), t.GetTo(), t.GetCount(), t.GetFate()})
	}
	return v
}

func viewMoves(m *pb.MoveStates) map[string]any {
	logs := []moveView{}
	for _, l := range m.GetLogs() {
		logs = append(logs, viewMove(l))
	}
	return map[string]any{"logs": logs, "authority_answers": m.GetAuthorityKnown()}
}
