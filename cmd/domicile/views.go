package main

import (
	"time"

	pb "domicile/api/domicile/v1"
	"domicile/regions"
)

// The JSON that scripts read. Fields are added, never renamed; what nobody knows is
// null, never zero; times are RFC 3339 in UTC; lengths of time are in seconds.

type lagView struct {
	Log            string     `json:"log"`
	Home           string     `json:"home"`
	Target         string     `json:"target"`
	State          string     `json:"state"`
	Cause          string     `json:"cause,omitempty"`
	Staleness      *float64   `json:"staleness_seconds"`
	StalenessError *float64   `json:"staleness_error_seconds"`
	SafeTime       *time.Time `json:"safe_time"`
	SecondsTrusted bool       `json:"seconds_trusted"`
	Exposure       *float64   `json:"exposure_seconds"`
	Records        *uint64    `json:"pending_records"`
	Bytes          *uint64    `json:"pending_bytes"`
	Head           uint64     `json:"head"`
	Cursor         uint64     `json:"cursor"`
	KnowledgeAge   *float64   `json:"knowledge_age_seconds"`
	Loss           *string    `json:"loss"` // none, ahead, now or refusal
	LossIn         *float64   `json:"loss_in_seconds"`
	Lost           []string   `json:"lost,omitempty"`
}

// known is a pointer to v, or null when nobody knows it.
func known[T any](v T, ok bool) *T {
	if !ok {
		return nil
	}
	return &v
}

func timeView(nano int64) *time.Time { return known(nanoTime(nano), nano != 0) }

func viewLag(l *pb.LogLag) *lagView {
	if l == nil {
		return nil
	}
	return &lagView{
		Log: logName(l.GetLog()), Home: l.GetHome(), Target: l.GetTarget(), State: l.GetState(), Cause: l.GetCause(),
		Staleness:      known(l.GetStalenessSeconds(), l.GetStalenessKnown()),
		StalenessError: known(l.GetStalenessErrorSeconds(), l.GetStalenessKnown()),
		SafeTime:       timeView(l.GetSafeTimeUnixNano()), SecondsTrusted: l.GetSecondsTrusted(),
		Exposure: known(l.GetExposureSeconds(), l.GetExposureKnown()),
		Records:  known(l.GetRecords(), l.GetRecordsKnown()), Bytes: known(l.GetBytes(), l.GetBytesKnown()),
		Head: l.GetHead(), Cursor: l.GetCursor(),
		KnowledgeAge: known(l.GetKnowledgeAgeSeconds(), l.GetKnowledgeKnown()),
		Loss:         known(l.GetLossState(), l.GetLossState() != ""),
		LossIn:       known(l.GetLossSeconds(), l.GetLossState() == string(regions.LossAhead) || l.GetLossState() == string(regions.LossRefusal)),
		Lost:         l.GetLost(),
	}
}

type linkView struct {
	Peer           string     `json:"peer"`
	State          string     `json:"state"`
	Since          *time.Time `json:"since"`
	Missing        string     `json:"missing_direction,omitempty"`
	Reason         string     `json:"reason,omitempty"`
	Code           string     `json:"code,omitempty"`
	LastHeard      *time.Time `json:"last_heard"`
	Offset         *float64   `json:"clock_offset_seconds"`
	OffsetError    *float64   `json:"clock_offset_error_seconds"`
	SecondsTrusted bool       `json:"seconds_trusted"`
	Fault          string     `json:"fault,omitempty"`
	WireVersion    uint32     `json:"wire_version,omitempty"`
	Gateway        string     `json:"gateway,omitempty"`
}

func viewLink(l *pb.LinkState) linkView {
	return linkView{
		Peer: l.GetPeer(), State: l.GetState(), Since: timeView(l.GetSinceUnixNano()), Missing: l.GetDirection(),
		Reason: l.GetReason(), Code: l.GetCode(), LastHeard: timeView(l.GetLastHeardUnixNano()),
		Offset: known(l.GetOffsetSeconds(), l.GetOffsetKnown()), OffsetError: known(l.GetOffsetErrorSeconds(), l.GetOffsetKnown()),
		SecondsTrusted: l.GetSecondsTrusted(), Fault: l.GetFault(), WireVersion: l.GetWireVersion(), Gateway: l.GetGateway(),
	}
}

type troubleView struct {
	Log       string   `json:"log"`
	Home      string   `json:"home"`
	State     string   `json:"state"`
	Producers string   `json:"producers"`
	Consumers string   `json:"consumers"`
	Lag       *lagView `json:"lag"`
	Room      string   `json:"room"`
	Owner     string   `json:"owner,omitempty"`
	Text      string   `json:"text,omitempty"`
}

type policyView struct {
	Region        string     `json:"region"`
	Revision      *string    `json:"revision"`
	Manifest      *string    `json:"manifest_digest"`
	ManifestEqual *bool      `json:"manifest_equal"`
	Differences   []string   `json:"differences,omitempty"`
	Heard         *time.Time `json:"heard"` // null: never in this run, or this region itself
}

type certificateView struct {
	Name string     `json:"name"`
	Kind string     `json:"kind"`
	Ends *time.Time `json:"ends"`
	Days *float64   `json:"days_left"`
}

type storageView struct {
	Healthy    bool   `json:"healthy"`
	Reason     string `json:"reason,omitempty"`
	Used       int64  `json:"used_bytes"`
	Limit      int64  `json:"limit_bytes"`
	Durability string `json:"durability"`
}

type statusView struct {
	Region       string            `json:"region"`
	Federation   string            `json:"federation"`
	Version      string            `json:"version"`
	Now          *time.Time        `json:"now"`
	Started      *time.Time        `json:"started"`
	Level        string            `json:"level"`
	Verdict      string            `json:"verdict"`
	Links        []linkView        `json:"links"`
	From         string            `json:"from,omitempty"` // the node whose links, logs and troubles these are, if it is another
	Logs         *uint32           `json:"logs"`
	Seat         *seatView         `json:"seat"`
	Troubles     []troubleView     `json:"troubles"`
	Policies     []policyView      `json:"policies"`
	Candidate    string            `json:"policy_candidate,omitempty"`
	Certificates []certificateView `json:"certificates"`
	Storage      *storageView      `json:"storage"`
	ClockStep    *float64          `json:"clock_step_seconds"`
	Warnings     []string          `json:"warnings"`
	Heals        []string          `json:"heals_by_itself"`
	Advice       []string          `json:"what_you_can_do"`
}

func viewStatus(s *pb.StatusResponse) statusView {
	v := statusView{
		Region: s.GetRegion(), Federation: s.GetFederation(), Version: s.GetVersion(),
		Now: timeView(s.GetNowUnixNano()), Started: timeView(s.GetStartedUnixNano()), Level: s.GetLevel(), Verdict: s.GetVerdict(),
		Logs: known(s.GetLogs(), logsKnown(s)), From: s.GetFrom(), Seat: viewSeat(s.GetSeat()), Candidate: s.GetCandidate(),
		Links: []linkView{}, Troubles: []troubleView{}, Policies: []policyView{}, Certificates: []certificateView{},
		Warnings: s.GetWarnings(), Heals: s.GetHeals(), Advice: s.GetAdvice(),
	}
	for _, l := range s.GetLinks() {
		v.Links = append(v.Links, viewLink(l))
	}
	for _, t := range s.GetTroubles() {
		v.Troubles = append(v.Troubles, troubleView{
			Log: logName(t.GetLog()), Home: t.GetHome(), State: t.GetState(), Producers: t.GetProducers(), Consumers: t.GetConsumers(),
			Lag: viewLag(t.GetLag()), Room: t.GetRoom(), Owner: t.GetOwner(), Text: t.GetText(),
		})
	}
	for _, p := range s.GetPolicies() {
		v.Policies = append(v.Policies, policyView{
			Region: p.GetRegion(), Revision: known(p.GetRevision(), p.GetKnown()), Manifest: known(p.GetManifestDigest(), p.GetManifestDigest() != ""),
			ManifestEqual: known(p.GetManifestEqual(), p.GetManifestDigest() != ""), Differences: p.GetDifferences(),
			Heard: timeView(p.GetHeardUnixNano()),
		})
	}
	for _, c := range s.GetCertificates() {
		v.Certificates = append(v.Certificates, certificateView{c.GetName(), c.GetKind(), timeView(c.GetEndsUnixNano()), known(c.GetDaysLeft(), c.GetEndsUnixNano() != 0)})
	}
	if st := s.GetStorage(); st != nil {
		v.Storage = &storageView{st.GetHealthy(), st.GetReason(), st.GetUsedBytes(), st.GetLimitBytes(), st.GetDurability()}
	}
	v.ClockStep = known(s.GetClock().GetStepSeconds(), s.GetClock() != nil)
	return v
}
