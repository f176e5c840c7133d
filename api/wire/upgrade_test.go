package wire_test

import (
	"encoding/hex"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"

	"domicile/api"
	pb "domicile/api/domicile/v1"
	"domicile/api/wire"
	"domicile/regions"
)

var freeze = flag.Bool("freeze", false, "write the fixtures that are not there yet; one that is there is never written again")

// frozen is the folder of what version 1 of the wire wrote.
const frozen = "testdata/version-1"

// message is one message of version 1, and what it says.
type message struct {
	wrote func() proto.Message
	read  func(b []byte) (any, error)
	want  any
}

var (
	thatTime  = time.Date(2026, 11, 29, 20, 0, 0, 123456789, time.UTC)
	thatLog   = api.LogID{Tenant: api.DefaultTenant, Topic: "orders", Slot: "eu-west"}
	thatEpoch = api.Epoch{Term: 1, Counter: 2, Issuer: "eu-west"}
)

func thatRecord() api.Record {
	return api.Record{ID: "o-1", Topic: "orders", Key: "k", Body: []byte("body \x00\xff"), EventTime: thatTime.Add(-time.Second),
		Tags:    []api.Tag{{Name: "class", Value: "order"}, {Name: "residency", Value: "eu"}},
		Headers: []api.Header{{Name: "Trace", Value: "t"}, {Name: "Trace", Value: ""}}}
}

// reading decodes bytes as M and turns them into a value of ours.
func reading[M proto.Message, V any](empty func() M, value func(M) (V, error)) func([]byte) (any, error) {
	return func(b []byte) (any, error) {
		m := empty()
		if err := proto.Unmarshal(b, m); err != nil {
			return nil, err
		}
		return value(m)
	}
}

func sure[M, V any](f func(M) V) func(M) (V, error) { return func(m M) (V, error) { return f(m), nil } }

// versionOne is every message that crosses between two regions, and what a client is
// told of its record.
func versionOne() map[string]message {
	hello := regions.Hello{Federation: "example", Region: "eu-west", FabricID: "f1", BootID: "b1", Version: "v1", WireVersion: 1, OldestWire: 1,
		PolicySerial: 7, PolicyRevision: "7-abc", ManifestDigest: "d1", TopicDigests: map[string]string{"orders": "d2"},
		TopicFields: map[string]map[string]string{"orders": {"writes": "local"}}, CertificateEnds: thatTime.Add(24 * time.Hour)}
	marks := regions.Watermarks{Issued: thatTime, Instant: thatTime.Add(-time.Millisecond), All: true, Refused: 3,
		Logs: []regions.LogMark{{Log: thatLog, Incarnation: "i1", Epoch: thatEpoch, Term: 4, Head: 9, HeadTime: thatTime, Closed: thatTime, First: 2, Digest: "d2"}}}
	forward := regions.Forward{Record: thatRecord(), Log: thatLog, Deadline: thatTime.Add(3 * time.Second), Serial: 7, Revision: "7-abc",
		Principal: regions.Principal{Name: "n", Kind: "client", Class: "app", Place: "us-east"}}
	open := regions.MirrorOpen{Log: thatLog, Incarnation: "i1", Epoch: thatEpoch, Head: 9, Digest: "d2"}
	batch := regions.MirrorBatch{Incarnation: "i1", Serial: 7, Revision: "7-abc", Items: []regions.Item{
		{Sequence: 4, Epoch: thatEpoch, Term: 4, Time: thatTime, Gap: &regions.Gap{Kind: regions.Withheld, From: 2, To: 4, Code: api.ResidencyDenied, Side: "egress", Revision: "7-abc"}},
		{Sequence: 5, Epoch: thatEpoch, Term: 4, Time: thatTime, Revision: "7-abc", Record: thatRecord()}}}
	reply := regions.MirrorReply{Refused: api.PolicySkew, Field: "f", Hint: "h", RetryAfter: time.Second, Cursor: regions.Cursor{Incarnation: "i1",
		Epoch: thatEpoch, Sequence: 5, Time: thatTime, Ledger: regions.Ledger{Mirrored: 1, Withheld: 3, Expired: 1, Purged: 2, Erased: 4, Void: 5}}}
	ack := api.Ack{ID: "o-1", IDMade: true, Topic: "orders", Log: thatLog, Region: "eu-west", Incarnation: "i1", Epoch: thatEpoch, WriterTerm: 4, Sequence: 5,
		IngestTime: thatTime, Durability: api.Disk1, Duplicate: true, Forwarded: true, EventTimeOdd: true, PolicyRevision: "7-abc", Position: "p1.x"}
	return map[string]message{
		"hello":      {func() proto.Message { return wire.HelloToProto(hello) }, reading(func() *pb.PeerHello { return &pb.PeerHello{} }, wire.HelloFromProto), hello},
		"watermarks": {func() proto.Message { return wire.WatermarksToProto(marks) }, reading(func() *pb.WatermarkList { return &pb.WatermarkList{} }, wire.WatermarksFromProto), marks},
		"forward": {func() proto.Message { return wire.ForwardToProto(3, &forward, thatTime) }, reading(func() *pb.ForwardRequest { return &pb.ForwardRequest{} },
			func(m *pb.ForwardRequest) (regions.Forward, error) {
				return wire.ForwardFromProto(m, thatTime, time.Minute)
			}), forward},
		"open":  {func() proto.Message { return wire.MirrorOpenToProto(open) }, reading(func() *pb.MirrorOpen { return &pb.MirrorOpen{} }, wire.MirrorOpenFromProto), open},
		"batch": {func() proto.Message { return wire.MirrorBatchToProto(&batch) }, reading(func() *pb.MirrorBatch { return &pb.MirrorBatch{} }, wire.MirrorBatchFromProto), batch},
		"reply": {func() proto.Message { return wire.MirrorReplyToProto(reply) }, reading(func() *pb.MirrorResponse { return &pb.MirrorResponse{} }, wire.MirrorReplyFromProto), reply},
		"ack":   {func() proto.Message { return wire.AckToProto(ack) }, reading(func() *pb.Ack { return &pb.Ack{} }, sure(wire.AckFromProto)), ack},
	}
}

// Issue 3, build 7: what version 1 of the wire wrote is read as it was meant, and a
// field that this version does not know is stepped over.
func TestUpgrade_MessagesOfVersion1AreRead(t *testing.T) {
	for name, m := range versionOne() {
		t.Run(name, func(t *testing.T) {
			b := thawed(t, name, func() ([]byte, error) { return proto.MarshalOptions{Deterministic: true}.Marshal(m.wrote()) })
			unknown := protowire.AppendString(protowire.AppendTag(slices.Clone(b), 9999, protowire.BytesType), "later")
			for _, bytes := range [][]byte{b, unknown} {
				got, err := m.read(bytes)
				if err != nil {
					t.Fatal(err)
				}
				if d := cmp.Diff(m.want, got, sameTimes); d != "" {
					t.Fatal(d)
				}
			}
		})
	}
}

// An older node reads what this one writes only while no field of the wire has changed
// its number, type or name; fields and messages may be added.
func TestUpgrade_FieldsOfVersion1Stay(t *testing.T) {
	var then descriptorpb.FileDescriptorSet
	err := proto.Unmarshal(thawed(t, "schema", func() ([]byte, error) {
		return proto.MarshalOptions{Deterministic: true}.Marshal(schema())
	}), &then)
	if err != nil || len(then.GetFile()) == 0 {
		t.Fatalf("%d files, %v", len(then.GetFile()), err)
	}
	fields := 0
	for _, file := range then.GetFile() {
		for _, m := range file.GetMessageType() {
			fields += stays(t, protoreflect.FullName(file.GetPackage()).Append(protoreflect.Name(m.GetName())), m)
		}
	}
	if fields < 100 {
		t.Errorf("only %d fields were compared", fields)
	}
}

func stays(t *testing.T, name protoreflect.FullName, then *descriptorpb.DescriptorProto) (compared int) {
	found, err := protoregistry.GlobalFiles.FindDescriptorByName(name)
	now, ok := found.(protoreflect.MessageDescriptor)
	if err != nil || !ok {
		t.Errorf("message %s is gone", name)
		return 0
	}
	for _, f := range then.GetField() {
		compared++
		d := now.Fields().ByNumber(protoreflect.FieldNumber(f.GetNumber()))
		if d == nil {
			t.Errorf("%s: field %d, %s, is gone", name, f.GetNumber(), f.GetName())
			continue
		}
		g := protodesc.ToFieldDescriptorProto(d)
		if g.GetName() != f.GetName() || g.GetType() != f.GetType() || g.GetLabel() != f.GetLabel() || g.GetTypeName() != f.GetTypeName() {
			t.Errorf("%s: field %d was %s %s, is %s %s", name, f.GetNumber(), f.GetName(), f.GetType(), g.GetName(), g.GetType())
		}
	}
	for _, n := range then.GetNestedType() {
		compared += stays(t, name.Append(protoreflect.Name(n.GetName())), n)
	}
	return compared
}

// schema is the wire as this binary has it.
func schema() *descriptorpb.FileDescriptorSet {
	set := &descriptorpb.FileDescriptorSet{}
	protoregistry.GlobalFiles.RangeFilesByPackage("domicile.v1", func(f protoreflect.FileDescriptor) bool {
		set.File = append(set.File, protodesc.ToFileDescriptorProto(f))
		return true
	})
	slices.SortFunc(set.File, func(a, b *descriptorpb.FileDescriptorProto) int { return strings.Compare(a.GetName(), b.GetName()) })
	return set
}

// thawed reads a fixture, hexadecimal in lines; with -freeze it is written first if it
// is not there.
func thawed(t *testing.T, name string, fresh func() ([]byte, error)) []byte {
	t.Helper()
	path := filepath.Join(frozen, name+".hex")
	if _, err := os.Stat(path); err != nil && *freeze {
		b, err := fresh()
		if err != nil {
			t.Fatal(err)
		}
		var lines strings.Builder
		for part := range slices.Chunk(b, 48) {
			lines.WriteString(hex.EncodeToString(part) + "\n")
		}
		if err := os.WriteFile(path, []byte(lines.String()), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	b, err := hex.DecodeString(strings.ReplaceAll(string(text), "\n", ""))
	if err != nil {
		t.Fatal(err)
	}
	return b
}
