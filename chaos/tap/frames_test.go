package tap

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"maps"
	"slices"
	"testing"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"pgregory.net/rapid"

	"domicile/chaos/canary"
)

// heard is what was found of each token, by the call it was in.
type heard map[int][]string

func hearAll(t *rapid.T, f *frames, wire []byte) (found heard, opaque uint64) {
	found = heard{}
	for len(wire) > 0 {
		n := rapid.IntRange(1, min(len(wire), 4000)).Draw(t, "piece")
		opaque += f.hear(wire[:n], func(call string, token int, _ canary.Form) { found[token] = append(found[token], call) })
		wire = wire[n:]
	}
	return found, opaque
}

func message(flag byte, body []byte) []byte {
	return append(binary.BigEndian.AppendUint32([]byte{flag}, uint32(len(body))), body...)
}

// Streams are interleaved, messages and blocks of headers are cut into frames, some of them
// padded, and what comes out is read in pieces of any size: each token is found once, in the
// call it was in.
func TestRP2_FramesArePutTogetherAgain(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		set := &canary.Set{}
		var wire, block bytes.Buffer
		client := rapid.Bool().Draw(t, "client")
		if client {
			wire.WriteString(http2.ClientPreface)
		}
		framer, encoder := http2.NewFramer(&wire, nil), hpack.NewEncoder(&block)
		must := func(err error) {
			if err != nil {
				t.Fatal(err)
			}
		}
		must(framer.WriteSettings())
		want, rest := heard{}, map[uint32][]byte{}
		for i := range rapid.IntRange(1, 4).Draw(t, "calls") {
			id, name := uint32(2*i+1), "answer"
			block.Reset()
			if client {
				name = []string{"Forward", "Mirror"}[i%2]
				must(encoder.WriteField(hpack.HeaderField{Name: ":path", Value: "/domicile.v1.PeerService/" + name}))
			}
			token := canary.Plain() // Huffman's code hides it on the wire
			want[set.Add(token, "header")] = []string{name}
			must(encoder.WriteField(hpack.HeaderField{Name: "x-note", Value: "of " + token}))
			cut := rapid.IntRange(0, block.Len()).Draw(t, "cut")
			must(framer.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: block.Bytes()[:cut], PadLength: uint8(rapid.IntRange(0, 20).Draw(t, "pad"))}))
			must(framer.WriteContinuation(id, true, block.Bytes()[cut:]))
			for range rapid.IntRange(0, 3).Draw(t, "messages") {
				token := canary.Awkward()
				want[set.Add(token, "body")] = []string{name}
				if rapid.Bool().Draw(t, "coded") {
					token = base64.StdEncoding.EncodeToString([]byte("x" + token))
				}
				rest[id] = append(rest[id], message(0, append(make([]byte, rapid.IntRange(0, 300).Draw(t, "before")), token...))...)
			}
		}
		for len(rest) > 0 {
			id := rapid.SampledFrom(slices.Sorted(maps.Keys(rest))).Draw(t, "stream")
			n := min(len(rest[id]), rapid.IntRange(1, 200).Draw(t, "frame"))
			end := n == len(rest[id])
			var pad []byte
			if rapid.Bool().Draw(t, "padded") {
				pad = make([]byte, 7)
			}
			must(framer.WriteDataPadded(id, end, rest[id][:n], pad))
			if rest[id] = rest[id][n:]; end {
				delete(rest, id)
			}
			must(framer.WritePing(false, [8]byte{}))
		}
		token := canary.Plain()
		want[set.Add(token, "goodbye")] = []string{""}
		must(framer.WriteGoAway(1, http2.ErrCodeNo, []byte(token)))
		have, opaque := hearAll(t, newFrames(canary.NewWatcher(set)), wire.Bytes())
		if !maps.EqualFunc(want, have, slices.Equal) || opaque != 0 {
			t.Fatalf("found %v, want %v; %d opaque", have, want, opaque)
		}
	})
}

// What can't be searched is counted, never passed over.
func TestRP2_WhatCannotBeSearchedIsCounted(t *testing.T) {
	for name, spoil := range map[string]func(*http2.Framer) error{
		"a compressed message": func(f *http2.Framer) error { return f.WriteData(1, false, message(1, []byte("xyz"))) },
		"headers that can't be decoded": func(f *http2.Framer) error {
			return f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, EndHeaders: true, BlockFragment: []byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}})
		},
		"a padding longer than its frame": func(f *http2.Framer) error {
			return f.WriteRawFrame(http2.FrameData, http2.FlagDataPadded, 1, []byte{9, 1})
		},
	} {
		var wire bytes.Buffer
		if err := spoil(http2.NewFramer(&wire, nil)); err != nil {
			t.Fatal(err)
		}
		opaque := newFrames(canary.NewWatcher(&canary.Set{})).hear(wire.Bytes(), func(string, int, canary.Form) {})
		if opaque != 1 {
			t.Errorf("%s: %d opaque", name, opaque)
		}
	}
}
