package wire_test

import (
	"bytes"
	"fmt"
	"runtime"
	"testing"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"domicile/api"
	pb "domicile/api/domicile/v1"
	"domicile/api/wire"
	"domicile/regions"
)

// Whatever a message is made of, reading it costs little more than the most that honest ones cost.
func TestFA_TooManyPartsAreCountedBeforeTheyAreRead(t *testing.T) {
	empty := func(path ...protowire.Number) []byte {
		unit := protowire.AppendBytes(protowire.AppendTag(nil, path[len(path)-1], protowire.BytesType), nil)
		b := bytes.Repeat(unit, 8<<20/len(unit))
		for i := len(path) - 2; i >= 0; i-- {
			b = protowire.AppendBytes(protowire.AppendTag(nil, path[i], protowire.BytesType), b)
		}
		return b
	}
	for name, c := range map[string]struct {
		body []byte
		into proto.Message
	}{
		"items":        {empty(2, 4), &pb.MirrorRequest{}},
		"marks":        {empty(2, 4), &pb.ControlRequest{}},
		"tail entries": {empty(4, 8), &pb.ControlRequest{}},
		"headers":      {empty(2, 5), &pb.ForwardRequest{}},
		"topics":       {empty(1, 11), &pb.HelloRequest{}},
		"copies":       {empty(2, 16), &pb.ForwardResponse{}},
	} {
		if err := proto.Unmarshal(c.body[:0], c.into); err != nil {
			t.Fatal(err)
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		err := wire.Codec().Unmarshal(mem.BufferSlice{mem.SliceBuffer(c.body)}, c.into)
		runtime.ReadMemStats(&after)
		if took := after.TotalAlloc - before.TotalAlloc; err == nil || took > 32<<20 {
			t.Errorf("%s: %v, %d MiB", name, err, took>>20)
		}
	}
	if _, _, err := wire.DecodeHandOver(empty(2, 2, 5), thatTime, 1); err == nil {
		t.Error("a hand-over of so many headers is read")
	}
}

// The largest that a correct node says is read.
func TestFA_LargeMessagesAreRead(t *testing.T) {
	h := regions.Hello{Federation: "shop", Region: "eu-west", TopicDigests: map[string]string{}, TopicFields: map[string]map[string]string{}}
	for i := range 5_000 {
		name, fields := fmt.Sprint("topic-", i), map[string]string{}
		for f := range 30 {
			fields[fmt.Sprint("field-", f)] = "a value"
		}
		h.TopicDigests[name], h.TopicFields[name] = "d", fields
	}
	batch := regions.MirrorBatch{Incarnation: "i"}
	for i := range regions.MaxBatchRecords {
		it := regions.Item{Sequence: uint64(i + 1), Record: api.Record{ID: "id", Body: make([]byte, 100), Tags: make([]api.Tag, 8)}}
		for n := range api.MaxHeaders {
			it.Record.Headers = append(it.Record.Headers, api.Header{Name: fmt.Sprint("h", n), Value: "v"})
		}
		batch.Items = append(batch.Items, it)
	}
	for _, m := range []proto.Message{wire.HelloToProto(h), wire.MirrorBatchToProto(&batch)} {
		body, err := proto.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		got := m.ProtoReflect().New().Interface()
		half := len(body) / 2
		if err := wire.Codec().Unmarshal(mem.BufferSlice{mem.SliceBuffer(body[:half]), mem.SliceBuffer(body[half:])}, got); err != nil || !proto.Equal(got, m) {
			t.Errorf("%T of %d bytes: %v", m, len(body), err)
		}
	}
}
