package wire

import (
	"domicile/api"
	pb "domicile/api/domicile/v1"
)

// AckToProto makes the message of an acknowledgement.
func AckToProto(a api.Ack) *pb.Ack {
	return &pb.Ack{
		Id: a.ID, IdMade: a.IDMade, Log: LogToProto(a.Log), Region: a.Region,
		Incarnation: a.Incarnation, Epoch: EpochToProto(a.Epoch), WriterTerm: a.WriterTerm,
		Sequence: a.Sequence, IngestTimeUnixNano: TimeToProto(a.IngestTime),
		Durability: string(a.Durability), Duplicate: a.Duplicate, Forwarded: a.Forwarded,
		EventTimeOdd: a.EventTimeOdd, PolicyRevision: a.PolicyRevision, Position: string(a.Position), Copies: a.Copies,
		AuthorityUnconfirmed: a.Unconfirmed, Drill: a.Drill,
	}
}

// AckFromProto reads an acknowledgement. Its topic is that of the log.
func AckFromProto(m *pb.Ack) api.Ack {
	return api.Ack{
		ID: m.GetId(), IDMade: m.GetIdMade(), Topic: m.GetLog().GetTopic(), Log: LogFromProto(m.GetLog()),
		Region: m.GetRegion(), Incarnation: m.GetIncarnation(), Epoch: EpochFromProto(m.GetEpoch()),
		WriterTerm: m.GetWriterTerm(), Sequence: m.GetSequence(), IngestTime: TimeFromProto(m.GetIngestTimeUnixNano()),
		Durability: api.Durability(m.GetDurability()), Duplicate: m.GetDuplicate(), Forwarded: m.GetForwarded(),
		EventTimeOdd: m.GetEventTimeOdd(), PolicyRevision: m.GetPolicyRevision(), Position: api.Position(m.GetPosition()), Copies: m.GetCopies(),
		Unconfirmed: m.GetAuthorityUnconfirmed(), Drill: m.GetDrill(),
	}
}

// LogToProto makes the message of a log's address, none for the zero address.
func LogToProto(l api.LogID) *pb.LogId {
	if l == (api.LogID{}) {
		return nil
	}
	return &pb.LogId{Tenant: l.Tenant, Topic: l.Topic, Slot: l.Slot}
}

// LogFromProto reads a log's address. An absent tenant is the default one.
func LogFromProto(m *pb.LogId) api.LogID {
	if m == nil {
		return api.LogID{}
	}
	l := api.LogID{Tenant: m.GetTenant(), Topic: m.GetTopic(), Slot: m.GetSlot()}
	if l.Tenant == "" {
		l.Tenant = api.DefaultTenant
	}
	return l
}

// EpochToProto makes the message of an epoch.
func EpochToProto(e api.Epoch) *pb.Epoch {
	return &pb.Epoch{Term: e.Term, Counter: e.Counter, Issuer: e.Issuer}
}

// EpochFromProto reads an epoch; an absent one is the zero epoch.
func EpochFromProto(m *pb.Epoch) api.Epoch {
	return api.Epoch{Term: m.GetTerm(), Counter: m.GetCounter(), Issuer: m.GetIssuer()}
}
