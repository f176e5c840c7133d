package main

import (
	"time"

	pb "domicile/api/domicile/v1"
)

type authorityView struct {
	Voters     []string `json:"voters"` // of the manifest
	Role       string   `json:"role"`
	Trouble    string   `json:"trouble,omitempty"`
	Name       string   `json:"authority,omitempty"`
	Generation uint32   `json:"generation"`
	Version    uint64   `json:"version"`
	Reached    bool     `json:"reached"`
	Answered   *float64 `json:"answered_seconds_ago"` // null: never in this run
	Leader     string   `json:"leader,omitempty"`
	Term       uint64   `json:"term,omitempty"`
	Entries    uint64   `json:"entries,omitempty"`
	Voting     []string `json:"voting,omitempty"`
	Rivals     []string `json:"rivals,omitempty"`
	Witness    bool     `json:"witness,omitempty"`
	Applied    uint64   `json:"applied,omitempty"`
	Heard      *float64 `json:"leader_heard_seconds_ago,omitempty"` // of a voter that does not lead; absent: not in this run
	Free       *uint64  `json:"free_bytes,omitempty"`               // of a voter's disk; absent: not known
}

type placedView struct {
	Log         string      `json:"log"`
	FirstHome   string      `json:"manifest_home"`
	Known       bool        `json:"known"`
	Home        string      `json:"home,omitempty"`
	Epoch       string      `json:"epoch,omitempty"`
	Status      string      `json:"status,omitempty"`
	Incarnation string      `json:"incarnation,omitempty"`
	Allowed     []string    `json:"allowed,omitempty"`
	Targets     []string    `json:"targets,omitempty"`
	Isolation   string      `json:"isolation,omitempty"`
	FenceAfter  float64     `json:"fence_after_seconds,omitempty"`
	RPO         float64     `json:"rpo_seconds,omitempty"`
	Approvals   uint32      `json:"approvals"`
	Alike       bool        `json:"declared_alike"`
	Refused     string      `json:"refused,omitempty"`
	Reason      string      `json:"reason,omitempty"`
	Actor       string      `json:"actor,omitempty"`
	Lease       *float64    `json:"lease_seconds_left"` // null: none is held or needed here
	History     []epochView `json:"history"`
	Explain     []string    `json:"explain"`
}

type epochView struct {
	Epoch string `json:"epoch"`
	Home  string `json:"home"`
	How   string `json:"how"`
	Proof string `json:"proof,omitempty"`
	// Compared is same or not compared: the copy that took over beside its home's records.
	Compared string   `json:"compared,omitempty"`
	End      *uint64  `json:"end"`                           // null: not settled
	Span     *float64 `json:"lost_seconds"`                  // null: not known
	AtCut    *float64 `json:"lost_seconds_at_cut,omitempty"` // the old home may have gone on since: then lost_seconds is not known
	Records  *uint64  `json:"lost_records"`                  // null: not known
}

type placementsView struct {
	Region    string        `json:"region"`
	Authority authorityView `json:"authority"`
	Logs      []placedView  `json:"logs"`
}

func viewAuthority(s *pb.AuthorityState) authorityView {
	return authorityView{
		Voters: s.GetVoters(), Role: s.GetRole(), Trouble: s.GetTrouble(), Name: s.GetName(), Generation: s.GetGeneration(), Version: s.GetVersion(),
		Reached: s.GetReached(), Answered: known(time.Duration(s.GetAnsweredNanoAgo()).Seconds(), s.GetHeard()),
		Leader: s.GetLeader(), Term: s.GetTerm(), Entries: s.GetEntries(), Voting: s.GetVoting(), Rivals: s.GetRivals(),
		Witness: s.GetWitness(), Applied: s.GetApplied(), Heard: known(time.Duration(s.GetLeaderHeardNanoAgo()).Seconds(), s.GetLeaderHeard()), Free: known(s.GetFreeBytes(), s.GetFreeKnown()),
	}
}

func viewPlacements(m *pb.PlacementsResponse) placementsView {
	v := placementsView{Region: m.GetRegion(), Authority: viewAuthority(m.GetAuthority()), Logs: []placedView{}}
	for _, l := range m.GetLogs() {
		p := placedView{
			Log: logName(l.GetLog()), FirstHome: l.GetFirstHome(), Known: l.GetKnown(), Home: l.GetHome(), Status: l.GetStatus(), Incarnation: l.GetIncarnation(),
			Allowed: l.GetAllowed(), Targets: l.GetTargets(), Isolation: l.GetIsolation(), FenceAfter: time.Duration(l.GetFenceAfterNano()).Seconds(),
			RPO: time.Duration(l.GetRpoNano()).Seconds(), Approvals: l.GetApprovals(), Alike: l.GetDeclaredAlike(), Refused: l.GetRefused(),
			Reason: l.GetReason(), Actor: l.GetActor(), Lease: known(time.Duration(l.GetLeaseLeftNano()).Seconds(), l.GetLeaseKnown()),
			History: []epochView{}, Explain: l.GetExplain(),
		}
		if l.GetKnown() {
			p.Epoch = epochText(l.GetEpoch())
		}
		for _, e := range l.GetHistory() {
			past := epochView{Epoch: epochText(e.GetEpoch()), Home: e.GetHome(), How: e.GetHow(), Proof: e.GetProof(), Compared: e.GetCompared(),
				End: known(e.GetEnd(), e.GetEndKnown()), Span: known(time.Duration(e.GetSpanNano()).Seconds(), e.GetSpanKnown()), Records: known(e.GetRecords(), e.GetRecordsKnown())}
			if openEnded(e) {
				past.Span, past.AtCut, past.Records = nil, past.Span, nil
			}
			p.History = append(p.History, past)
		}
		v.Logs = append(v.Logs, p)
	}
	return v
}
