package ledger

import (
	"time"

	pb "domicile/api/domicile/v1"
	"domicile/api/wire"
	"domicile/regions"
)

// Heard notes a batch that a reader got at a region's door.
func (b *Book) Heard(reader, region, topic string, m *pb.ReadResponse) {
	batch := &Batch{Reader: reader, Region: region, Topic: topic}
	for _, r := range m.GetRecords() {
		batch.Items = append(batch.Items, Got{
			Log: wire.LogFromProto(r.GetLog()).String(), Sequence: r.GetSequence(), Epoch: wire.EpochFromProto(r.GetEpoch()).String(),
			ID: Mark(r.GetRecord().GetId()), Key: Mark(r.GetRecord().GetKey()), Revision: r.GetPolicyRevision(),
		})
	}
	for _, s := range m.GetLogs() {
		batch.Logs = append(batch.Logs, LogState{
			Log: wire.LogFromProto(s.GetLog()).String(), State: regions.LagState(s.GetState()), Known: s.GetStalenessKnown(),
			Staleness: seconds(s.GetStalenessSeconds()), Error: seconds(s.GetStalenessErrorSeconds()),
			Withheld: s.GetWithheld(), Expired: s.GetExpired(), Cursor: s.GetCursor(),
		})
	}
	b.Note(Event{Batch: batch})
}

// Told notes what a region said of its lags.
func (b *Book) Told(m *pb.LagResponse) {
	for _, l := range m.GetLogs() {
		lag := regions.Lag{
			Log: wire.LogFromProto(l.GetLog()), Home: l.GetHome(), Target: l.GetTarget(), State: regions.LagState(l.GetState()), Cause: l.GetCause(),
			StalenessKnown: l.GetStalenessKnown(), Staleness: seconds(l.GetStalenessSeconds()), StalenessError: seconds(l.GetStalenessErrorSeconds()),
			SecondsTrusted: l.GetSecondsTrusted(), ExposureKnown: l.GetExposureKnown(), Exposure: seconds(l.GetExposureSeconds()),
			RecordsKnown: l.GetRecordsKnown(), Records: l.GetRecords(), BytesKnown: l.GetBytesKnown(), Bytes: l.GetBytes(),
			Head: l.GetHead(), Cursor: l.GetCursor(), KnowledgeKnown: l.GetKnowledgeKnown(), KnowledgeAge: seconds(l.GetKnowledgeAgeSeconds()),
		}
		if ns := l.GetSafeTimeUnixNano(); ns != 0 {
			lag.SafeTime = time.Unix(0, ns)
		}
		b.Note(Event{Lag: &LagSample{Region: m.GetRegion(), Lag: lag}})
	}
}

// Linked notes what a region said of its links, and of what may be done.
func (b *Book) Linked(m *pb.StatusResponse) {
	for _, l := range m.GetLinks() {
		s := &LinkSample{Region: m.GetRegion(), Peer: l.GetPeer(), Up: l.GetState() == "up", Known: l.GetState() != "unknown", Reason: l.GetReason()}
		if heard := l.GetLastHeardUnixNano(); heard != 0 {
			s.Heard, s.Silence = true, time.Duration(m.GetNowUnixNano()-heard)
		}
		b.Note(Event{Link: s})
	}
	if len(m.GetAdvice()) > 0 {
		b.Note(Event{Advice: &Advice{Region: m.GetRegion(), Lines: m.GetAdvice()}})
	}
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
