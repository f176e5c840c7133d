package wire

import (
	"cmp"
	"encoding/binary"

	pb "domicile/api/domicile/v1"
	"domicile/regions"
)

// TailToProto makes the message of a tail list.
func TailToProto(l *regions.TailList) *pb.TailList {
	m := &pb.TailList{
		Log: LogToProto(l.Log), Incarnation: l.Incarnation, Epoch: EpochToProto(l.Epoch), Key: l.Key[:],
		Head: l.Head, HeadTimeUnixNano: TimeToProto(l.HeadTime), ClosedUnixNano: TimeToProto(l.Closed),
		Entries: make([]*pb.TailEntry, len(l.Entries)),
	}
	for i, e := range l.Entries {
		m.Entries[i] = &pb.TailEntry{Sequence: e.Sequence, Before: e.Sequence - e.From, Kind: string(e.Kind),
			Id: binary.BigEndian.Uint64(e.ID[:]), TimeUnixNano: TimeToProto(e.Time), Bytes: e.Bytes}
	}
	return m
}

// TailFromProto reads a tail list. One whose entries are out of order, overlap, lie beyond
// the head or are too many is refused.
func TailFromProto(m *pb.TailList) (regions.TailList, error) {
	log, err := logOf(m.GetLog())
	if err = cmp.Or(err, tokens("incarnation", m.GetIncarnation(), "issuer", m.GetEpoch().GetIssuer())); err != nil {
		return regions.TailList{}, err
	}
	l := regions.TailList{Log: log, Incarnation: m.GetIncarnation(), Epoch: EpochFromProto(m.GetEpoch()),
		Head: m.GetHead(), HeadTime: TimeFromProto(m.GetHeadTimeUnixNano()), Closed: TimeFromProto(m.GetClosedUnixNano())}
	switch {
	case l.Incarnation == "":
		return l, badPeer("incarnation", "it is absent")
	case len(m.GetKey()) != len(l.Key):
		return l, badPeer("key", "it has another length")
	case len(m.GetEntries()) > regions.MaxTailEntries:
		return l, badPeer("entries", "a tail list holds at most 512")
	}
	copy(l.Key[:], m.GetKey())
	last := uint64(0)
	for _, p := range m.GetEntries() {
		e, err := tailEntryFromProto(p)
		if err != nil {
			return l, err
		}
		if e.From <= last || e.Sequence > l.Head {
			return l, badPeer("entries", "they are out of order, or beyond the head")
		}
		last = e.Sequence
		l.Entries = append(l.Entries, e)
	}
	return l, nil
}

func tailEntryFromProto(p *pb.TailEntry) (regions.TailEntry, error) {
	e := regions.TailEntry{Sequence: p.GetSequence(), Kind: regions.GapKind(p.GetKind()), Time: TimeFromProto(p.GetTimeUnixNano()), Bytes: p.GetBytes()}
	binary.BigEndian.PutUint64(e.ID[:], p.GetId())
	if p.GetBefore() >= e.Sequence {
		return e, badPeer("entries", "a range that begins before the log")
	}
	e.From = e.Sequence - p.GetBefore()
	switch e.Kind {
	case "":
		if e.From != e.Sequence {
			return e, badPeer("entries", "a record has one sequence")
		}
	case regions.Withheld, regions.Expired, regions.Purged, regions.Erased, regions.Void, regions.Damaged:
	default:
		return e, badPeer("entries", "a kind of gap that is not known to this version")
	}
	return e, nil
}
