package wire_test

import (
	"bytes"
	"math/rand/v2"
	"reflect"
	"runtime"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"domicile/api"
	pb "domicile/api/domicile/v1"
	"domicile/api/wire"
	"domicile/regions"
)

// fuzzLane reads whatever comes on a lane: it is refused, or all its texts print.
func fuzzLane(f *testing.F, name string) {
	l := lanes()[name]
	whole, err := proto.Marshal(l.honest)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(whole)
	f.Add([]byte{})
	spoil(l.honest, "\x1b[2J", func(_ string, m proto.Message) {
		if b, err := proto.Marshal(m); err == nil {
			f.Add(b)
		}
	})
	f.Fuzz(func(t *testing.T, b []byte) {
		m := l.honest.ProtoReflect().New().Interface()
		if proto.Unmarshal(b, m) != nil {
			return
		}
		got, err := l.read(m)
		if err != nil {
			return
		}
		texts(reflect.ValueOf(got), func(s string) {
			if api.Printable(s, 8<<10) != s {
				t.Errorf("%.60q comes through", s)
			}
		})
	})
}

func FuzzHello(f *testing.F)       { fuzzLane(f, "hello") }
func FuzzWatermarks(f *testing.F)  { fuzzLane(f, "watermarks") }
func FuzzTail(f *testing.F)        { fuzzLane(f, "tail") }
func FuzzForward(f *testing.F)     { fuzzLane(f, "forward") }
func FuzzMirrorReply(f *testing.F) { fuzzLane(f, "reply") }

// handovers are the messages between the nodes of a region, and how each is read.
func handovers() map[string]struct {
	honest []byte
	read   func([]byte) error
} {
	type lane = struct {
		honest []byte
		read   func([]byte) error
	}
	must := func(b []byte, err error) []byte {
		if err != nil {
			panic(err)
		}
		return b
	}
	now := time.Unix(1000, 0)
	record := wire.Numbered{Number: 7, Forward: regions.Forward{Record: api.Record{ID: "a", Topic: "orders", Body: []byte("x")},
		Principal: regions.Principal{Name: "app", Kind: "client"}, Deadline: now.Add(time.Second)}}
	word := &pb.PolicyAsk{Word: &pb.PolicyWord{}}
	return map[string]lane{
		"hand-over": {must(wire.EncodeHandOver(3, []wire.Numbered{record}, now)),
			func(b []byte) error { _, _, err := wire.DecodeHandOver(b, now, time.Second); return err }},
		"taken": {must(wire.EncodeTaken([]uint64{1, 2})), func(b []byte) error { _, err := wire.DecodeTaken(b); return err }},
		"outcomes": {must(wire.EncodeOutcomes([]wire.Numbered{{Number: 7, Ack: api.Ack{ID: "a"}}, {Number: 8, Err: &api.Error{Code: api.Overloaded}}})),
			func(b []byte) error { _, err := wire.DecodeOutcomes(b); return err }},
		"read over": {must(wire.EncodeReadOver(&wire.ReadOver{Term: 1, Request: &pb.ReadRequest{Topic: "orders"}})),
			func(b []byte) error { _, err := wire.DecodeReadOver(b); return err }},
		"read part": {must(wire.EncodeReadPart(&pb.ReadResponse{}, true)),
			func(b []byte) error { _, _, err := wire.DecodeReadPart(b); return err }},
		"ask":    {must(wire.EncodeAsk(&pb.AskOver{})), func(b []byte) error { _, err := wire.DecodeAsk(b); return err }},
		"answer": {must(wire.EncodeAnswer(&pb.AskAnswer{})), func(b []byte) error { _, err := wire.DecodeAnswer(b); return err }},
		"policy": {must(wire.EncodePolicyAsk(word)), func(b []byte) error { _, err := wire.DecodePolicyAsk(b); return err }},
		"told": {must(wire.EncodePolicyTold(&pb.PolicyTold{Word: &pb.PolicyWord{}})),
			func(b []byte) error { _, err := wire.DecodePolicyTold(b); return err }},
	}
}

func FuzzHandOver(f *testing.F) {
	all := handovers()
	for _, h := range all {
		f.Add(h.honest)
	}
	f.Fuzz(func(_ *testing.T, b []byte) {
		for _, h := range all {
			_ = h.read(b) // refused or read, and nothing worse
		}
	})
}

// A thousand messages between nodes at random and a thousand that are right but for some
// bytes; and one of the largest that may come, of nothing but empty records, which is refused
// before it takes the memory that they would.
func TestFA7_AThousandLiesBetweenNodes(t *testing.T) {
	random := rand.New(rand.NewPCG(7, 0x41))
	for name, h := range handovers() {
		if err := h.read(h.honest); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		for i := range 2000 {
			b := bytes.Clone(h.honest)
			if i%2 == 0 {
				b = make([]byte, random.IntN(200))
			}
			for range 1 + len(b)/8 {
				if len(b) > 0 {
					b[random.IntN(len(b))] = byte(random.Uint32())
				}
			}
			_ = h.read(b)
		}
	}
	for name, empty := range map[string][]byte{"hand-over": {0x12, 0}, "outcomes": {0x0a, 0}} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		err := handovers()[name].read(bytes.Repeat(empty, 1<<20))
		runtime.ReadMemStats(&after)
		if took := (after.TotalAlloc - before.TotalAlloc) >> 20; api.CodeOf(err) != api.BadRequest || took > 16 {
			t.Errorf("%s of a million: %v, with %d MiB", name, err, took)
		}
	}
}
