package door

import (
	"context"
	"time"

	"domicile/api"
	pb "domicile/api/domicile/v1"
	"domicile/api/wire"
	"domicile/gateway"
)

// reader is ReaderService.
type reader struct {
	pb.UnimplementedReaderServiceServer
	server *Server
}

// Read streams a topic from the copies of this region.
func (r *reader) Read(req *pb.ReadRequest, ss pb.ReaderService_ReadServer) error {
	ctx := ss.Context()
	err := r.server.config.Gateway.Read(ctx, requestFromProto(req), principalOf(ctx), func(b gateway.Batch) error {
		return ss.Send(batchToProto(b))
	})
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return wire.GRPCError(err)
}

func requestFromProto(m *pb.ReadRequest) gateway.ReadRequest {
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

func batchToProto(b gateway.Batch) *pb.ReadResponse {
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
			WithheldFromReader: s.Unreadable, Expired: s.Expired, Cursor: s.Cursor,
		}
		if s.Lag.StalenessKnown {
			m.Logs[i].StalenessSeconds = s.Lag.Staleness.Seconds()
			m.Logs[i].StalenessErrorSeconds = s.Lag.StalenessError.Seconds()
		}
	}
	return m
}
