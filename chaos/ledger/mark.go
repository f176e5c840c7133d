package ledger

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
)

const (
	markSign = "#"
	markLen  = len(markSign) + 24
)

// Mark stands for an id or a key where the plain one must not be written: 96 bits of
// its SHA-256. The mark of "" is "", and a mark's mark is itself, so a history that
// was written and read again is compared like the one in memory.
func Mark(s string) string {
	if s == "" || len(s) == markLen && strings.HasPrefix(s, markSign) && isHex(s[len(markSign):]) {
		return s
	}
	sum := sha256.Sum256([]byte(s))
	return markSign + hex.EncodeToString(sum[:])[:markLen-len(markSign)]
}

func isHex(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return (r < '0' || r > '9') && (r < 'a' || r > 'f') })
}
