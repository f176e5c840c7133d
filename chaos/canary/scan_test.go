package canary

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"strings"
	"testing"
	"testing/iotest"

	"pgregory.net/rapid"
)

// With small chunks every place of a token relative to an edge is tried, in every
// encoding, several tokens in one file, and readers that give little at a time.
func TestR14b_NothingIsMissedOrCountedTwiceAtAnEdge(t *testing.T) {
	tokens := []string{Plain(), Awkward()}
	encoders := []func(string) string{
		func(s string) string { return s },
		func(s string) string { return hex.EncodeToString([]byte(s)) },
		func(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) },
		jsonUnicode,
	}
	rapid.Check(t, func(t *rapid.T) {
		var text strings.Builder
		want := make([]int, len(tokens))
		for range rapid.IntRange(1, 6).Draw(t, "tokens") {
			which := rapid.IntRange(0, len(tokens)-1).Draw(t, "which")
			encode := rapid.SampledFrom(encoders).Draw(t, "encoder")
			text.WriteString(strings.Repeat(".", rapid.IntRange(0, 300).Draw(t, "before")))
			text.WriteString(encode(strings.Repeat("x", rapid.IntRange(0, 2).Draw(t, "shift")) + tokens[which]))
			want[which]++
		}
		s := newScanner("", tokens, rapid.IntRange(1, 400).Draw(t, "chunk"))
		if err := s.stream("f", iotest.HalfReader(strings.NewReader(text.String()))); err != nil {
			t.Fatal(err)
		}
		for i, n := range want {
			if s.report.Found(i) != n {
				t.Fatalf("token %d: %d times, want %d in %q", i, s.report.Found(i), n, text.String())
			}
		}
		if s.report.Bytes != int64(text.Len()) {
			t.Fatalf("%d bytes read of %d", s.report.Bytes, text.Len())
		}
	})
}

func TestR14b_OffsetsAreExact(t *testing.T) {
	token := Plain()
	for chunk := 1; chunk < 100; chunk++ {
		for at := range 60 {
			s := newScanner("", []string{token}, chunk)
			content := append(bytes.Repeat([]byte{0}, at), token...)
			if err := s.stream("f", bytes.NewReader(content)); err != nil {
				t.Fatal(err)
			}
			if f := s.report.Findings; len(f) != 1 || f[0].Offset != int64(at) {
				t.Fatalf("chunk %d, token at %d: %v", chunk, at, f)
			}
		}
	}
}

func TestR14b_AReaderThatFailsIsNotClean(t *testing.T) {
	s := newScanner("", []string{Plain()}, 64)
	if err := s.stream("f", iotest.ErrReader(iotest.ErrTimeout)); err == nil || s.report.Files != 0 {
		t.Errorf("err %v, %d files read", err, s.report.Files)
	}
}
