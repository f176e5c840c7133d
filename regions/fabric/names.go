package fabric

import (
	"crypto/sha256"
	"encoding/base32"
	"fmt"
	"strings"

	"domicile/api"
)

// maxStreamName keeps every name well below the 255 bytes that broker and file
// systems take.
const maxStreamName = 200

// streamName is the broker's name for a log. It is one-to-one, also on a disk that
// does not tell upper from lower case: lower-case letters, digits and '-' stand for
// themselves, every other byte is '_' and two hex digits, and "__", which no escape
// can produce, parts the topic from the slot. A name that would grow too long is
// "_h" and a SHA-256 instead. The log's id itself is in the stream's metadata.
func streamName(id api.LogID) (string, error) {
	if id.Topic == "" || id.Slot == "" {
		return "", &api.Error{Code: api.BadName, Op: "name log", Field: "log", Value: id.String(),
			Hint: "a log has a topic and a slot"}
	}
	if name := escapeName(id.Topic) + "__" + escapeName(id.Slot); len(name) <= maxStreamName {
		return name, nil
	}
	sum := sha256.Sum256([]byte(id.Topic + "\x00" + id.Slot))
	return "_h" + strings.ToLower(base32.HexEncoding.WithPadding(base32.NoPadding).EncodeToString(sum[:])), nil
}

// anew is the name of a log's stream that was made n times after a deletion. "_g" is no
// escape, so no other log has it.
func anew(name string, n uint64) string {
	if n == 0 {
		return name
	}
	return fmt.Sprintf("%s_g%d", name, n)
}

// generation is how often the log that is there, or would be made now, was made anew.
func (f *Fabric) generation(e logEntry) uint64 {
	if e.State == stateDeleted && f.cfg.Cluster != nil {
		return e.Made + 1
	}
	return e.Made
}

const hexDigits = "0123456789abcdef"

func escapeName(s string) string {
	var b strings.Builder
	for i := range len(s) {
		if c := s[i]; c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '-' {
			b.WriteByte(c)
		} else {
			b.WriteByte('_')
			b.WriteByte(hexDigits[c>>4])
			b.WriteByte(hexDigits[c&15])
		}
	}
	return b.String()
}
