package api

import (
	"fmt"
	"unicode"
	"unicode/utf8"
)

// Check refuses a record that breaks a limit of the public contract, with the code,
// the field and the way out, and never with what the record holds. It looks at id,
// key, headers, body and event time; topic and tags are judged against the
// federation and the policy's vocabulary.
func (r *Record) Check() error {
	if err := checkWord(BadID, "id", r.ID, MaxID); err != nil {
		return err
	}
	if err := checkWord(BadKey, "key", r.Key, MaxKey); err != nil {
		return err
	}
	if err := r.checkHeaders(); err != nil {
		return err
	}
	switch y := r.EventTime.UTC().Year(); {
	case len(r.Body) == 0:
		return refuse(BodyEmpty, "body", "", "a record has a body of 1 byte to 1 MiB")
	case len(r.Body) > MaxBody:
		return refuse(BodyTooLarge, "body", fmt.Sprintf("%d bytes", len(r.Body)), "at most 1 MiB: store large content elsewhere, within the same boundary, and publish a pointer to it")
	case !r.EventTime.IsZero() && (y < 1678 || y > 2261):
		return refuse(BadRequest, "event_time", "", "any time from 1678 to 2261; leave it out if there is none")
	}
	return nil
}

func refuse(code Code, field, value, hint string) error {
	return &Error{Code: code, Op: "check record", Field: field, Value: value, Hint: hint}
}

// checkWord takes an id or a key: it may be empty, is short, and can be printed.
func checkWord(code Code, field, s string, limit int) error {
	if len(s) > limit {
		return refuse(code, field, fmt.Sprintf("%d bytes", len(s)), fmt.Sprintf("at most %d bytes", limit))
	}
	if !utf8.ValidString(s) {
		return refuse(code, field, "", "it is not UTF-8")
	}
	for _, c := range s {
		if !unicode.IsPrint(c) {
			return refuse(code, field, "", "printable characters only")
		}
	}
	return nil
}

func (r *Record) checkHeaders() error {
	if len(r.Headers) > MaxHeaders {
		return refuse(HeadersTooLarge, "headers", fmt.Sprintf("%d headers", len(r.Headers)), fmt.Sprintf("at most %d headers", MaxHeaders))
	}
	total := 0
	for i := range r.Headers {
		h := &r.Headers[i]
		total += len(h.Name) + len(h.Value)
		if !IsToken(h.Name) {
			return refuse(BadHeader, fmt.Sprintf("headers[%d].name", i), "", "letters, digits and !#$%&'*+-.^_`|~ only, at least one")
		}
		if !utf8.ValidString(h.Value) {
			return refuse(BadHeader, fmt.Sprintf("headers[%d].value", i), "", "it is not UTF-8: encode bytes as base64")
		}
		for _, c := range h.Value {
			if unicode.IsControl(c) {
				return refuse(BadHeader, fmt.Sprintf("headers[%d].value", i), "", "no control characters: encode the value as base64")
			}
		}
	}
	if total > MaxHeaderBytes {
		return refuse(HeadersTooLarge, "headers", fmt.Sprintf("%d bytes", total), "at most 32 KiB of names and values together")
	}
	return nil
}

// IsToken reports whether s is an HTTP token, as names of headers are.
func IsToken(s string) bool {
	for i := range len(s) {
		b := s[i]
		letter := b >= 'a' && b <= 'z' || b >= 'A' && b <= 'Z' || b >= '0' && b <= '9'
		if !letter && !tokenMarks[b] {
			return false
		}
	}
	return s != ""
}

// IsWord reports whether s is printable ASCII without a space, one to limit bytes of it: what
// regions tell each other besides records.
func IsWord(s string, limit int) bool {
	for i := range len(s) {
		if s[i] <= ' ' || s[i] > '~' {
			return false
		}
	}
	return s != "" && len(s) <= limit
}

var tokenMarks = [256]bool{'!': true, '#': true, '$': true, '%': true, '&': true, '\'': true, '*': true, '+': true,
	'-': true, '.': true, '^': true, '_': true, '`': true, '|': true, '~': true}
