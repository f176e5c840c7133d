package wire_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"time"

	statuspb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"domicile/api"
	pb "domicile/api/domicile/v1"
	"domicile/api/wire"
	"domicile/regions"
)

const esc = "\x1b[2J\x1b]0;owned\x07\r\nok: all is well \u202e\u200b"

// lanes are the messages that carry what another region says, filled as a correct node fills
// them, and how each is read. What is the content of a record is not of these.
func lanes() map[string]struct {
	honest proto.Message
	read   func(proto.Message) (any, error)
} {
	type lane = struct {
		honest proto.Message
		read   func(proto.Message) (any, error)
	}
	log := api.LogID{Tenant: api.DefaultTenant, Topic: "orders", Slot: "eu-west"}
	epoch := api.StaticEpoch("eu-west")
	tail := regions.TailList{Log: log, Incarnation: "i", Epoch: epoch, Head: 9, Entries: []regions.TailEntry{{From: 7,
		Sequence: 7}, {From: 8, Sequence: 9, Kind: regions.Purged}}}
	refusal := wire.StatusFromError(&api.Error{Code: api.PermissionDenied, Op: "o", Topic: "t", Region: "r", Field: "f",
		Value: "v", Hint: "h", Revision: "1", Reason: "x", Rule: "y", Drill: "d", Log: log, Err: errors.New("cause")})
	return map[string]lane{
		"hello": {wire.HelloToProto(regions.Hello{Federation: "shop", Region: "eu-west", FabricID: "f", BootID: "b", WireVersion: 2, OldestWire: 1,
			Version: "v1", PolicyRevision: "7-a", ManifestDigest: "d", Gateway: "a", PolicySigners: "s",
			TopicDigests: map[string]string{"orders": "d"},
			TopicFields:  map[string]map[string]string{"orders": {"writes": "local"}}, Incarnations: map[api.LogID]string{log: "i"}}),
			func(m proto.Message) (any, error) { return wire.HelloFromProto(m.(*pb.PeerHello)) }},
		"watermarks": {wire.WatermarksToProto(regions.Watermarks{Logs: []regions.LogMark{{Log: log, Incarnation: "i",
			Epoch: epoch, Digest: "d"}}}),
			func(m proto.Message) (any, error) { return wire.WatermarksFromProto(m.(*pb.WatermarkList)) }},
		"tail": {wire.TailToProto(&tail), func(m proto.Message) (any, error) { return wire.TailFromProto(m.(*pb.TailList)) }},
		"forward": {wire.ForwardToProto(1, &regions.Forward{Log: log, Revision: "7-a",
			Principal: regions.Principal{Name: "n", Kind: "client", Class: "app", Place: "eu-west"},
			Record:    api.Record{Retry: api.Retry{Again: true, Log: log}}}, time.Now()),
			func(m proto.Message) (any, error) {
				f, err := wire.ForwardFromProto(m.(*pb.ForwardRequest), time.Now(), time.Second)
				f.Record = api.Record{Retry: f.Record.Retry}
				return f, err
			}},
		"reply": {wire.MirrorReplyToProto(regions.MirrorReply{Cursor: regions.Cursor{Incarnation: "i", Epoch: epoch},
			Refused: api.PolicySkew, Field: "f", Hint: "h"}),
			func(m proto.Message) (any, error) { return wire.MirrorReplyFromProto(m.(*pb.MirrorResponse)) }},
		"ack": {wire.AckToProto(api.Ack{ID: "x", Log: log, Region: "eu-west", Incarnation: "i", Epoch: epoch,
			Durability: api.Disk1, PolicyRevision: "7-a", Position: "p1.x", Copies: []string{"eu-central"}, Drill: "d"}),
			func(m proto.Message) (any, error) { return wire.PeerAck(m.(*pb.Ack)) }},
		"refusal": {refusal.GetDetails()[0].ProtoReflect().Interface(), nil},
	}
}

// texts are all that a value holds.
func texts(v reflect.Value, found func(string)) {
	switch v.Kind() {
	case reflect.String:
		found(v.String())
	case reflect.Pointer, reflect.Interface:
		if !v.IsNil() {
			texts(v.Elem(), found)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			texts(v.Field(i), found)
		}
	case reflect.Slice:
		for i := range v.Len() {
			texts(v.Index(i), found)
		}
	case reflect.Map:
		for _, k := range v.MapKeys() {
			texts(k, found)
			texts(v.MapIndex(k), found)
		}
	}
}

// spoil replaces a message's texts by others, one after the other, each in a copy of its own;
// keys of maps as well.
func spoil(m proto.Message, bad string, each func(where string, spoiled proto.Message)) {
	for n := 0; ; n++ {
		c, at, where := proto.Clone(m), 0, ""
		var walk func(protoreflect.Message)
		walk = func(m protoreflect.Message) {
			m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
				hit := func() bool { at++; return at-1 == n }
				switch {
				case f.IsMap():
					entries := v.Map()
					entries.Range(func(k protoreflect.MapKey, v protoreflect.Value) bool {
						switch {
						case hit():
							where = string(f.Name()) + " (key)"
							entries.Set(protoreflect.ValueOfString(bad).MapKey(), v)
						case f.MapValue().Message() != nil:
							walk(v.Message())
						case hit():
							where = string(f.Name())
							entries.Set(k, protoreflect.ValueOfString(bad))
						}
						return true
					})
				case f.IsList() && f.Kind() == protoreflect.StringKind:
					if hit() {
						where = string(f.Name())
						v.List().Set(0, protoreflect.ValueOfString(bad))
					}
				case f.IsList() && f.Message() != nil:
					for i := range v.List().Len() {
						walk(v.List().Get(i).Message())
					}
				case f.Message() != nil:
					walk(v.Message())
				case f.Kind() == protoreflect.StringKind:
					if hit() {
						where = string(f.Name())
						m.Set(f, protoreflect.ValueOfString(bad))
					}
				}
				return true
			})
		}
		walk(c.ProtoReflect())
		if where == "" {
			return
		}
		each(where, c)
	}
}

// A4: whatever text a region puts where, it is refused, or bounded and printable once it is
// read. All lanes, all fields.
func TestFA4_EveryTextOfAPeerPrints(t *testing.T) {
	check := func(where string, got any) {
		t.Helper()
		texts(reflect.ValueOf(got), func(s string) {
			if api.Printable(s, 8<<10) != s {
				t.Errorf("%s: %.60q comes through", where, s)
			}
		})
	}
	for name, l := range lanes() {
		if l.read == nil {
			continue
		}
		if _, err := l.read(l.honest); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		spoiled := 0
		for _, bad := range []string{esc, strings.Repeat("a", 1<<20)} {
			spoil(l.honest, bad, func(where string, m proto.Message) {
				spoiled++
				got, err := l.read(m)
				check(fmt.Sprintf("%s %s, refused with %v", name, where, err), err)
				if err == nil {
					check(name+" "+where, got)
				}
			})
		}
		if spoiled < 6 {
			t.Errorf("%s: only %d texts were found", name, spoiled)
		}
	}
}

func TestFA4_ErrorsOfPeersPrint(t *testing.T) {
	long := strings.Repeat("a", 1<<20)
	for name, err := range map[string]error{
		"plain": status.Error(codes.Unavailable, esc+long),
		"detailed": wire.GRPCError(&api.Error{Code: api.PermissionDenied, Op: esc, Topic: esc, Region: esc, Field: esc,
			Value: esc, Hint: esc + long, Reason: esc, Rule: esc, Drill: esc, Revision: esc, Err: errors.New(esc)}),
		"no code": wire.GRPCError(&api.Error{Code: esc, Hint: esc}),
		"unknown": wire.GRPCError(&api.Error{Code: api.OutcomeUnknown, Hint: esc}),
	} {
		got := wire.FromPeer(fmt.Errorf("wrapped: %w", err))
		if s := got.Error(); api.Printable(s, 16<<10) != s {
			t.Errorf("%s: %.200q", name, s)
		}
	}
	if got := wire.PeerStatus(&statuspb.Status{Code: int32(codes.Internal), Message: esc}); strings.ContainsAny(got.Error(), "\x1b\n") {
		t.Errorf("%q", got)
	}
	ours := &api.Error{Code: api.NotReady, Hint: "two\nlines"}
	if wire.FromPeer(ours) != ours || wire.FromPeer(nil) != nil || !errors.Is(wire.FromPeer(status.Error(codes.Canceled,
		"x")), status.Error(codes.Canceled, "x")) {
		t.Error("what is not a peer's text was changed")
	}
	long1 := wire.FromPeer(wire.GRPCError(&api.Error{Code: api.Overloaded, RetryAfter: 1000 * time.Hour}))
	var e *api.Error
	if !errors.As(long1, &e) || e.RetryAfter > time.Hour {
		t.Errorf("a peer has us wait %v", long1)
	}
}

// A thousand messages at random, and a thousand that are right but for one thing, on each lane:
// each is read or refused.
func TestFA7_AThousandLiesOnEachLane(t *testing.T) {
	random := rand.New(rand.NewPCG(7, 0x41))
	for name, l := range lanes() {
		if l.read == nil {
			continue
		}
		whole, err := proto.Marshal(l.honest)
		if err != nil {
			t.Fatal(err)
		}
		read := 0
		for i := range 2000 {
			b := append([]byte(nil), whole...)
			if i%2 == 0 {
				b = make([]byte, random.IntN(200))
			}
			for range 1 + random.IntN(1+len(b)/(1+i%2*16)) {
				if len(b) > 0 {
					b[random.IntN(len(b))] = byte(random.Uint32())
				}
			}
			m := l.honest.ProtoReflect().New().Interface()
			if proto.Unmarshal(b, m) != nil {
				continue
			}
			if _, err := l.read(m); err == nil {
				read++
			}
		}
		t.Logf("%s: %d of 2000 can be read", name, read)
	}
}
