package api

import (
	"encoding/base64"
	"encoding/binary"
	"hash/crc32"
	"slices"
	"strings"
)

// Position is an opaque place in a topic, in coordinates of the origin, valid in
// every region that holds the topic. Clients store and return it; they must not
// take it apart.
type Position string

// Cursor is one log's part of a position: the last sequence that was seen.
type Cursor struct {
	Log         LogID
	Incarnation string
	Epoch       Epoch
	Sequence    uint64
}

const positionPrefix = "p1."

// EncodePosition packs cursors, one per log, into a position. The order of the
// cursors does not matter.
func EncodePosition(cursors []Cursor) Position {
	sorted := slices.Clone(cursors)
	slices.SortFunc(sorted, func(a, b Cursor) int { return strings.Compare(a.Log.String(), b.Log.String()) })
	var b []byte
	b = binary.AppendUvarint(b, uint64(len(sorted)))
	for _, c := range sorted {
		for _, s := range []string{c.Log.String(), c.Incarnation, c.Epoch.String()} {
			b = binary.AppendUvarint(b, uint64(len(s)))
			b = append(b, s...)
		}
		b = binary.AppendUvarint(b, c.Sequence)
	}
	b = binary.BigEndian.AppendUint32(b, crc32.ChecksumIEEE(b))
	return Position(positionPrefix + base64.RawURLEncoding.EncodeToString(b))
}

// DecodePosition unpacks a position. A damaged or foreign one is refused with
// PositionInvalid, never guessed at.
func DecodePosition(p Position) ([]Cursor, error) {
	bad := &Error{Code: PositionInvalid, Op: "decode position", Field: "position",
		Hint: "pass a position exactly as an ack or a batch gave it, or start from a time"}
	text, ok := strings.CutPrefix(string(p), positionPrefix)
	if !ok {
		return nil, bad
	}
	b, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil || len(b) < 5 {
		return nil, bad
	}
	body, sum := b[:len(b)-4], binary.BigEndian.Uint32(b[len(b)-4:])
	if crc32.ChecksumIEEE(body) != sum {
		return nil, bad
	}
	count, body, ok := cutUvarint(body)
	if !ok || count > 1<<16 {
		return nil, bad
	}
	cursors := make([]Cursor, 0, min(count, 64))
	for range count {
		var c Cursor
		if c, body, ok = cutCursor(body); !ok {
			return nil, bad
		}
		cursors = append(cursors, c)
	}
	if len(body) != 0 {
		return nil, bad
	}
	return cursors, nil
}

func cutCursor(b []byte) (Cursor, []byte, bool) {
	var parts [3]string
	for i := range parts {
		n, rest, ok := cutUvarint(b)
		if !ok || n > uint64(len(rest)) {
			return Cursor{}, nil, false
		}
		parts[i], b = string(rest[:n]), rest[n:]
	}
	log, err1 := ParseLogID(parts[0])
	epoch, err2 := ParseEpoch(parts[2])
	seq, rest, ok := cutUvarint(b)
	if err1 != nil || err2 != nil || !ok {
		return Cursor{}, nil, false
	}
	return Cursor{Log: log, Incarnation: parts[1], Epoch: epoch, Sequence: seq}, rest, true
}

func cutUvarint(b []byte) (uint64, []byte, bool) {
	v, n := binary.Uvarint(b)
	if n <= 0 {
		return 0, nil, false
	}
	return v, b[n:], true
}
