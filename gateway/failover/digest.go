package failover

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"hash"

	"domicile/api"
	"domicile/regions"
)

// A digest is kept by blocks of so many sequences, and of so many blocks: of two logs that
// retention shortens each at its own time, most blocks are whole in both.
const (
	blockSize = 1024
	maxBlocks = 16_384
)

// digest sums up the records of a log that were read in order. The zero value is ready for
// a log from its first sequence on.
type digest struct {
	from    uint64              // every record behind this sequence was summed up: a whole number of blocks
	blocks  [][sha256.Size]byte // the whole ones behind from
	open    hash.Hash           // of the block behind those; nil: it has no record yet
	damaged uint64              // the last sequence that could not be read
}

// restart begins anew behind a sequence that is not to be had any more.
func (d *digest) restart(behind uint64) {
	*d = digest{from: (behind + blockSize - 1) / blockSize * blockSize, damaged: d.damaged}
}

// add takes in a record that follows those before it.
func (d *digest) add(it *regions.Item) {
	if it.Sequence <= d.from {
		return
	}
	d.close((it.Sequence - 1 - d.from) / blockSize)
	if d.open == nil {
		d.open = sha256.New()
	}
	write(d.open, it)
}

// close ends the blocks before the n-th behind from.
func (d *digest) close(n uint64) {
	if n >= uint64(len(d.blocks))+maxBlocks { // nothing of what is kept would stay
		d.restart(d.from + n*blockSize)
		return
	}
	for uint64(len(d.blocks)) < n {
		var sum [sha256.Size]byte // of a block without records
		if d.open != nil {
			d.open.Sum(sum[:0])
			d.open = nil
		}
		d.blocks = append(d.blocks, sum)
	}
	if over := len(d.blocks) - maxBlocks; over > 0 {
		d.blocks = append(d.blocks[:0:0], d.blocks[over+maxBlocks/2:]...) // seldom, and many at once
		d.from += uint64(over+maxBlocks/2) * blockSize
	}
}

// sum names what a log holds up to its end, as "<from>-<to>:<hash>"; first is the first
// sequence that it still stores. What retention is about to take is left out.
func (d *digest) sum(first, end uint64) string {
	from := d.from
	if first > 1 {
		from = max(from, (first/blockSize+2)*blockSize)
	}
	if d.damaged > from {
		from = (d.damaged + blockSize - 1) / blockSize * blockSize
	}
	return d.text(from, end)
}

// text is the sum of what lies behind from, up to end; "" if nothing does, or not all of it
// is known.
func (d *digest) text(from, end uint64) string {
	if from >= end || d.from >= end {
		return ""
	}
	d.close((end - 1 - d.from) / blockSize)
	if from < d.from {
		return ""
	}
	h := sha256.New()
	skip := (from - d.from) / blockSize
	for i := range d.blocks[skip:] {
		_, _ = h.Write(d.blocks[skip:][i][:]) // a hash takes everything
	}
	var last [sha256.Size]byte
	if d.open != nil {
		d.open.Sum(last[:0])
	}
	_, _ = h.Write(last[:])
	return fmt.Sprintf("%d-%d:%s", from, end, hex.EncodeToString(h.Sum(nil)[:16]))
}

// matches holds what was summed up, to end, against the sum of another log.
func (d *digest) matches(other string, end uint64) Match {
	var from, to uint64
	if _, err := fmt.Sscanf(other, "%d-%d:", &from, &to); err != nil || from < d.from || from%blockSize != 0 {
		return NotCompared
	}
	switch mine := d.text(from, end); {
	case to == end && mine == "":
		return NotCompared
	case mine != other:
		return Different
	}
	return Same
}

// write puts into a hash all of a record that is the same in every store that holds it.
func write(h hash.Hash, it *regions.Item) {
	r := &it.Record
	b := binary.BigEndian.AppendUint64(make([]byte, 0, 256), it.Sequence)
	b = binary.BigEndian.AppendUint64(b, uint64(it.Time.UnixNano()))
	event := int64(0)
	if !r.EventTime.IsZero() {
		event = r.EventTime.UnixNano()
	}
	b = binary.BigEndian.AppendUint64(b, uint64(event))
	for _, text := range []string{it.Epoch.String(), r.ID, r.Key, api.TagString(r.Tags)} {
		b = field(b, text)
	}
	for _, header := range r.Headers {
		b = field(field(b, header.Name), header.Value)
	}
	b = binary.BigEndian.AppendUint64(b, uint64(len(r.Body)))
	_, _ = h.Write(b) // a hash takes everything
	_, _ = h.Write(r.Body)
}

func field(b []byte, text string) []byte {
	return append(binary.BigEndian.AppendUint64(b, uint64(len(text))), text...)
}
