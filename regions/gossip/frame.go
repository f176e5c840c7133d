package gossip

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"net"
	"slices"
)

// memberlist decodes what comes in on goroutines of its own, where nobody can catch what goes
// wrong, and believes lengths. So it is given only what a node of ours sends: everything else
// is refused here, and so are the kinds that we never send (user messages, compression,
// encryption, labels, pings over a stream).

// Kinds of memberlist's messages, in its protocol version 5.
const (
	kindPing     = 0
	kindIndirect = 1
	kindAck      = 2
	kindSuspect  = 3
	kindAlive    = 4
	kindDead     = 5
	kindState    = 6 // on a stream only
	kindCompound = 7
	kindNack     = 11
	kindCRC      = 12
)

const (
	maxName   = 200       // bytes of a member's name
	maxStates = 1 << 10   // members in an exchange
	maxState  = 256 << 10 // bytes of an exchange
)

var (
	errMalformed = errors.New("gossip: not what a node sends")
	errTooLong   = errors.New("gossip: longer than what a node sends")
)

// fields are what a message may hold, each at most once.
type fields map[string]func(*reader) error

var (
	pinged = fields{"SeqNo": number32, "Node": name, "SourceAddr": address, "SourcePort": ours, "SourceNode": name}
	asked  = fields{"SeqNo": number32, "Target": address, "Port": ours, "Node": name, "Nack": truth,
		"SourceAddr": address, "SourcePort": ours, "SourceNode": name}
	acked    = fields{"SeqNo": number32, "Payload": nothing}
	nacked   = fields{"SeqNo": number32}
	accused  = fields{"Incarnation": number32, "Node": name, "From": name}
	living   = fields{"Incarnation": number32, "Node": name, "Addr": address, "Port": ours, "Meta": nothing, "Vsn": versions}
	inState  = fields{"Name": name, "Addr": address, "Port": ours, "Meta": nothing, "Incarnation": number32, "State": upTo(3), "Vsn": versions}
	messages = map[byte]fields{kindPing: pinged, kindIndirect: asked, kindAck: acked, kindNack: nacked,
		kindSuspect: accused, kindAlive: living, kindDead: accused}
)

// readPacket checks a packet and tells the kind of its first message.
func readPacket(b []byte) (first byte, err error) {
	if len(b) > 0 && b[0] == kindCRC {
		if len(b) < 5 || crc32.ChecksumIEEE(b[5:]) != binary.BigEndian.Uint32(b[1:]) {
			return 0, fmt.Errorf("%w: the checksum", errMalformed)
		}
		b = b[5:]
	}
	if len(b) == 0 {
		return 0, fmt.Errorf("%w: an empty packet", errMalformed)
	}
	if b[0] != kindCompound {
		return b[0], readMessage(b)
	}
	if len(b) < 2 || b[1] == 0 || len(b) < 2+2*int(b[1]) {
		return 0, fmt.Errorf("%w: a compound without its lengths", errMalformed)
	}
	lengths, rest := b[2:2+2*int(b[1])], b[2+2*int(b[1]):]
	for i := 0; i < len(lengths); i += 2 {
		n := int(binary.BigEndian.Uint16(lengths[i:]))
		if n == 0 || n > len(rest) {
			return 0, fmt.Errorf("%w: a part of %d bytes, of %d", errMalformed, n, len(rest))
		}
		if i == 0 {
			first = rest[0]
		}
		if err := readMessage(rest[:n]); err != nil { // none of them is a compound again
			return 0, err
		}
		rest = rest[n:]
	}
	if len(rest) > 0 {
		return 0, fmt.Errorf("%w: %d bytes after the parts", errMalformed, len(rest))
	}
	return first, nil
}

func readMessage(b []byte) error {
	allowed, known := messages[b[0]]
	if !known {
		return fmt.Errorf("%w: kind %d", errMalformed, b[0])
	}
	r := &reader{in: bytes.NewReader(b[1:])}
	if err := r.record(allowed); err != nil {
		return err
	}
	if len(r.seen) != len(b)-1 {
		return fmt.Errorf("%w: bytes after a message", errMalformed)
	}
	return nil
}

// readState reads one exchange of members and gives back its bytes: no more than maxState, and
// none beyond its end.
func readState(in io.Reader) ([]byte, error) {
	r := &reader{in: io.LimitReader(in, maxState)}
	kind, err := r.take(1)
	if err != nil {
		return nil, err
	}
	if kind[0] != kindState {
		return nil, fmt.Errorf("%w: kind %d on a stream", errMalformed, kind[0])
	}
	nodes := 0
	err = r.record(fields{"UserStateLen": upTo(0), "Join": truth, "Nodes": func(r *reader) error {
		n, err := r.number(maxStates)
		nodes = int(n)
		return err
	}})
	for ; err == nil && nodes > 0; nodes-- {
		err = r.record(inState)
	}
	if len(r.seen) == maxState && errors.Is(err, io.ErrUnexpectedEOF) {
		return nil, errTooLong
	}
	return r.seen, err
}

// reader reads msgpack and keeps what it has read.
type reader struct {
	in   io.Reader
	seen []byte
}

// take reads n bytes, which a caller has bounded.
func (r *reader) take(n int) ([]byte, error) {
	at := len(r.seen)
	r.seen = append(r.seen, make([]byte, n)...)
	got, err := io.ReadFull(r.in, r.seen[at:])
	if err != nil {
		r.seen = r.seen[:at+got]
		if at > 0 && errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return nil, err
	}
	return r.seen[at:], nil
}

// record reads a map of the fields that are allowed.
func (r *reader) record(allowed fields) error {
	b, err := r.take(1)
	if err != nil {
		return err
	}
	if b[0]&0xf0 != 0x80 {
		return fmt.Errorf("%w: no record", errMalformed)
	}
	var had []string
	for range b[0] & 0x0f {
		key, err := r.text(maxName)
		if err != nil {
			return err
		}
		field := string(key)
		read, known := allowed[field]
		if !known || slices.Contains(had, field) {
			return fmt.Errorf("%w: field %.20q", errMalformed, field)
		}
		had = append(had, field)
		if err := read(r); err != nil {
			return err
		}
	}
	return nil
}

// number reads one that is not negative.
func (r *reader) number(most uint64) (uint64, error) {
	b, err := r.take(1)
	if err != nil {
		return 0, err
	}
	n := uint64(b[0])
	if kind := b[0]; kind > 0x7f {
		if kind < 0xcc || kind > 0xd3 {
			return 0, fmt.Errorf("%w: no number", errMalformed)
		}
		b, err := r.take(1 << (kind & 3)) // 0xcc to 0xcf without a sign, 0xd0 to 0xd3 with one
		if err != nil {
			return 0, err
		}
		if kind >= 0xd0 && b[0] > 0x7f {
			return 0, fmt.Errorf("%w: a number below 0", errMalformed)
		}
		n = 0
		for _, x := range b {
			n = n<<8 | uint64(x)
		}
	}
	if n > most {
		return 0, fmt.Errorf("%w: number %d, at most %d", errMalformed, n, most)
	}
	return n, nil
}

// text reads a text or bytes, or nil as none.
func (r *reader) text(most int) ([]byte, error) {
	b, err := r.take(1)
	if err != nil {
		return nil, err
	}
	var n, head int
	switch kind := b[0]; {
	case kind == 0xc0:
		return nil, nil
	case kind&0xe0 == 0xa0:
		n = int(kind & 0x1f)
	case kind == 0xc4, kind == 0xd9:
		head = 1
	case kind == 0xc5, kind == 0xda:
		head = 2
	case kind == 0xc6, kind == 0xdb:
		head = 4
	default:
		return nil, fmt.Errorf("%w: no text", errMalformed)
	}
	if head > 0 {
		b, err := r.take(head)
		if err != nil {
			return nil, err
		}
		for _, x := range b {
			n = n<<8 | int(x)
		}
	}
	if n > most {
		return nil, fmt.Errorf("%w: a text of %d bytes, at most %d", errMalformed, n, most)
	}
	return r.take(n)
}

func number32(r *reader) error {
	_, err := r.number(1<<32 - 1)
	return err
}

func upTo(most uint64) func(*reader) error {
	return func(r *reader) error {
		_, err := r.number(most)
		return err
	}
}

// ours is the one port that all members have.
func ours(r *reader) error {
	n, err := r.number(port)
	if err == nil && n != port {
		return fmt.Errorf("%w: port %d", errMalformed, n)
	}
	return err
}

func truth(r *reader) error {
	b, err := r.take(1)
	if err == nil && b[0] != 0xc2 && b[0] != 0xc3 {
		return fmt.Errorf("%w: neither true nor false", errMalformed)
	}
	return err
}

func nothing(r *reader) error {
	_, err := r.text(0)
	return err
}

func address(r *reader) error {
	b, err := r.text(net.IPv6len)
	if err == nil && len(b) != net.IPv6len {
		return fmt.Errorf("%w: an address of %d bytes", errMalformed, len(b))
	}
	return err
}

// versions: from 1 on, up to 5 or later, version 2 spoken, and no delegate. A member that
// spoke others would make every exchange with whoever lists it fail.
func versions(r *reader) error {
	b, err := r.text(6)
	if err == nil && (len(b) != 6 || b[0] != 1 || b[1] < 5 || b[2] != 2 || b[3]|b[4]|b[5] != 0) {
		return fmt.Errorf("%w: versions %v", errMalformed, b)
	}
	return err
}

func name(r *reader) error {
	b, err := r.text(maxName)
	if err == nil && !named(string(b)) {
		return fmt.Errorf("%w: a name", errMalformed)
	}
	return err
}

// named reports whether that can be a member's name.
func named(text string) bool {
	for _, c := range []byte(text) {
		if (c|0x20 < 'a' || c|0x20 > 'z') && (c < '0' || c > '9') && c != '-' && c != '_' && c != '.' {
			return false
		}
	}
	return text != "" && len(text) <= maxName
}
