package wire_test

import (
	"bytes"
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"domicile/api"
	pb "domicile/api/domicile/v1"
	"domicile/api/wire"
	"domicile/regions"
)

var sameTimes = cmp.Options{cmpopts.EquateEmpty(), cmp.Comparer(func(a, b time.Time) bool { return a.Equal(b) })}

func drawTime(t *rapid.T, name string) time.Time {
	if rapid.Bool().Draw(t, name+" given") {
		return time.Unix(0, rapid.Int64Range(1, math.MaxInt64-1).Draw(t, name))
	}
	return time.Time{}
}

func drawForwarded(t *rapid.T) api.Record {
	r := api.Record{
		ID: rapid.StringMatching(`[a-z0-9]{1,12}`).Draw(t, "id"), Topic: "orders", Key: rapid.String().Draw(t, "key"),
		Body: rapid.SliceOfN(rapid.Byte(), 1, 64).Draw(t, "body"), EventTime: drawTime(t, "event time"),
		Tags: []api.Tag{{Name: "residency", Value: rapid.SampledFrom([]string{"eu", "us"}).Draw(t, "residency")}, {Name: "class", Value: "order"}},
	}
	for range rapid.IntRange(0, 3).Draw(t, "headers") {
		r.Headers = append(r.Headers, api.Header{Name: "h", Value: rapid.String().Draw(t, "value")})
	}
	return r
}

// throughWire is what the other side reads.
func throughWire[M proto.Message](t interface{ Fatal(...any) }, m, into M) M {
	b, err := proto.Marshal(m)
	if err == nil {
		err = proto.Unmarshal(b, into)
	}
	if err != nil {
		t.Fatal(err)
	}
	return into
}

func drawLog(t *rapid.T) api.LogID {
	return api.LogID{Tenant: api.DefaultTenant, Topic: rapid.StringMatching(`[a-z]{1,8}`).Draw(t, "topic"), Slot: rapid.StringMatching(`[a-z]{1,8}`).Draw(t, "slot")}
}

func drawEpoch(t *rapid.T) api.Epoch {
	return api.Epoch{Term: rapid.Uint32().Draw(t, "term"), Counter: rapid.Uint64().Draw(t, "counter"), Issuer: rapid.StringMatching(`[a-z]{1,5}`).Draw(t, "issuer")}
}

func TestRD1_ForwardSurvivesTheWire(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		now := time.Unix(1_800_000_000, 0)
		left := time.Duration(rapid.Int64Range(0, int64(10*time.Second)).Draw(t, "left"))
		f := regions.Forward{
			Record: drawForwarded(t), Log: drawLog(t), Deadline: now.Add(left), Serial: rapid.Int64().Draw(t, "serial"), Revision: "7-abc",
			Principal: regions.Principal{Name: "n", Kind: "client", Class: "c", Place: "p"},
		}
		m := throughWire(t, wire.ForwardToProto(3, &f, now), &pb.ForwardRequest{})
		elsewhere := now.Add(-time.Hour) // the home's clock is another one
		got, err := wire.ForwardFromProto(m, elsewhere, 10*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		f.Deadline = elsewhere.Add(left)
		f.Record.SortTags()
		if d := cmp.Diff(f, got, sameTimes); d != "" {
			t.Fatal(d)
		}
	})
}

func TestR14c_BatchSurvivesTheWire(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := regions.MirrorBatch{Incarnation: "inc", Serial: 4, Revision: "4-a"}
		next := rapid.Uint64Range(1, math.MaxUint32).Draw(t, "first")
		for range rapid.IntRange(1, 8).Draw(t, "items") {
			it := regions.Item{Epoch: drawEpoch(t), Term: rapid.Uint64().Draw(t, "writer term"), Time: drawTime(t, "time"), Revision: "r"}
			if rapid.Bool().Draw(t, "gap") {
				to := next + rapid.Uint64Range(0, 1000).Draw(t, "length")
				kind := rapid.SampledFrom([]regions.GapKind{regions.Withheld, regions.Expired, regions.Purged, regions.Erased, regions.Void, regions.Damaged}).Draw(t, "kind")
				it.Gap = &regions.Gap{Kind: kind, From: next, To: to, Code: api.ResidencyDenied, Side: "egress", Revision: "4-a"}
				next = to
			} else {
				it.Record = drawForwarded(t)
				it.Record.SortTags()
			}
			it.Sequence = next
			next++
			b.Items = append(b.Items, it)
		}
		got, err := wire.MirrorBatchFromProto(throughWire(t, wire.MirrorBatchToProto(&b), &pb.MirrorBatch{}))
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(b, got, sameTimes); d != "" {
			t.Fatal(d)
		}
	})
}

func TestR14d_WatermarksSurviveTheWire(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := regions.Watermarks{Issued: drawTime(t, "issued"), Instant: drawTime(t, "instant"), All: rapid.Bool().Draw(t, "all"), Refused: rapid.IntRange(0, 1<<20).Draw(t, "refused")}
		for range rapid.IntRange(0, 5).Draw(t, "logs") {
			w.Logs = append(w.Logs, regions.LogMark{
				Log: drawLog(t), Incarnation: "i", Epoch: drawEpoch(t), Term: rapid.Uint64().Draw(t, "writer term"), Head: rapid.Uint64().Draw(t, "head"),
				HeadTime: drawTime(t, "head time"), Closed: drawTime(t, "closed"), First: rapid.Uint64().Draw(t, "oldest"), Digest: "d",
			})
		}
		got, err := wire.WatermarksFromProto(throughWire(t, wire.WatermarksToProto(w), &pb.WatermarkList{}))
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(w, got, sameTimes); d != "" {
			t.Fatal(d)
		}
	})
}

func TestR14f_TailListsSurviveTheWire(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := regions.TailList{Log: drawLog(t), Incarnation: "i", Epoch: drawEpoch(t), HeadTime: drawTime(t, "head time"), Closed: drawTime(t, "closed"),
			Key: regions.TailKey(rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "key"))}
		for range rapid.IntRange(0, 5).Draw(t, "entries") {
			e := regions.TailEntry{From: l.Head + rapid.Uint64Range(1, 1<<40).Draw(t, "after"), Time: drawTime(t, "time"), Bytes: rapid.Uint32().Draw(t, "bytes")}
			if e.Sequence = e.From; rapid.Bool().Draw(t, "gap") {
				e.Kind, e.Sequence = regions.Withheld, e.From+rapid.Uint64Range(0, 1<<20).Draw(t, "span")
			} else {
				e.ID = l.Key.Hash(rapid.String().Draw(t, "id"))
			}
			l.Head, l.Entries = e.Sequence, append(l.Entries, e)
		}
		got, err := wire.TailFromProto(throughWire(t, wire.TailToProto(&l), &pb.TailList{}))
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(l, got, sameTimes); d != "" {
			t.Fatal(d)
		}
	})
}

func TestPeerNounsSurviveTheWire(t *testing.T) {
	h := regions.Hello{
		Federation: "shop", Region: "eu-west", FabricID: "f", BootID: "b", Version: "v", WireVersion: 2, OldestWire: 1, PolicySerial: 9, PolicyRevision: "9-a",
		ManifestDigest: "m", TopicDigests: map[string]string{"orders": "d"}, TopicFields: map[string]map[string]string{"orders": {"writes": "local"}},
		CertificateEnds: time.Unix(1_900_000_000, 5), TakesTails: true,
	}
	gotHello, err := wire.HelloFromProto(throughWire(t, wire.HelloToProto(h), &pb.PeerHello{}))
	if d := cmp.Diff(h, gotHello, sameTimes); d != "" || err != nil {
		t.Error(d, err)
	}
	log := api.LogID{Tenant: "default", Topic: "orders", Slot: "eu-west"}
	o := regions.MirrorOpen{Log: log, Incarnation: "i", Epoch: api.StaticEpoch("eu-west"), Head: 7, Digest: "d"}
	if got, err := wire.MirrorOpenFromProto(throughWire(t, wire.MirrorOpenToProto(o), &pb.MirrorOpen{})); got != o || err != nil {
		t.Errorf("%+v %v", got, err)
	}
	r := regions.MirrorReply{
		Cursor:  regions.Cursor{Incarnation: "i", Epoch: api.StaticEpoch("eu-west"), Sequence: 21, Time: time.Unix(5, 6), Ledger: regions.Ledger{Mirrored: 1, Withheld: 2, Expired: 3, Purged: 4, Erased: 5, Void: 6, Damaged: 7}},
		Refused: api.PolicySkew, Field: "f", Hint: "h", RetryAfter: time.Second,
	}
	gotReply, err := wire.MirrorReplyFromProto(throughWire(t, wire.MirrorReplyToProto(r), &pb.MirrorResponse{}))
	if d := cmp.Diff(r, gotReply, sameTimes); d != "" || err != nil {
		t.Error(d, err)
	}
}

func TestPeerMessagesThatMakeNoSenseAreRefused(t *testing.T) {
	log := &pb.LogId{Topic: "orders", Slot: "eu-west"}
	record := &pb.Record{Id: "secret-id", Body: []byte("secret-body")}
	batch := func(items ...*pb.MirrorItem) error {
		_, err := wire.MirrorBatchFromProto(&pb.MirrorBatch{Items: items})
		return err
	}
	forward := func(m *pb.ForwardRequest) error {
		_, err := wire.ForwardFromProto(m, time.Now(), time.Second)
		return err
	}
	gap := func(seq, from, to uint64, kind string) *pb.MirrorItem {
		return &pb.MirrorItem{Sequence: seq, Gap: &pb.MirrorGap{Kind: kind, From: from, To: to}}
	}
	tail := func(change func(*pb.TailList)) error {
		m := &pb.TailList{Log: log, Incarnation: "i", Key: make([]byte, 16), Head: 9, Entries: []*pb.TailEntry{{Sequence: 3}}}
		change(m)
		_, err := wire.TailFromProto(m)
		return err
	}
	for name, err := range map[string]error{
		"tail without log":         tail(func(m *pb.TailList) { m.Log = nil }),
		"tail without incarnation": tail(func(m *pb.TailList) { m.Incarnation = "" }),
		"tail with half a key":     tail(func(m *pb.TailList) { m.Key = m.Key[:8] }),
		"tail beyond the head":     tail(func(m *pb.TailList) { m.Head = 2 }),
		"tail twice":               tail(func(m *pb.TailList) { m.Entries = append(m.Entries, m.Entries[0]) }),
		"tail of unknown kind":     tail(func(m *pb.TailList) { m.Entries[0].Kind = "lost" }),
		"tail from nothing":        tail(func(m *pb.TailList) { m.Entries[0].Kind, m.Entries[0].Before = "void", 3 }),
		"tail of a long record":    tail(func(m *pb.TailList) { m.Entries[0].Before = 1 }),
		"tail too long":            tail(func(m *pb.TailList) { m.Entries = make([]*pb.TailEntry, 513) }),
		"nil tail":                 func() error { _, err := wire.TailFromProto(nil); return err }(),
		"empty batch":              batch(),
		"neither":                  batch(&pb.MirrorItem{Sequence: 1}),
		"both":                     batch(&pb.MirrorItem{Sequence: 1, Record: record, Gap: &pb.MirrorGap{Kind: "void", From: 1, To: 1}}),
		"sequence 0":               batch(&pb.MirrorItem{Record: record}),
		"last sequence":            batch(&pb.MirrorItem{Sequence: math.MaxUint64, Record: record}),
		"hole":                     batch(&pb.MirrorItem{Sequence: 1, Record: record}, &pb.MirrorItem{Sequence: 3, Record: record}),
		"overlap":                  batch(&pb.MirrorItem{Sequence: 5, Record: record}, gap(7, 5, 7, "void")),
		"gap backwards":            batch(gap(3, 4, 3, "void")),
		"gap from nothing":         batch(gap(3, 0, 3, "void")),
		"gap elsewhere":            batch(gap(9, 1, 3, "void")),
		"gap of unknown kind":      batch(gap(3, 1, 3, "lost")),
		"nil item":                 batch(nil),
		"no record":                forward(&pb.ForwardRequest{Number: 1, Log: log}),
		"no log":                   forward(&pb.ForwardRequest{Number: 1, Record: record}),
		"half a log":               forward(&pb.ForwardRequest{Number: 1, Record: record, Log: &pb.LogId{Topic: "orders"}}),
		"no hello":                 func() error { _, err := wire.HelloFromProto(nil); return err }(),
		"mark without log": func() error {
			_, err := wire.WatermarksFromProto(&pb.WatermarkList{Logs: []*pb.Watermark{{}}})
			return err
		}(),
		"open without log": func() error { _, err := wire.MirrorOpenFromProto(&pb.MirrorOpen{}); return err }(),
	} {
		if api.CodeOf(err) != api.BadRequest {
			t.Errorf("%s: %v", name, err)
		} else if bytes.Contains([]byte(err.Error()), []byte("secret")) {
			t.Errorf("%s: the error holds record content: %v", name, err)
		}
	}
}

// Whatever a peer sends, reading it ends in a noun or in an error, and what was taken
// is what the rules allow.
func FuzzPeerFromProto(f *testing.F) {
	for _, m := range []proto.Message{
		&pb.ControlRequest{Frame: &pb.ControlRequest_Heartbeat{Heartbeat: &pb.Heartbeat{Number: 1, HearsYou: true}}},
		&pb.ControlRequest{Frame: &pb.ControlRequest_Watermarks{Watermarks: wire.WatermarksToProto(regions.Watermarks{Logs: []regions.LogMark{{Log: api.LogID{Topic: "t", Slot: "s"}}}})}},
		&pb.ControlRequest{Frame: &pb.ControlRequest_Hello{Hello: wire.HelloToProto(regions.Hello{TopicDigests: map[string]string{"t": "d"}})}},
		&pb.ForwardRequest{Number: 1, Record: &pb.Record{Id: "x"}, Log: &pb.LogId{Topic: "t", Slot: "s"}, TimeoutNano: -1},
		&pb.MirrorRequest{Frame: &pb.MirrorRequest_Batch{Batch: &pb.MirrorBatch{Items: []*pb.MirrorItem{{Sequence: 3, Gap: &pb.MirrorGap{Kind: "void", From: 1, To: 3}}}}}},
		&pb.MirrorResponse{Sequence: 3, Refused: "POLICY_SKEW", RetryAfterNano: -5},
	} {
		b, err := proto.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		now := time.Unix(1_800_000_000, 0)
		var control pb.ControlRequest
		if proto.Unmarshal(b, &control) == nil {
			_, _ = wire.HelloFromProto(control.GetHello())
			_, _ = wire.WatermarksFromProto(control.GetWatermarks())
			_, _ = wire.TailFromProto(control.GetTail())
		}
		var forward pb.ForwardRequest
		if proto.Unmarshal(b, &forward) == nil {
			if got, err := wire.ForwardFromProto(&forward, now, time.Second); err == nil && (got.Deadline.Before(now) || got.Deadline.After(now.Add(time.Second))) {
				t.Errorf("deadline %s", got.Deadline)
			}
		}
		var mirror pb.MirrorRequest
		if proto.Unmarshal(b, &mirror) == nil {
			_, _ = wire.MirrorOpenFromProto(mirror.GetOpen())
			if got, err := wire.MirrorBatchFromProto(mirror.GetBatch()); err == nil {
				checkDense(t, got.Items)
			}
		}
		var reply pb.MirrorResponse
		if proto.Unmarshal(b, &reply) == nil {
			if r, _ := wire.MirrorReplyFromProto(&reply); r.RetryAfter < 0 {
				t.Error("a wait below zero")
			}
		}
	})
}

func checkDense(t *testing.T, items []regions.Item) {
	var covered uint64
	for _, it := range items {
		if it.Gap != nil {
			covered += it.Gap.Count()
		} else {
			covered++
		}
	}
	first := items[0].Sequence
	if g := items[0].Gap; g != nil {
		first = g.From
	}
	if last := items[len(items)-1].Sequence; last-first+1 != covered {
		t.Errorf("%d to %d holds %d sequences", first, last, covered)
	}
}
