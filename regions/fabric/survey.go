package fabric

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"hash"
	"os"

	"github.com/minio/highwayhash"
)

// survey is what one of the broker's blocks holds, as it is read before the broker starts.
type survey struct {
	block  []byte   // as it was read
	good   []Range  // the broker's sequences of the messages that are what was stored
	gone   []uint64 // the broker's sequences that are deleted by word of this block
	places int      // where it is not what was stored; an end that was not written whole is none
	// mended is the block without those places, of which the broker would cut all that lies
	// behind the first; nil: it reads all that is good as it is.
	mended []byte
	last   uint64 // the broker's sequence that it ends with
}

// blockSummer makes the broker's own checksums of a block's records.
type blockSummer struct{ hash.Hash64 }

func newBlockSummer(stream string, number int) (blockSummer, error) {
	key := sha256.Sum256(fmt.Appendf(nil, "%s-%d", stream, number))
	h, err := highwayhash.New64(key[:])
	return blockSummer{h}, err
}

// of is the checksum of a record whose frame holds.
func (s blockSummer) of(frame []byte) []byte {
	subject := blockRecord + int(binary.LittleEndian.Uint16(frame[20:]))
	rest := frame[subject : len(frame)-blockSum]
	if binary.LittleEndian.Uint32(frame)&blockHeaders != 0 {
		rest = rest[4:]
	}
	s.Reset()
	s.Write(frame[4:20]) //nolint:errcheck // a hash takes everything
	s.Write(frame[blockRecord:subject])
	s.Write(rest)
	return s.Sum(nil)
}

// fits: the record's checksum is the broker's.
func (s blockSummer) fits(frame []byte) bool {
	return bytes.Equal(s.of(frame), frame[len(frame)-blockSum:])
}

// next is where the next record lies that the broker makes sense of, -1 if there is none.
func (s blockSummer) next(b []byte) int {
	for at := range b {
		if _, size := frameOf(b[at:]); size > 0 && s.fits(b[at:at+size]) {
			return at
		}
	}
	return -1
}

// readBlock surveys a block of a store that follows the broker's sequence last. intact judges a
// message by what it holds; nil: by the broker's checksum alone.
func readBlock(b block, store string, last uint64, intact func(raw) bool) (survey, error) {
	data, err := os.ReadFile(b.path)
	if err != nil {
		return survey{}, err
	}
	sums, err := newBlockSummer(store, b.number)
	if err != nil {
		return survey{}, err
	}
	if intact == nil {
		intact = func(r raw) bool { return sums.fits(r.frame) }
	}
	s := surveyBlock(data, last, sums, intact)
	s.block = data
	return s, nil
}

func surveyBlock(block []byte, last uint64, sums blockSummer, intact func(raw) bool) (s survey) {
	var out []byte // what is kept, from the first damage on
	keep := func(at int) {
		s.places++
		if out == nil {
			out = bytes.Clone(block[:at])
		}
	}
	for at := 0; at < len(block); {
		r, size := frameOf(block[at:])
		frame := block[at : at+size]
		message := size > 0 && r.sequence&blockMarks == 0 && intact(r)
		if size == 0 || !sums.fits(frame) {
			if size > 0 && inPlace(r, block[at+size:], last, message) {
				// The broker takes it for good, and who reads it sees what it is.
				keep(at)
				out = append(append(out, frame[:size-blockSum]...), sums.of(frame)...)
				if message {
					s.mended = out
				}
			} else if next := sums.next(block[at+1:]); next >= 0 {
				keep(at)
				at += 1 + next
				continue
			} else {
				if size > 0 && !bytes.Equal(block[len(block)-blockSum:], make([]byte, blockSum)) {
					s.places++
				}
				break
			}
		} else if out != nil {
			out = append(out, frame...)
			s.mended = out
		}
		at += size
		switch {
		case r.sequence&blockTombstone != 0:
			s.gone = append(s.gone, r.sequence&^uint64(blockMarks))
			continue
		case r.sequence&blockMarks != 0:
			continue
		case message:
			s.good = appendSequence(s.good, r.sequence)
		case sums.fits(frame):
			s.places++
		}
		last = r.sequence
	}
	s.last = last
	return s
}

// inPlace: a message whose checksum is damaged is the one that belongs there. One that is not
// what was stored has to have its successor behind it.
func inPlace(r raw, behind []byte, last uint64, intact bool) bool {
	n, size := frameOf(behind)
	follows := size > 0 && n.sequence == r.sequence+1
	return r.sequence&blockMarks == 0 && r.sequence > last && (follows || intact && r.sequence == last+1)
}

func appendSequence(rows []Range, n uint64) []Range {
	if k := len(rows); k > 0 && rows[k-1].To+1 == n {
		rows[k-1].To = n
		return rows
	}
	return append(rows, Range{n, n})
}
