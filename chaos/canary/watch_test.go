package canary

import (
	"encoding/base64"
	"encoding/hex"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// However a stream is cut into pieces, each token is found once, as soon as its last byte
// has passed, also one that was added while the stream went on.
func TestRP2_AStreamIsSearchedAsItPasses(t *testing.T) {
	encoders := []func(string) string{
		func(s string) string { return s },
		func(s string) string { return hex.EncodeToString([]byte(s)) },
		func(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) },
		jsonUnicode,
	}
	rapid.Check(t, func(t *rapid.T) {
		set := &Set{}
		trail := NewWatcher(set).Trail()
		want, have := map[int]int{}, map[int]int{}
		for range rapid.IntRange(1, 6).Draw(t, "tokens") {
			which := set.Len()
			if which > 0 && rapid.Bool().Draw(t, "again") {
				which = rapid.IntRange(0, which-1).Draw(t, "which")
			} else {
				set.Add(rapid.SampledFrom([]func() string{Plain, Awkward}).Draw(t, "mint")(), "body")
			}
			token := set.snapshot()[which]
			encode := rapid.SampledFrom(encoders).Draw(t, "encoder")
			text := strings.Repeat(".", rapid.IntRange(0, 300).Draw(t, "before")) + encode(strings.Repeat("x", rapid.IntRange(0, 2).Draw(t, "shift"))+token)
			want[which]++
			for text != "" {
				n := rapid.IntRange(1, len(text)).Draw(t, "piece")
				trail.Look([]byte(text[:n]), func(token int, _ Form) { have[token]++ })
				text = text[n:]
			}
			if have[which] != want[which] {
				t.Fatalf("token %d: %d times, want %d", which, have[which], want[which])
			}
		}
		if len(have) != len(want) {
			t.Fatalf("found %v, want %v", have, want)
		}
		if len(trail.seen) > 200 {
			t.Fatalf("%d bytes are kept", len(trail.seen))
		}
	})
}
