package fabric

import (
	"encoding/hex"
	"errors"
	"hash/crc32"
)

// headerSum is the checksum of a message as it is stored here: over its header lines of
// ours, in their order, and its body. It is CRC-32C, 8 hex digits: it guards against
// disks and not against people, finds any damage of up to 32 bits in a row, and costs
// next to nothing where the processor computes it. Messages of format 1 have none.
const headerSum = "Domicile-Sum"

// errDamaged: a stored message is not what was stored. It never says what it holds.
var errDamaged = errors.New("stored message is damaged")

// How far a message was held against what was stored.
type checked int

const (
	bodyOnly checked = iota // no checksum: only the body's keyed hash tells
	sumGood
	unseen // its body was not read
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// appendSum appends the checksum of the lines and the body.
func appendSum(b, lines, body []byte) []byte {
	b = append(b, headerSum...)
	b = append(b, ": "...)
	b = appendSumDigits(b, crc32.Update(crc32.Checksum(lines, castagnoli), castagnoli, body))
	return append(b, "\r\n"...)
}

func appendSumDigits(b []byte, sum uint32) []byte {
	return hex.AppendEncode(b, []byte{byte(sum >> 24), byte(sum >> 16), byte(sum >> 8), byte(sum)})
}

// verify holds a decoded message with its body against its checksum or, without one,
// its body against the body's hash.
func (h *hasher) verify(m *message) error {
	switch {
	case m.sum != "":
		if string(appendSumDigits(nil, crc32.Update(m.lines, castagnoli, m.item.Record.Body))) != m.sum {
			return errDamaged
		}
		m.checked = sumGood
	case m.control == "" && h.sum(domainBody, m.item.Record.Body) != m.hash:
		return errDamaged
	}
	return nil
}
