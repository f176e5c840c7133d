package door

import (
	"time"

	"domicile/api"
	pb "domicile/api/domicile/v1"
	"domicile/api/wire"
	"domicile/gateway"
	"domicile/regions"
)

// RequestFromProto reads what a reader asks for.
func RequestFromProto(m *pb.ReadRequest) gateway.ReadRequest {
	q := gateway.ReadRequest{Topic: m.GetTopic(), Slot: m.GetSlot(), Follow: m.GetFollow(),
		Records: int(m.GetMaxRecords()), Bytes: int(m.GetMaxBytes())}
	switch from := m.GetFrom().(type) {
	case *pb.ReadRequest_Position:
		q.Position = api.Position(from.Position)
	case *pb.ReadRequest_TimeUnixNano:
		q.Time = time.Unix(0, from.TimeUnixNano).UTC()
	case *pb.ReadRequest_Latest:
		q.Latest = from.Latest
	}
	return q
}

// BatchToProto makes the message of a batch.
func BatchToProto(b gateway.Batch) *pb.ReadResponse {
	m := &pb.ReadResponse{Position: string(b.Position), Records: make([]*pb.ReadRecord, len(b.Records)), Logs: make([]*pb.LogState, len(b.Logs))}
	for i := range b.Records {
		r := &b.Records[i]
		m.Records[i] = &pb.ReadRecord{
			Record: wire.RecordToProto(&r.Item.Record), Log: wire.LogToProto(r.Log), Epoch: wire.EpochToProto(r.Item.Epoch),
			Sequence: r.Item.Sequence, IngestTimeUnixNano: wire.TimeToProto(r.Item.Time), PolicyRevision: r.Item.Revision,
		}
	}
	for i := range b.Logs {
		s := &b.Logs[i]
		m.Logs[i] = &pb.LogState{
			Log: wire.LogToProto(s.Lag.Log), Home: s.Lag.Home, State: string(s.Lag.State),
			StalenessKnown: s.Lag.StalenessKnown, Withheld: s.Lag.Ledger.Withheld,
			WithheldFromReader: s.Unreadable, Expired: s.Expired, Diverged: s.Diverged, Cursor: s.Cursor,
		}
		if s.Lag.StalenessKnown {
			m.Logs[i].StalenessSeconds = s.Lag.Staleness.Seconds()
			m.Logs[i].StalenessErrorSeconds = s.Lag.StalenessError.Seconds()
		}
	}
	return m
}

// RequestToProto makes the message of what a reader asks for, for another node of the
// region. Bounds that no message can carry stay out of bounds.
func RequestToProto(q gateway.ReadRequest) *pb.ReadRequest {
	m := &pb.ReadRequest{Topic: q.Topic, Slot: q.Slot, Follow: q.Follow, MaxRecords: uint32(q.Records), MaxBytes: uint32(q.Bytes)}
	switch {
	case q.Position != "":
		m.From = &pb.ReadRequest_Position{Position: string(q.Position)}
	case !q.Time.IsZero():
		m.From = &pb.ReadRequest_TimeUnixNano{TimeUnixNano: wire.TimeToProto(q.Time)}
	case q.Latest:
		m.From = &pb.ReadRequest_Latest{Latest: true}
	}
	return m
}

// BatchFromProto reads a batch. Of the logs' lags it has what the message has.
func BatchFromProto(m *pb.ReadResponse) gateway.Batch {
	b := gateway.Batch{Position: api.Position(m.GetPosition()), Records: make([]gateway.ReadRecord, len(m.GetRecords())), Logs: make([]gateway.LogState, len(m.GetLogs()))}
	for i, r := range m.GetRecords() {
		b.Records[i] = gateway.ReadRecord{Log: wire.LogFromProto(r.GetLog()), Item: regions.Item{
			Sequence: r.GetSequence(), Epoch: wire.EpochFromProto(r.GetEpoch()), Time: wire.TimeFromProto(r.GetIngestTimeUnixNano()),
			Revision: r.GetPolicyRevision(), Record: wire.RecordFromProto(r.GetRecord()),
		}}
	}
	for i, s := range m.GetLogs() {
		b.Logs[i] = gateway.LogState{Unreadable: s.GetWithheldFromReader(), Expired: s.GetExpired(), Diverged: s.GetDiverged(), Cursor: s.GetCursor(), Lag: regions.Lag{
			Log: wire.LogFromProto(s.GetLog()), Home: s.GetHome(), State: regions.LagState(s.GetState()),
			StalenessKnown: s.GetStalenessKnown(), Staleness: seconds(s.GetStalenessSeconds()), StalenessError: seconds(s.GetStalenessErrorSeconds()),
			Ledger: regions.Ledger{Withheld: s.GetWithheld()},
		}}
	}
	return b
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
