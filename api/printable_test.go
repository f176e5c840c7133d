package api

import (
	"encoding/json"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestFA4_WhatPeersSayPrints(t *testing.T) {
	for _, c := range []struct {
		text string
		most int
		want string
	}{
		{"plain, ünïcode 語", 80, "plain, ünïcode 語"},
		{"", 0, ""},
		{"\x1b[2J\x1b]0;owned\x07\r\nok: all is well", 80, `\u001b[2J\u001b]0;owned\u0007\u000d\u000aok: all is well`},
		{"\u009b31m \u202eabc\u2066 z\u200bw\u200d \ufeff\u00ad \x7f", 120, `\u009b31m \u202eabc\u2066 z\u200bw\u200d \ufeff\u00ad \u007f`},
		{"tag \U000e0041", 80, `tag \udb40\udc41`},
		{"bytes \xff\xc3", 80, `bytes \xff\xc3`},
		{"a real \ufffd stays", 80, "a real \ufffd stays"},
		{"0123456789", 10, "0123456789"},
		{"0123456789A", 10, "0123456…"},
		{"語語語語", 10, "語語…"},
		{"12345\x1b", 10, "12345…"},
		{"\x1b\x1b", 2, ""},
	} {
		if got := Printable(c.text, c.most); got != c.want && c.most > 2 || len(got) > c.most {
			t.Errorf("%q in %d bytes: %q, want %q", c.text, c.most, got, c.want)
		}
	}
	if got, want := PrintableLines("a\tb\n\x1b[2Jc\r\n"), "a\tb\n\\u001b[2Jc\\u000d\n"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

func FuzzPrintable(f *testing.F) {
	f.Add("\x1b[2J ok", 20)
	f.Add("\u202e\xff…", 4)
	f.Fuzz(func(t *testing.T, text string, most int) {
		most &= 1<<12 - 1
		got := Printable(text, most)
		if len(got) > most || !utf8.ValidString(got) && most > 2 || strings.IndexFunc(got, func(r rune) bool { return r != utf8.RuneError && !strconv.IsPrint(r) }) >= 0 {
			t.Errorf("%q in %d bytes: %q", text, most, got)
		}
		if again := Printable(got, most); again != got && most > 2 {
			t.Errorf("%q, again %q", got, again)
		}
		var back, plain string
		quoted, err := json.Marshal(text)
		if err != nil || json.Unmarshal(quoted, &plain) != nil {
			t.Skip()
		}
		if err := json.Unmarshal([]byte(PrintableLines(string(quoted))), &back); err != nil || back != plain {
			t.Errorf("JSON of %q means %q, %v", plain, back, err)
		}
	})
}
