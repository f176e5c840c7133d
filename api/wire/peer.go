package wire

import (
	"cmp"
	"fmt"
	"math"
	"time"

	"domicile/api"
	pb "domicile/api/domicile/v1"
	"domicile/regions"
)

func badPeer(field, hint string) error {
	return &api.Error{Code: api.BadRequest, Op: "read peer message", Field: field, Hint: hint}
}

// HelloToProto makes the message of a hello.
func HelloToProto(h regions.Hello) *pb.PeerHello {
	m := &pb.PeerHello{
		Federation: h.Federation, Region: h.Region, FabricId: h.FabricID, BootId: h.BootID, Version: h.Version,
		WireVersion: uint32(h.WireVersion), OldestWireVersion: uint32(h.OldestWire),
		PolicySerial: h.PolicySerial, PolicyRevision: h.PolicyRevision, ManifestDigest: h.ManifestDigest,
		CertificateEndsUnixNano: TimeToProto(h.CertificateEnds), Gateway: h.Gateway, TakesTails: h.TakesTails, SignedPolicy: h.SignedPolicy, FencedPolicy: h.FencedPolicy, PolicySigners: h.PolicySigners,
		Topics: make(map[string]*pb.TopicDeclaration, len(h.TopicDigests)),
	}
	for topic, digest := range h.TopicDigests {
		m.Topics[topic] = &pb.TopicDeclaration{Digest: digest, Fields: h.TopicFields[topic]}
	}
	for id, incarnation := range h.Incarnations {
		if m.Incarnations == nil {
			m.Incarnations = map[string]string{}
		}
		m.Incarnations[id.String()] = incarnation
	}
	return m
}

// maxTopics bounds the topics of a hello, and their fields.
const maxTopics, maxFields = 20_000, 64

// HelloFromProto reads a hello; an absent one is refused.
func HelloFromProto(m *pb.PeerHello) (regions.Hello, error) {
	if m == nil {
		return regions.Hello{}, badPeer("hello", "it is absent")
	}
	if len(m.GetTopics()) > maxTopics || len(m.GetIncarnations()) > maxTopics {
		return regions.Hello{}, badPeer("topics", "they are too many")
	}
	if err := tokens("federation", m.GetFederation(), "region", m.GetRegion(), "fabric_id", m.GetFabricId(), "boot_id", m.GetBootId(), "gateway", m.GetGateway(),
		"manifest_digest", m.GetManifestDigest(), "policy_signers", m.GetPolicySigners(), "version", m.GetVersion(), "policy_revision", m.GetPolicyRevision()); err != nil {
		return regions.Hello{}, err
	}
	if m.GetOldestWireVersion() == 0 || m.GetOldestWireVersion() > m.GetWireVersion() {
		return regions.Hello{}, badPeer("wire_version", "the oldest is above 0, and no newer than the newest")
	}
	h := regions.Hello{
		Federation: m.GetFederation(), Region: m.GetRegion(), FabricID: m.GetFabricId(), BootID: m.GetBootId(), Version: m.GetVersion(),
		WireVersion: int(m.GetWireVersion()), OldestWire: int(m.GetOldestWireVersion()),
		PolicySerial: m.GetPolicySerial(), PolicyRevision: m.GetPolicyRevision(), ManifestDigest: m.GetManifestDigest(),
		CertificateEnds: TimeFromProto(m.GetCertificateEndsUnixNano()), Gateway: m.GetGateway(), TakesTails: m.GetTakesTails(), SignedPolicy: m.GetSignedPolicy(), FencedPolicy: m.GetFencedPolicy(), PolicySigners: m.GetPolicySigners(),
		TopicDigests: make(map[string]string, len(m.GetTopics())),
		TopicFields:  make(map[string]map[string]string, len(m.GetTopics())),
	}
	for topic, d := range m.GetTopics() {
		if err := tokens("topic", topic, "digest", d.GetDigest()); err != nil || len(d.GetFields()) > maxFields {
			return regions.Hello{}, cmp.Or(err, badPeer("fields", "they are too many"))
		}
		fields := make(map[string]string, len(d.GetFields()))
		for field, v := range d.GetFields() {
			fields[text(field)] = api.Printable(v, regions.MaxFieldText)
		}
		h.TopicDigests[topic], h.TopicFields[topic] = d.GetDigest(), fields
	}
	for log, incarnation := range m.GetIncarnations() {
		id, err := api.ParseLogID(log)
		if err != nil || tokens("", log, "", incarnation) != nil {
			return regions.Hello{}, badPeer("hello.incarnations", "a log has no such name")
		}
		if h.Incarnations == nil {
			h.Incarnations = map[api.LogID]string{}
		}
		h.Incarnations[id] = incarnation
	}
	return h, nil
}

// WatermarksToProto makes one message of a whole round.
func WatermarksToProto(w regions.Watermarks) *pb.WatermarkList {
	m := &pb.WatermarkList{
		IssuedUnixNano: TimeToProto(w.Issued), InstantUnixNano: TimeToProto(w.Instant), All: w.All,
		Refused: uint32(min(max(w.Refused, 0), math.MaxUint32)), Logs: make([]*pb.Watermark, len(w.Logs)),
	}
	for i, l := range w.Logs {
		m.Logs[i] = &pb.Watermark{
			Log: LogToProto(l.Log), Incarnation: l.Incarnation, Epoch: EpochToProto(l.Epoch), Term: l.Term,
			Head: l.Head, HeadTimeUnixNano: TimeToProto(l.HeadTime), ClosedUnixNano: TimeToProto(l.Closed),
			First: l.First, Digest: l.Digest,
		}
	}
	return m
}

// WatermarksFromProto reads one frame of a round.
func WatermarksFromProto(m *pb.WatermarkList) (regions.Watermarks, error) {
	w := regions.Watermarks{
		Issued: TimeFromProto(m.GetIssuedUnixNano()), Instant: TimeFromProto(m.GetInstantUnixNano()), All: m.GetAll(),
		Refused: int(m.GetRefused()), Logs: make([]regions.LogMark, len(m.GetLogs())),
	}
	for i, l := range m.GetLogs() {
		id, err := logOf(l.GetLog())
		if err = cmp.Or(err, tokens("incarnation", l.GetIncarnation(), "issuer", l.GetEpoch().GetIssuer(), "digest", l.GetDigest())); err != nil {
			return regions.Watermarks{}, err
		}
		w.Logs[i] = regions.LogMark{
			Log: id, Incarnation: l.GetIncarnation(), Epoch: EpochFromProto(l.GetEpoch()), Term: l.GetTerm(),
			Head: l.GetHead(), HeadTime: TimeFromProto(l.GetHeadTimeUnixNano()), Closed: TimeFromProto(l.GetClosedUnixNano()),
			First: l.GetFirst(), Digest: l.GetDigest(),
		}
	}
	return w, nil
}

func logOf(m *pb.LogId) (api.LogID, error) {
	id := LogFromProto(m)
	if id.Topic == "" || id.Slot == "" {
		return api.LogID{}, badPeer("log", "it names no topic or no slot")
	}
	return id, tokens("log", id.Tenant, "log", id.Topic, "log", id.Slot)
}

// ForwardToProto makes the message of a forwarded record. The deadline travels as
// the time that is left at now: the two clocks need not agree.
func ForwardToProto(number uint64, f *regions.Forward, now time.Time) *pb.ForwardRequest {
	return &pb.ForwardRequest{
		Number: number, Record: RecordToProto(&f.Record), Log: LogToProto(f.Log),
		Principal:   principalToProto(f.Principal),
		TimeoutNano: int64(f.Deadline.Sub(now)), PolicySerial: f.Serial, PolicyRevision: f.Revision,
		Retry: RetryToProto(f.Record.Retry),
	}
}

// ForwardFromProto reads a forwarded record; its deadline is counted from now and
// is at most longest away.
func ForwardFromProto(m *pb.ForwardRequest, now time.Time, longest time.Duration) (regions.Forward, error) {
	if m.GetRecord() == nil {
		return regions.Forward{}, badPeer("record", "it is absent")
	}
	log, err := logOf(m.GetLog())
	p, retry := m.GetPrincipal(), LogFromProto(m.GetRetry().GetLog())
	if err = cmp.Or(err, tokens("principal", p.GetName(), "kind", p.GetKind(), "class", p.GetClass(), "place", p.GetPlace(), "policy_revision", m.GetPolicyRevision(),
		"retry", retry.Tenant, "retry", retry.Topic, "retry", retry.Slot)); err != nil {
		return regions.Forward{}, err
	}
	return forwardFromProto(m, log, now, longest), nil
}

func forwardFromProto(m *pb.ForwardRequest, log api.LogID, now time.Time, longest time.Duration) regions.Forward {
	left := min(max(time.Duration(m.GetTimeoutNano()), 0), longest)
	record := RecordFromProto(m.GetRecord())
	record.Retry = RetryFromProto(m.GetRetry())
	return regions.Forward{
		Record: record, Log: log, Deadline: now.Add(left),
		Principal: principalFromProto(m.GetPrincipal()),
		Serial:    m.GetPolicySerial(), Revision: m.GetPolicyRevision(),
	}
}

func principalToProto(p regions.Principal) *pb.Principal {
	return &pb.Principal{Name: p.Name, Kind: p.Kind, Class: p.Class, Place: p.Place}
}

func principalFromProto(m *pb.Principal) regions.Principal {
	return regions.Principal{Name: m.GetName(), Kind: m.GetKind(), Class: m.GetClass(), Place: m.GetPlace()}
}

// MirrorOpenToProto makes the message that opens a flow.
func MirrorOpenToProto(o regions.MirrorOpen) *pb.MirrorOpen {
	return &pb.MirrorOpen{Log: LogToProto(o.Log), Incarnation: o.Incarnation, Epoch: EpochToProto(o.Epoch), Head: o.Head, Digest: o.Digest}
}

// MirrorOpenFromProto reads the message that opens a flow.
func MirrorOpenFromProto(m *pb.MirrorOpen) (regions.MirrorOpen, error) {
	log, err := logOf(m.GetLog())
	if err != nil {
		return regions.MirrorOpen{}, err
	}
	return regions.MirrorOpen{Log: log, Incarnation: m.GetIncarnation(), Epoch: EpochFromProto(m.GetEpoch()), Head: m.GetHead(), Digest: m.GetDigest()}, nil
}

// MirrorBatchToProto makes the message of a batch. Bodies are shared, not copied.
func MirrorBatchToProto(b *regions.MirrorBatch) *pb.MirrorBatch {
	m := &pb.MirrorBatch{Incarnation: b.Incarnation, PolicySerial: b.Serial, PolicyRevision: b.Revision, Items: make([]*pb.MirrorItem, len(b.Items))}
	for i := range b.Items {
		it := &b.Items[i]
		p := &pb.MirrorItem{
			Sequence: it.Sequence, Epoch: EpochToProto(it.Epoch), Term: it.Term,
			TimeUnixNano: TimeToProto(it.Time), PolicyRevision: it.Revision,
		}
		if g := it.Gap; g != nil {
			p.Gap = &pb.MirrorGap{Kind: string(g.Kind), From: g.From, To: g.To, Code: string(g.Code), Side: g.Side, PolicyRevision: g.Revision}
		} else {
			p.Record = RecordToProto(&it.Record)
		}
		m.Items[i] = p
	}
	return m
}

// MirrorBatchFromProto reads a batch. It is refused unless its items follow each
// other without a hole: what a target can't place it must not store.
func MirrorBatchFromProto(m *pb.MirrorBatch) (regions.MirrorBatch, error) {
	if n := len(m.GetItems()); n == 0 || n > regions.MaxBatchRecords {
		return regions.MirrorBatch{}, badPeer("items", fmt.Sprintf("a batch holds 1 to %d", regions.MaxBatchRecords))
	}
	b := regions.MirrorBatch{Incarnation: m.GetIncarnation(), Serial: m.GetPolicySerial(), Revision: m.GetPolicyRevision(), Items: make([]regions.Item, len(m.GetItems()))}
	for i, p := range m.GetItems() {
		item, first, err := itemFromProto(p)
		if err != nil {
			return regions.MirrorBatch{}, err
		}
		if i > 0 && first != b.Items[i-1].Sequence+1 {
			return regions.MirrorBatch{}, badPeer("sequence", "items do not follow each other")
		}
		b.Items[i] = item
	}
	return b, nil
}

func itemFromProto(p *pb.MirrorItem) (item regions.Item, first uint64, err error) {
	item = regions.Item{
		Sequence: p.GetSequence(), Epoch: EpochFromProto(p.GetEpoch()), Term: p.GetTerm(),
		Time: TimeFromProto(p.GetTimeUnixNano()), Revision: p.GetPolicyRevision(),
	}
	g := p.GetGap()
	switch {
	case item.Sequence == 0 || item.Sequence == math.MaxUint64:
		return regions.Item{}, 0, badPeer("sequence", "sequences begin at 1")
	case (g == nil) == (p.GetRecord() == nil):
		return regions.Item{}, 0, badPeer("items", "an item is a record or a gap, and not both")
	case g == nil:
		item.Record = RecordFromProto(p.GetRecord())
		return item, item.Sequence, nil
	case g.GetFrom() == 0 || g.GetFrom() > g.GetTo() || g.GetTo() != item.Sequence:
		return regions.Item{}, 0, badPeer("gap", "its range does not end at the item's sequence")
	}
	kind := regions.GapKind(g.GetKind())
	switch kind {
	case regions.Withheld, regions.Expired, regions.Purged, regions.Erased, regions.Void, regions.Damaged:
	default:
		return regions.Item{}, 0, badPeer("gap", "its kind is not known to this version")
	}
	item.Gap = &regions.Gap{Kind: kind, From: g.GetFrom(), To: g.GetTo(), Code: api.Code(g.GetCode()), Side: g.GetSide(), Revision: g.GetPolicyRevision()}
	return item, g.GetFrom(), nil
}

// MirrorReplyToProto makes the message of a reply.
func MirrorReplyToProto(r regions.MirrorReply) *pb.MirrorResponse {
	c := r.Cursor
	return &pb.MirrorResponse{
		Incarnation: c.Incarnation, Epoch: EpochToProto(c.Epoch), Sequence: c.Sequence, TimeUnixNano: TimeToProto(c.Time),
		Ledger:  LedgerToProto(c.Ledger),
		Refused: string(r.Refused), Field: r.Field, Hint: r.Hint, RetryAfterNano: int64(r.RetryAfter),
	}
}

// MirrorReplyFromProto reads a reply. One with a text that no correct node sends is refused.
func MirrorReplyFromProto(m *pb.MirrorResponse) (regions.MirrorReply, error) {
	err := tokens("incarnation", m.GetIncarnation(), "epoch", m.GetEpoch().GetIssuer(), "refused", m.GetRefused(), "field", m.GetField())
	if h := m.GetHint(); err == nil && api.Printable(h, maxHint) != h {
		err = badPeer("hint", "it is too long, or not printable")
	}
	if err != nil {
		return regions.MirrorReply{}, err
	}
	return regions.MirrorReply{
		Cursor: regions.Cursor{Incarnation: m.GetIncarnation(), Epoch: EpochFromProto(m.GetEpoch()), Sequence: m.GetSequence(),
			Time: TimeFromProto(m.GetTimeUnixNano()), Ledger: LedgerFromProto(m.GetLedger())},
		Refused: api.Code(m.GetRefused()), Field: m.GetField(), Hint: text(m.GetHint()),
		RetryAfter: min(max(time.Duration(m.GetRetryAfterNano()), 0), longestAsk),
	}, nil
}

// LedgerToProto makes the message of a ledger.
func LedgerToProto(l regions.Ledger) *pb.LedgerSum {
	return &pb.LedgerSum{Mirrored: l.Mirrored, Withheld: l.Withheld, Expired: l.Expired, Purged: l.Purged, Erased: l.Erased, Void: l.Void, Damaged: l.Damaged}
}

// LedgerFromProto reads a ledger.
func LedgerFromProto(m *pb.LedgerSum) regions.Ledger {
	return regions.Ledger{
		Mirrored: m.GetMirrored(), Withheld: m.GetWithheld(), Expired: m.GetExpired(),
		Purged: m.GetPurged(), Erased: m.GetErased(), Void: m.GetVoid(), Damaged: m.GetDamaged(),
	}
}
