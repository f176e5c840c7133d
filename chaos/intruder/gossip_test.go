package intruder_test

import (
	"bytes"
	"compress/lzw"
	"encoding/binary"
	"encoding/json"
	"io"
	"net"
	"strings"
	"time"
)

// What the first byte of a gossip connection says, and the kinds of memberlist's messages.
const (
	gossipPackets = 1
	gossipStream  = 2
	gossipWords   = 3

	kindPing, kindIndirect, kindAck, kindSuspect, kindAlive, kindDead, kindPushPull, kindCompound, kindUser, kindCompress = 0, 1, 2, 3, 4, 5, 6, 7, 8, 9
	kindEncrypt, kindNack, kindCRC, kindError, kindLabel                                                                  = 10, 11, 12, 13, 244
)

// gossips are the lies of the gossip lane.
func gossips() []lie {
	packet := func(name, rule string, make func(*telling) [][]byte) lie {
		return lie{lane: "gossip", name: name, rule: rule, tell: func(t *telling) { t.packets(make(t)...) }}
	}
	return []lie{
		packet("a compound that ends too soon", "no packet ends a process", func(*telling) [][]byte { return [][]byte{{kindCompound, 0, 'A'}} }),
		packet("compounds that lie of their parts", "no packet ends a process", func(t *telling) [][]byte {
			return [][]byte{{kindCompound, 255}, {kindCompound, 1, 0, 0}, {kindCompound, 1, 0xff, 0xff}, {kindCompound, 2, 0, 1, 0}, {kindCompound}, {kindCompound, 3, 0, 0, 0, 0, 0, 0}}
		}),
		packet("compounds within compounds", "no packet ends a process", func(*telling) [][]byte {
			inner := []byte{kindPing, 0x80}
			for range 60 {
				inner = append(append([]byte{kindCompound, 1}, binary.BigEndian.AppendUint16(nil, uint16(len(inner)))...), inner...)
			}
			return [][]byte{inner}
		}),
		packet("kinds without a body", "no packet ends a process", func(*telling) (all [][]byte) {
			for _, kind := range []byte{kindPing, kindIndirect, kindAck, kindSuspect, kindAlive, kindDead, kindPushPull, kindUser, kindCompress, kindEncrypt, kindNack, kindCRC, kindError, kindLabel, 99} {
				all = append(all, []byte{kind}, []byte{kind, 0}, []byte{kind, 0xff, 0xff, 0xff, 0xff, 0xff}, []byte{kind, 0x80}, []byte{kind, 0xdf, 0xff, 0xff, 0xff, 0xff}, []byte{kind, 0xc6, 0xff, 0xff, 0xff, 0xff})
			}
			return all
		}),
		packet("a packet that unfolds", "what unfolds is bounded", func(*telling) [][]byte {
			var b bytes.Buffer
			z := lzw.NewWriter(&b, lzw.LSB, 8)
			zero := make([]byte, 1<<20)
			for b.Len() < 3500 {
				_, _ = z.Write(zero)
			}
			return [][]byte{append([]byte{kindCompress}, pack(pair{"Algo", 0}, pair{"Buf", b.Bytes()})...)}
		}),
		packet("others are dead", "nobody speaks for other regions' life", func(t *telling) (all [][]byte) {
			for _, name := range honest() {
				all = append(all, append([]byte{kindDead}, pack(pair{"Incarnation", 1 << 31}, pair{"Node", name}, pair{"From", traitor})...),
					append([]byte{kindSuspect}, pack(pair{"Incarnation", 1 << 31}, pair{"Node", name}, pair{"From", name})...))
			}
			return all
		}).silent("a region that does not hear them says it, too"),
		packet("others live elsewhere", "a region is where its name is", func(t *telling) (all [][]byte) {
			for _, name := range []string{west, central, "mars", t.word(), strings.Repeat("n", 900)} {
				all = append(all, append([]byte{kindAlive}, pack(pair{"Incarnation", 1 << 31}, pair{"Node", name}, pair{"Addr", net.IP{10, 0, 0, 1}}, pair{"Port", 7946}, pair{"Meta", []byte("m")}, pair{"Vsn", []byte{1, 5, 5, 0, 0, 0}})...))
			}
			return all
		}),
		packet("random packets", "no packet ends a process", func(t *telling) (all [][]byte) {
			for range 40 {
				b := t.bytes(300)
				b[0] %= 14
				all = append(all, b)
			}
			return all
		}),
		packet("a packet above the bound", "a packet is bounded", func(*telling) [][]byte { return [][]byte{make([]byte, 0xffff)} }),
	}
}

// exchanges are the lies of the gossip lane's other connections.
func exchanges() []lie {
	bulk := func(name, rule string, kind byte, make func(*telling) []byte) lie {
		return lie{lane: "gossip", name: name, rule: rule, tell: func(t *telling) { t.exchange(kind, traitor, make(t)) }}
	}
	return []lie{
		bulk("a message of 3 GiB", "what is claimed is not believed", gossipStream, func(*telling) []byte {
			head := append([]byte{kindCompress, 0x82, 0xa4}, "Algo\x00\xa3Buf\xc6\xc0\x00\x00\x00"...)
			return append(head, make([]byte, 96<<20)...)
		}),
		bulk("an exchange of a thousand million members", "what is claimed is not believed", gossipStream, func(*telling) []byte {
			return append([]byte{kindPushPull}, pack(pair{"Nodes", 1 << 30}, pair{"UserStateLen", 1 << 30}, pair{"Join", true})...)
		}),
		bulk("an exchange of negative members", "no exchange ends a process", gossipStream, func(*telling) []byte {
			return append([]byte{kindPushPull}, pack(pair{"Nodes", -1}, pair{"UserStateLen", -1}, pair{"Join", false})...)
		}),
		bulk("an exchange that says what others are", "nobody speaks for other regions' life", gossipStream, func(t *telling) []byte {
			b := append([]byte{kindPushPull}, pack(pair{"Nodes", 2}, pair{"UserStateLen", 0}, pair{"Join", true})...)
			for _, name := range honest() {
				b = append(b, pack(pair{"Name", name}, pair{"Addr", net.IP{10, 0, 0, 1}}, pair{"Port", 1}, pair{"Meta", t.bytes(400)}, pair{"Incarnation", 1 << 31}, pair{"State", 2}, pair{"Vsn", []byte{9, 9, 9, 9, 9, 9}})...)
			}
			return b
		}),
		bulk("a user message of 1 GiB", "what is claimed is not believed", gossipStream, func(*telling) []byte {
			return append([]byte{kindUser}, pack(pair{"UserMsgLen", 1 << 30})...)
		}),
		bulk("random streams", "no stream ends a process", gossipStream, func(t *telling) []byte {
			b := t.bytes(2000)
			b[0] %= 14
			return b
		}),
		bulk("a word of another region", "the certificate names the region", gossipWords, func(t *telling) []byte { return framed(map[string]any{"Name": other(t.victim)}) }),
		bulk("a word that moves the cursor", "text is printable and short", gossipWords, func(t *telling) []byte {
			return framed(map[string]any{"Name": t.word() + "." + traitor, "Manifest": t.word(), "Authority": t.word(), "Generation": 4_000_000_000, "Version": uint64(1) << 63})
		}),
		bulk("a word of 4 GiB", "what is claimed is not believed", gossipWords, func(*telling) []byte { return []byte{0xff, 0xff, 0xff, 0xff, '{'} }),
		{lane: "gossip", name: "the name of another region", rule: "the certificate names the region", tell: func(t *telling) {
			for _, kind := range []byte{gossipPackets, gossipStream, gossipWords} {
				t.exchange(kind, other(t.victim), []byte{kindPing, 0x80})
			}
		}},
		{lane: "gossip", name: "answers that are noise", rule: "no answer ends a process", mute: "what is asked for is not waited for", tell: func(t *telling) {
			t.now(func(s *script) {
				s.chat = func(c net.Conn, _ string) { _, _ = c.Write(append([]byte{0, 0, 15, 0xff}, make([]byte, 5000)...)) }
			})
			t.after(func() { t.now(func(s *script) { s.chat = nil }) })
		}},
	}
}

// packets says packets on one connection.
func (t *telling) packets(packets ...[]byte) {
	var b []byte
	for _, p := range packets {
		b = append(binary.BigEndian.AppendUint16(b, uint16(len(p))), p...)
	}
	t.exchange(gossipPackets, traitor, b)
}

// exchange opens a connection of a kind under a name, says what there is to say, and hears what
// is answered for a moment.
func (t *telling) exchange(kind byte, name string, b []byte) {
	c, err := t.gossip.Dial(t.ctx, t.victim)
	if err != nil {
		t.hears(err)
		return
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(3 * time.Second))
	_, err = c.Write(append(append([]byte{kind, byte(len(name))}, name...), b...))
	_ = c.SetReadDeadline(time.Now().Add(300 * time.Millisecond))
	if err == nil {
		_, err = io.CopyN(io.Discard, c, 1<<20)
	}
	t.hears(err)
}

func framed(value any) []byte {
	text, err := json.Marshal(value)
	if err != nil {
		return nil
	}
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(text))), text...)
}

// pair is a key of a packed map with its value.
type pair struct {
	key   string
	value any
}

// pack writes a map in MessagePack, in the older form of strings and bytes that memberlist
// speaks.
func pack(pairs ...pair) []byte {
	text := func(b []byte, s []byte) []byte {
		return append(binary.BigEndian.AppendUint16(append(b, 0xda), uint16(len(s))), s...)
	}
	b := []byte{0x80 | byte(len(pairs))}
	for _, p := range pairs {
		b = text(b, []byte(p.key))
		switch v := p.value.(type) {
		case string:
			b = text(b, []byte(v))
		case []byte:
			b = text(b, v)
		case net.IP:
			b = text(b, v)
		case bool:
			b = append(b, 0xc2)
			if v {
				b[len(b)-1] = 0xc3
			}
		case int:
			b = binary.BigEndian.AppendUint64(append(b, 0xd3), uint64(v))
		}
	}
	return b
}
