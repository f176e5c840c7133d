package tail

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"strconv"
	"time"

	"domicile/regions"
)

// A file holds lines, each a checksum and what was heard at once. The first line that is
// not whole ends it: what stood behind it is unknown.
type line struct {
	regions.TailList
	Entries []byte    `json:",omitempty"` // packed
	Heard   time.Time // by this region's clock
	Cursor  uint64    // where the copy ended
}

// packed is an entry in a file, of fixed size.
type packed struct {
	From, Sequence uint64
	Time           int64 // nanoseconds since 1970
	ID             regions.TailHash
	Bytes          uint32
	Kind           uint8 // place in kinds
}

// kinds are numbered for ever: append only.
func kinds() []regions.GapKind {
	return []regions.GapKind{"", regions.Withheld, regions.Expired, regions.Purged, regions.Erased, regions.Void, regions.Damaged}
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// encode is one line, its end included.
func encode(l *regions.TailList, cursor uint64, heard time.Time) ([]byte, error) {
	out := line{TailList: *l, Heard: heard, Cursor: cursor}
	out.TailList.Entries = nil
	all := kinds()
	for _, e := range l.Entries {
		p := packed{From: e.From, Sequence: e.Sequence, Time: e.Time.UnixNano(), ID: e.ID, Bytes: e.Bytes}
		for i, kind := range all {
			if kind == e.Kind {
				p.Kind = uint8(i)
			}
		}
		var err error
		if out.Entries, err = binary.Append(out.Entries, binary.BigEndian, &p); err != nil {
			return nil, err
		}
	}
	body, err := json.Marshal(&out)
	if err != nil {
		return nil, err
	}
	return fmt.Appendf(nil, "%08x %s\n", crc32.Checksum(body, castagnoli), body), nil
}

// decode reads one line without its end. ok is false for a line that is not whole.
func decode(b []byte) (in line, ok bool) {
	sum, body, found := bytes.Cut(b, []byte(" "))
	want, err := strconv.ParseUint(string(sum), 16, 32)
	if !found || err != nil || crc32.Checksum(body, castagnoli) != uint32(want) {
		return in, false
	}
	if json.Unmarshal(body, &in) != nil {
		return in, false
	}
	size, all := binary.Size(packed{}), kinds()
	if len(in.Entries)%size != 0 {
		return in, false
	}
	for rest := in.Entries; len(rest) > 0; rest = rest[size:] {
		var p packed
		if _, err := binary.Decode(rest, binary.BigEndian, &p); err != nil || int(p.Kind) >= len(all) {
			return in, false
		}
		in.TailList.Entries = append(in.TailList.Entries, regions.TailEntry{From: p.From, Sequence: p.Sequence,
			Kind: all[p.Kind], ID: p.ID, Time: time.Unix(0, p.Time).UTC(), Bytes: p.Bytes})
	}
	return in, true
}
