package wire_test

import (
	"context"
	"errors"
	"io"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	statuspb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"domicile/api"
	pb "domicile/api/domicile/v1"
	"domicile/api/wire"
)

func drawRecord(t *rapid.T) api.Record {
	text := rapid.StringN(0, 8, 32)
	r := api.Record{
		ID: text.Draw(t, "id"), Topic: text.Draw(t, "topic"), Key: text.Draw(t, "key"),
		Body: rapid.SliceOfN(rapid.Byte(), 1, 64).Draw(t, "body"),
	}
	for range rapid.IntRange(0, 3).Draw(t, "tags") {
		r.Tags = append(r.Tags, api.Tag{Name: text.Draw(t, "name"), Value: text.Draw(t, "value")})
	}
	for range rapid.IntRange(0, 3).Draw(t, "headers") {
		r.Headers = append(r.Headers, api.Header{Name: text.Draw(t, "name"), Value: text.Draw(t, "value")})
	}
	if n := rapid.Int64().Draw(t, "time"); n != 0 {
		r.EventTime = time.Unix(0, n).UTC()
	}
	r.SortTags()
	return r
}

// overWire is what the other side of a connection sees of a message.
func overWire[M proto.Message](t rapid.TB, m, into M) M {
	b, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	if err := proto.Unmarshal(b, into); err != nil {
		t.Fatal(err)
	}
	return into
}

func TestRD1_RecordSurvivesTheWire(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := drawRecord(t)
		got := wire.RecordFromProto(overWire(t, wire.RecordToProto(&want), &pb.Record{}))
		// Equal tag names may be reordered by the sort; compare as sets.
		byText := cmpopts.SortSlices(func(a, b api.Tag) bool { return a.Name+"\x00"+a.Value < b.Name+"\x00"+b.Value })
		if d := cmp.Diff(want, got, cmpopts.EquateEmpty(), byText); d != "" {
			t.Fatal(d)
		}
	})
}

func TestRA1_AckSurvivesTheWire(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringN(1, 8, 32)
		want := api.Ack{
			ID: text.Draw(t, "id"), IDMade: rapid.Bool().Draw(t, "made"),
			Log:    api.LogID{Tenant: text.Draw(t, "tenant"), Topic: text.Draw(t, "topic"), Slot: text.Draw(t, "slot")},
			Region: text.Draw(t, "region"), Incarnation: text.Draw(t, "incarnation"),
			Epoch:      api.Epoch{Term: rapid.Uint32().Draw(t, "term"), Counter: rapid.Uint64().Draw(t, "counter"), Issuer: text.Draw(t, "issuer")},
			WriterTerm: rapid.Uint64().Draw(t, "writer"), Sequence: rapid.Uint64().Draw(t, "sequence"),
			IngestTime: time.Unix(0, rapid.Int64Min(1).Draw(t, "ingest")).UTC(), Durability: api.Disk1,
			Duplicate: rapid.Bool().Draw(t, "duplicate"), Forwarded: rapid.Bool().Draw(t, "forwarded"),
			EventTimeOdd: rapid.Bool().Draw(t, "odd"), PolicyRevision: text.Draw(t, "revision"), Position: api.Position(text.Draw(t, "position")),
		}
		want.Topic = want.Log.Topic
		got := wire.AckFromProto(overWire(t, wire.AckToProto(want), &pb.Ack{}))
		if d := cmp.Diff(want, got); d != "" {
			t.Fatal(d)
		}
	})
}

func TestRA5_ErrorSurvivesTheWire(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringN(0, 8, 32)
		want := &api.Error{
			Code: api.Code(rapid.StringN(1, 8, 32).Draw(t, "code")), Op: text.Draw(t, "op"), Topic: text.Draw(t, "topic"),
			Region: text.Draw(t, "region"), Field: text.Draw(t, "field"), Value: text.Draw(t, "value"), Hint: text.Draw(t, "hint"), Reason: text.Draw(t, "reason"), Rule: text.Draw(t, "rule"),
			RetryAfter: time.Duration(rapid.Int64().Draw(t, "after")), For: time.Duration(rapid.Int64().Draw(t, "for")), Revision: text.Draw(t, "revision"),
		}
		if rapid.Bool().Draw(t, "log") {
			want.Log = api.LogID{Tenant: api.DefaultTenant, Topic: "orders", Slot: "eu-west"}
		}
		if rapid.Bool().Draw(t, "cause") {
			want.Err = errors.New(text.Draw(t, "cause text"))
		}
		got := wire.ErrorFromStatus(overWire(t, wire.StatusFromError(want), &statuspb.Status{}))
		if got.Error() != want.Error() || api.CodeOf(got) != want.Code {
			t.Fatalf("sent %v, got %v", want, got)
		}
		if d := cmp.Diff(want, got, cmpopts.IgnoreFields(api.Error{}, "Err")); d != "" {
			t.Fatal(d)
		}
	})
}

func TestRA5_FailureWithoutOurDetailIsOutcomeUnknown(t *testing.T) {
	for name, err := range map[string]error{
		"transport":      status.Error(codes.Unavailable, "connection reset"),
		"deadline":       context.DeadlineExceeded,
		"foreign detail": foreignDetail(t),
		"not gRPC":       io.ErrUnexpectedEOF,
	} {
		if c := api.CodeOf(wire.ErrorFromGRPC(err)); c != api.OutcomeUnknown {
			t.Errorf("%s: got %s", name, c)
		}
	}
	if wire.ErrorFromGRPC(nil) != nil || wire.GRPCError(nil) != nil || wire.ErrorFromStatus(nil) != nil {
		t.Error("nil is not an error")
	}
	if c := api.CodeOf(wire.ErrorFromStatus(wire.StatusFromError(errors.New("disk on fire")))); c != api.OutcomeUnknown {
		t.Errorf("an error that is not ours became %s", c)
	}
}

func foreignDetail(t *testing.T) error {
	s, err := status.New(codes.PermissionDenied, "no").WithDetails(&pb.ErrorDetail{})
	if err != nil {
		t.Fatal(err)
	}
	return s.Err()
}

func TestErrorKeepsItsCodeThroughGRPC(t *testing.T) {
	in := &api.Error{Code: api.HomeUnreachable, Region: "eu-west", For: time.Minute, Hint: "send it again"}
	out := wire.ErrorFromGRPC(wire.GRPCError(in))
	if d := cmp.Diff(error(in), out); d != "" {
		t.Fatal(d)
	}
	if status.Code(wire.GRPCError(in)) != codes.Unavailable {
		t.Errorf("gRPC code %v", status.Code(wire.GRPCError(in)))
	}
}

func TestTimeFits(t *testing.T) {
	for _, c := range []struct {
		t    time.Time
		fits bool
	}{
		{time.Time{}, true}, {time.Unix(1, 0), true}, {time.Unix(0, 0), false},
		{time.Date(1500, 1, 1, 0, 0, 0, 0, time.UTC), false}, {time.Date(3000, 1, 1, 0, 0, 0, 0, time.UTC), false},
		{time.Date(1700, 1, 1, 0, 0, 0, 0, time.UTC), true}, {time.Date(2261, 1, 1, 0, 0, 0, 0, time.UTC), true},
	} {
		if wire.TimeFits(c.t) != c.fits {
			t.Errorf("%v: fits %v", c.t, !c.fits)
		}
		if c.fits && !wire.TimeFromProto(wire.TimeToProto(c.t)).Equal(c.t) {
			t.Errorf("%v does not survive", c.t)
		}
	}
}

func FuzzFromProto(f *testing.F) {
	r := api.Record{ID: "a", Topic: "orders", Tags: []api.Tag{{Name: "residency", Value: "eu"}}, Headers: []api.Header{{Name: "h", Value: "v"}}, Body: []byte("x")}
	seed, err := proto.Marshal(wire.RecordToProto(&r))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(seed)
	seed, err = proto.Marshal(wire.StatusFromError(&api.Error{Code: api.BadTag, Field: "tags"}))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(seed)
	f.Fuzz(func(t *testing.T, b []byte) {
		var m pb.Record
		if proto.Unmarshal(b, &m) == nil {
			r := wire.RecordFromProto(&m)
			again := wire.RecordFromProto(wire.RecordToProto(&r))
			if d := cmp.Diff(r, again, cmpopts.EquateEmpty()); d != "" {
				t.Fatal(d)
			}
		}
		var a pb.Ack
		if proto.Unmarshal(b, &a) == nil {
			ack := wire.AckFromProto(&a)
			ack.Log.Tenant = api.DefaultTenant
			if d := cmp.Diff(ack, wire.AckFromProto(wire.AckToProto(ack))); d != "" {
				t.Fatal(d)
			}
		}
		var s statuspb.Status
		if proto.Unmarshal(b, &s) == nil {
			if err := wire.ErrorFromStatus(&s); err != nil && err.Error() == "" {
				t.Fatal("an error without a text")
			}
		}
	})
}
