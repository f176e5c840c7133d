package wire

import (
	"google.golang.org/grpc/encoding"
	_ "google.golang.org/grpc/encoding/proto" // the codec that is wrapped
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"domicile/api"
	"domicile/regions"
)

// maxElements bounds the parts of one message: its messages within and its repeated values. An
// empty one takes two bytes on the wire and hundreds once it is read, so they are counted before
// anything is made of them. The largest batch of records with the most headers and tags has fewer.
const maxElements = regions.MaxBatchRecords * 2 * api.MaxHeaders

// Codec is gRPC's own for messages, but that one of too many parts can't be read.
func Codec() encoding.CodecV2 { return codec{encoding.GetCodecV2("proto")} }

type codec struct{ encoding.CodecV2 }

func (c codec) Unmarshal(data mem.BufferSlice, v any) error {
	m, ok := v.(proto.Message)
	if !ok || data.Len() < 2*maxElements { // it has no room for as many
		return c.CodecV2.Unmarshal(data, v)
	}
	whole := data.MaterializeToBuffer(mem.DefaultBufferPool())
	defer whole.Free()
	if err := checkElements(whole.ReadOnlyData(), m); err != nil {
		return err
	}
	return c.CodecV2.Unmarshal(mem.BufferSlice{whole}, v)
}

func checkElements(body []byte, m proto.Message) error {
	left := maxElements
	return countElements(body, m.ProtoReflect().Descriptor(), &left)
}

func countElements(body []byte, d protoreflect.MessageDescriptor, left *int) error {
	for len(body) > 0 {
		number, kind, n := protowire.ConsumeTag(body)
		if n < 0 {
			return protowire.ParseError(n)
		}
		size := protowire.ConsumeFieldValue(number, kind, body[n:])
		if size < 0 {
			return protowire.ParseError(size)
		}
		value := body[n : n+size]
		body = body[n+size:]
		f := d.Fields().ByNumber(number)
		if f == nil || f.Message() == nil && !f.IsList() {
			continue
		}
		if *left--; *left < 0 {
			return badPeer(string(f.Name()), "it has too many parts")
		}
		if kind != protowire.BytesType || f.Message() == nil {
			continue
		}
		within, _ := protowire.ConsumeBytes(value)
		if err := countElements(within, f.Message(), left); err != nil {
			return err
		}
	}
	return nil
}
