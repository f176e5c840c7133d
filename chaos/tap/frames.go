package tap

import (
	"bytes"
	"encoding/binary"
	"strings"

	"golang.org/x/net/http2/hpack"

	"domicile/chaos/canary"
)

// Of HTTP/2, RFC 9113.
const (
	preface     = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
	frameHead   = 9
	kindData    = 0x0
	kindHeaders = 0x1
	kindReset   = 0x3
	kindPush    = 0x5
	kindMore    = 0x9 // CONTINUATION
	flagEnd     = 0x1 // of the stream
	flagBlock   = 0x4 // of the headers
	flagPadded  = 0x8
	flagWeight  = 0x20
	maxHeaders  = 1 << 20 // bytes of one frame that holds headers
)

// frames is one direction of an HTTP/2 connection that speaks gRPC: what is in its
// messages, put together again per stream, in its headers, and in all other frames.
type frames struct {
	watcher *canary.Watcher
	pending []byte // the head of a frame or the preface, as long as it is not whole
	begun   bool   // the preface is over, or there is none
	blind   bool   // what follows can't be read

	kind, flags byte
	stream      uint32
	left        int    // bytes of the frame that are still to come
	payload     []byte // of a frame that has to be whole; nil: of one that passes
	other       *canary.Trail

	headers *hpack.Decoder
	field   func(hpack.HeaderField)
	calls   map[uint32]*call
}

// call is one direction of one gRPC call.
type call struct {
	name  string
	trail *canary.Trail
	head  []byte // of a message: a flag and a length
	left  int    // bytes of the message that are still to come
}

// tableSize is more than any encoder of ours asks for.
const tableSize = 1 << 16

func newFrames(w *canary.Watcher) *frames {
	f := &frames{watcher: w, other: w.Trail(), calls: map[uint32]*call{}}
	f.headers = hpack.NewDecoder(4096, func(h hpack.HeaderField) { f.field(h) })
	f.headers.SetAllowedMaxDynamicTableSize(tableSize)
	return f
}

type foundFunc = func(call string, token int, form canary.Form)

func (f *frames) hear(b []byte, found foundFunc) (opaque uint64) {
	for len(b) > 0 && !f.blind {
		if f.left == 0 {
			b = f.begin(b)
			if f.left > 0 || len(f.pending) > 0 {
				continue
			}
			opaque += f.ended(found) // a frame without a payload
			continue
		}
		n := min(f.left, len(b))
		opaque += f.part(b[:n], found)
		f.left -= n
		if b = b[n:]; f.left == 0 {
			opaque += f.ended(found)
		}
	}
	return opaque
}

// begin takes the preface and the head of a frame. It returns what follows it.
func (f *frames) begin(b []byte) []byte {
	need := frameHead
	if !f.begun && len(f.pending) < len(preface) {
		if have := append(bytes.Clone(f.pending), b[:min(len(b), len(preface)-len(f.pending))]...); strings.HasPrefix(preface, string(have)) {
			f.pending, b = have, b[len(have)-len(f.pending):]
			if len(have) == len(preface) {
				f.begun, f.pending = true, nil
			}
			return b
		}
		f.begun = true // the side that accepted: it begins with a frame
	}
	n := min(need-len(f.pending), len(b))
	f.pending, b = append(f.pending, b[:n]...), b[n:]
	if len(f.pending) < need {
		return b
	}
	h := f.pending
	f.left, f.kind, f.flags, f.stream = int(h[0])<<16|int(h[1])<<8|int(h[2]), h[3], h[4], binary.BigEndian.Uint32(h[5:])&(1<<31-1)
	f.pending, f.payload = nil, nil
	if f.kind == kindHeaders || f.kind == kindMore || f.kind == kindPush || f.kind == kindData && f.flags&flagPadded != 0 {
		f.payload = []byte{}
	}
	return b
}

// part is a piece of a frame's payload.
func (f *frames) part(b []byte, found foundFunc) (opaque uint64) {
	switch {
	case f.payload != nil && len(f.payload)+len(b) > maxHeaders:
		f.blind = true
		return 1
	case f.payload != nil:
		f.payload = append(f.payload, b...)
	case f.kind == kindData:
		return f.message(b, found)
	default:
		f.other.Look(b, func(token int, form canary.Form) { found("", token, form) })
	}
	return 0
}

// ended: the frame is whole.
func (f *frames) ended(found foundFunc) (opaque uint64) {
	if f.payload != nil {
		body, ok := f.unpadded()
		switch {
		case !ok || f.kind == kindPush:
			f.blind = true
			return 1
		case f.kind == kindData:
			opaque = f.message(body, found)
		default:
			opaque = f.block(body, found)
		}
	}
	over := f.kind == kindData || f.kind == kindHeaders && f.flags&flagBlock != 0
	if f.kind == kindReset || over && f.flags&flagEnd != 0 {
		delete(f.calls, f.stream)
	}
	return opaque
}

// unpadded is the payload without what only fills it.
func (f *frames) unpadded() ([]byte, bool) {
	b, pad := f.payload, 0
	if f.kind != kindMore && f.flags&flagPadded != 0 {
		if len(b) == 0 {
			return nil, false
		}
		pad, b = int(b[0]), b[1:]
	}
	if f.kind == kindHeaders && f.flags&flagWeight != 0 {
		if len(b) < 5 {
			return nil, false
		}
		b = b[5:]
	}
	if pad > len(b) {
		return nil, false
	}
	return b[:len(b)-pad], true
}

// block decodes a part of headers, which Huffman's code would hide.
func (f *frames) block(b []byte, found foundFunc) (opaque uint64) {
	c := f.call()
	f.field = func(h hpack.HeaderField) {
		if h.Name == ":path" {
			c.name = h.Value[strings.LastIndexByte(h.Value, '/')+1:]
		}
		f.watcher.Trail().Look([]byte(h.Name+": "+h.Value), func(token int, form canary.Form) { found(c.name, token, form) })
	}
	_, err := f.headers.Write(b)
	if err == nil && f.flags&flagBlock != 0 {
		err = f.headers.Close()
	}
	if err != nil { // the decoder has lost its table
		f.blind = true
		return 1
	}
	return 0
}

func (f *frames) call() *call {
	if f.calls[f.stream] == nil {
		f.calls[f.stream] = &call{name: answerCall, trail: f.watcher.Trail()}
	}
	return f.calls[f.stream]
}

// message is a piece of a stream of messages: each has a flag and a length before it.
func (f *frames) message(b []byte, found foundFunc) (opaque uint64) {
	c := f.call()
	for len(b) > 0 {
		if c.left == 0 {
			n := min(5-len(c.head), len(b))
			c.head, b = append(c.head, b[:n]...), b[n:]
			if len(c.head) < 5 {
				break
			}
			if c.head[0] != 0 { // compressed
				opaque++
			}
			c.left, c.head = int(binary.BigEndian.Uint32(c.head[1:])), c.head[:0]
			continue
		}
		n := min(c.left, len(b))
		c.trail.Look(b[:n], func(token int, form canary.Form) { found(c.name, token, form) })
		c.left, b = c.left-n, b[n:]
	}
	return opaque
}
