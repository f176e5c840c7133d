package fabric

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"domicile/api"
)

// The broker steps over a record that fails its own checksum and answers a block it
// can't load with nothing at all; neither tells damage from a passing failure. So what
// it holds and does not give out is read here from its block files, and judged by our
// own checksum. A block is a row of records: 22 bytes (size with the header bit,
// sequence with two marks, time, size of the subject), subject, 4 bytes (size of the
// headers), headers, body, 8 bytes (the broker's checksum). All numbers are little-endian.
const (
	blockRecord    = 22 // bytes before the subject
	blockSum       = 8  // bytes after the body
	blockHeaders   = 1 << 31
	blockMarks     = 3 << 62 // erased, or a tombstone
	blockTombstone = 1 << 62
	blockSuffix    = ".blk"
)

// raw is one record of a block, as far as its frame goes. Its slices are the block's.
type raw struct {
	sequence            uint64
	frame, header, body []byte
}

// rawRecords walks a block's records. Where the frame breaks it looks for the next
// record of the stream, by the subjects given.
func rawRecords(block []byte, subjects [][]byte, on func(raw)) {
	for len(block) > 0 {
		r, size := frameOf(block)
		if size == 0 {
			next := nextFrame(block[1:], subjects)
			if next < 0 {
				return
			}
			block = block[1+next:]
			continue
		}
		if r.sequence&blockMarks == 0 && r.header != nil {
			on(r)
		}
		block = block[size:]
	}
}

func frameOf(b []byte) (r raw, size int) {
	if len(b) < blockRecord {
		return r, 0
	}
	word := binary.LittleEndian.Uint32(b)
	n := int(word &^ blockHeaders)
	head := blockRecord + int(binary.LittleEndian.Uint16(b[20:]))
	if n > len(b) || head+blockSum > n {
		return r, 0
	}
	r.sequence, r.frame = binary.LittleEndian.Uint64(b[4:]), b[:n:n]
	if word&blockHeaders == 0 {
		return r, n
	}
	if head+4+blockSum > n {
		return r, 0
	}
	end := head + 4 + int(binary.LittleEndian.Uint32(b[head:]))
	if end < head+4 || end+blockSum > n {
		return r, 0
	}
	r.header, r.body = b[head+4:end:end], b[end:n-blockSum:n-blockSum]
	return r, n
}

// nextFrame is where the next record begins whose frame holds, -1 if none does.
func nextFrame(b []byte, subjects [][]byte) int {
	for at := 0; ; {
		next := -1
		for _, s := range subjects {
			if i := bytes.Index(b[at:], s); i >= 0 && (next < 0 || i < next) {
				next = i
			}
		}
		if next < 0 {
			return -1
		}
		if start := at + next - blockRecord; start >= 0 {
			if _, size := frameOf(b[start:]); size > 0 {
				return start
			}
		}
		at += next + 1
	}
}

// block is one of the broker's files.
type block struct {
	path   string
	number int
	first  uint64 // the broker's sequence of its first record
}

// blocks lists a folder's blocks by number.
func blocks(dir string) ([]block, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var out []block
	for _, e := range entries {
		number, isBlock := strings.CutSuffix(e.Name(), blockSuffix)
		n, err := strconv.Atoi(number)
		if !isBlock || err != nil {
			continue
		}
		out = append(out, block{path: filepath.Join(dir, e.Name()), number: n})
	}
	slices.SortFunc(out, func(a, b block) int { return cmp.Compare(a.number, b.number) })
	return out, nil
}

func (f *Fabric) blocksDir(stream string) string {
	return filepath.Join(f.cfg.Dir, brokerDir, "jetstream", api.DefaultTenant, "streams", stream, "msgs")
}

// covering is the blocks that may hold the broker's sequences from from to to.
func covering(all []block, from, to uint64) ([]block, error) {
	var out []block
	for i := range all {
		first, err := firstOf(all[i].path)
		if err != nil {
			return nil, err
		}
		if all[i].first = first; first > to {
			break
		}
		if first <= from {
			out = out[:0] // what lies before it ends before from
		}
		out = append(out, all[i])
	}
	return out, nil
}

func firstOf(path string) (uint64, error) {
	f, err := os.Open(path)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	var b [12]byte
	if n, err := f.ReadAt(b[:], 0); n < len(b) {
		if n == 0 || os.IsNotExist(err) {
			return 0, nil // empty
		}
		return 0, nil
	}
	return binary.LittleEndian.Uint64(b[4:]) &^ uint64(blockMarks), nil
}

// fromBlocks reads, from the broker's files, what they hold of the broker's sequences
// from from to to: records that pass our own checks, and one message that stands for
// each row of those that do not. It fails when a file can't be read: that may pass, and
// is no loss.
func (l *store) fromBlocks(ctx context.Context, from, to uint64, count, maxBytes int) ([]*message, error) {
	all, err := blocks(l.f.blocksDir(l.stream))
	if err == nil {
		all, err = covering(all, from, to)
	}
	if err != nil {
		return nil, l.unreadable(from, err)
	}
	var out []*message
	size := 0
	next := from
	stand := func(last uint64) {
		if last >= next {
			out = append(out, &message{broker: last, control: controlDamaged, lost: last - next + 1})
		}
	}
	for _, b := range all {
		if ctx.Err() != nil {
			return nil, l.readFailed(ctx.Err())
		}
		data, err := os.ReadFile(b.path)
		if err != nil {
			return nil, l.unreadable(from, err)
		}
		rawRecords(data, l.subjects(), func(r raw) {
			if r.sequence < next || r.sequence > to || len(out) > 0 && (len(out) >= count || size >= maxBytes) {
				return
			}
			m := l.decodeRaw(r)
			if m == nil {
				return
			}
			stand(r.sequence - 1)
			out = append(out, m)
			size += len(r.header) + len(r.body)
			next = r.sequence + 1
		})
		if len(out) > 0 && (len(out) >= count || size >= maxBytes) {
			return out, nil
		}
	}
	stand(to)
	return out, nil
}

func (l *store) subjects() [][]byte {
	return [][]byte{[]byte(l.data), []byte(l.control), []byte(l.owner)}
}

// decodeFrame is a record of a block as a message, not yet held against its checksum.
func decodeFrame(r raw, topic string) (*message, error) {
	return decode(bytes.TrimSuffix(r.header, crlf), r.body, topic)
}

// decodeRaw is a record of a block as a message, nil if it can't be believed.
func (l *store) decodeRaw(r raw) *message {
	r.header, r.body = bytes.Clone(r.header), bytes.Clone(r.body)
	m, err := decodeFrame(r, l.cfg.ID.Topic)
	if err != nil || l.f.hash.verify(m) != nil {
		return nil
	}
	l.asStored(m, r.sequence, bytes.TrimSuffix(r.header, crlf), r.body)
	return m
}
