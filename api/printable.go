package api

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// Printable is what somebody else has said, fit for a terminal, a log or a page: one line, of
// at most so many bytes. What does not print (control characters and with them escape
// sequences, what turns the direction of writing or has no width, bytes that are no UTF-8) is
// written as an escape, as in JSON; what is cut off ends in "…". It changes nothing a second
// time.
func Printable(text string, most int) string { return printable(text, most, "") }

// PrintableLines is Printable without a bound, for text of several lines: line ends and tabs
// stay.
func PrintableLines(text string) string { return printable(text, len(text)*6, "\n\t") }

func printable(text string, most int, but string) string {
	if len(text) <= most && strings.IndexFunc(text, func(r rune) bool { return r == utf8.RuneError || !prints(r, but) }) < 0 {
		return text
	}
	const more = "…"
	var b strings.Builder
	whole := 0 // of what was written, so much leaves room for more
	for i, r := range text {
		part := string(r)
		if _, n := utf8.DecodeRuneInString(text[i:]); r == utf8.RuneError && n == 1 {
			part = fmt.Sprintf(`\x%02x`, text[i])
		} else if !prints(r, but) {
			part = escaped(r)
		}
		if b.Len()+len(part) > most {
			return b.String()[:whole] + more[:min(len(more), most)]
		}
		b.WriteString(part)
		if b.Len() <= most-len(more) {
			whole = b.Len()
		}
	}
	return b.String()
}

func prints(r rune, but string) bool { return strconv.IsPrint(r) || strings.ContainsRune(but, r) }

func escaped(r rune) string {
	if hi, lo := utf16.EncodeRune(r); hi != utf8.RuneError {
		return fmt.Sprintf(`\u%04x\u%04x`, hi, lo)
	}
	return fmt.Sprintf(`\u%04x`, r)
}
