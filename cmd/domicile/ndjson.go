package main

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"domicile/api"
	"domicile/regions/strict"
)

// maxLine is how long one line may be: a body at its limit with every byte escaped,
// and room for the rest. A longer line is refused and skipped.
const maxLine = 6*api.MaxBody + 1<<20

// lineReader cuts a stream into numbered lines and never holds more than one.
type lineReader struct {
	r      *bufio.Reader
	number uint64
	read   int64 // bytes so far
}

func newLineReader(r io.Reader) *lineReader { return &lineReader{r: bufio.NewReaderSize(r, 1<<16)} }

// errLongLine refuses one line; reading goes on behind it.
var errLongLine = &api.Error{Code: api.BodyTooLarge, Field: "line", Hint: fmt.Sprintf("a line holds at most %d bytes", maxLine)}

// next returns the next line that is not blank, without its line end, and its
// number from 1. After errLongLine the next call goes on; io.EOF ends the stream.
func (l *lineReader) next() ([]byte, uint64, error) {
	for {
		line, tooLong, err := l.line()
		if err != nil {
			return nil, l.number, err
		}
		if tooLong {
			return nil, l.number, errLongLine
		}
		if len(bytes.TrimSpace(line)) > 0 {
			return line, l.number, nil
		}
	}
}

func (l *lineReader) line() (line []byte, tooLong bool, err error) {
	l.number++
	for {
		part, err := l.r.ReadSlice('\n')
		l.read += int64(len(part))
		if len(line)+len(part) > maxLine {
			tooLong, line = true, nil
		}
		if !tooLong {
			line = append(line, part...)
		}
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case errors.Is(err, io.EOF) && (len(line) > 0 || tooLong):
			return line, tooLong, nil
		case err != nil:
			return nil, false, err
		}
		return bytes.TrimSuffix(bytes.TrimSuffix(line, []byte("\n")), []byte("\r")), tooLong, nil
	}
}

var lineKeys = []string{"id", "key", "tags", "headers", "time", "body"}

func badLine(field, hint string) error {
	return &api.Error{Code: api.BadRequest, Op: "read line", Field: field, Hint: hint}
}

// parseLine reads one line: {"id", "key", "tags": {…}, "headers": {…}, "time",
// "body"}. A body that is a JSON string is its text; any other JSON is kept byte by
// byte. Nothing is guessed: unknown and repeated keys and text that would have to be
// altered are refused.
func parseLine(line []byte) (api.Record, error) {
	if !utf8.Valid(line) {
		return api.Record{}, badLine("line", "the line is not UTF-8; for other bytes use --raw")
	}
	fields, err := members(line)
	if err != nil {
		return api.Record{}, badLine("line", err.Error())
	}
	var r api.Record
	seen := false
	for _, f := range fields {
		switch f.name {
		case "id":
			r.ID, err = textOf(f.value)
		case "key":
			r.Key, err = textOf(f.value)
		case "tags":
			r.Tags, err = pairsOf(f.value, func(n, v string) api.Tag { return api.Tag{Name: n, Value: v} })
		case "headers":
			r.Headers, err = pairsOf(f.value, func(n, v string) api.Header { return api.Header{Name: n, Value: v} })
		case "time":
			r.EventTime, err = timeOf(f.value)
		case "body":
			seen = true
			r.Body, err = bodyOf(f.value)
		default:
			hint := "a line has id, key, tags, headers, time and body"
			if near := strict.Nearest(f.name, lineKeys); near != "" {
				hint = fmt.Sprintf("unknown key; did you mean %q?", near)
			}
			return api.Record{}, badLine("line", hint)
		}
		if err != nil {
			return api.Record{}, badLine(f.name, err.Error())
		}
	}
	if !seen {
		return api.Record{}, badLine("body", "the line has no body")
	}
	return r, nil
}

type member struct {
	name  string
	value json.RawMessage
}

// members lists an object's members in their order and refuses one given twice.
func members(object []byte) ([]member, error) {
	dec := json.NewDecoder(bytes.NewReader(object))
	if start, err := dec.Token(); err != nil || start != json.Delim('{') {
		return nil, errors.New("not a JSON object")
	}
	var list []member
	seen := map[string]bool{}
	for dec.More() {
		name, err := dec.Token()
		if err != nil {
			return nil, errors.New("not a JSON object")
		}
		m := member{name: name.(string)} // a member's name is always a string
		if err := dec.Decode(&m.value); err != nil {
			return nil, errors.New("not a JSON object")
		}
		if seen[m.name] {
			return nil, errors.New("a name is given twice in one object")
		}
		seen[m.name] = true
		list = append(list, m)
	}
	if _, err := dec.Token(); err != nil {
		return nil, errors.New("the JSON object does not end")
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("something follows the JSON object")
	}
	return list, nil
}

// textOf reads a JSON string. An escape that stands for no character would become
// another text silently; it is refused.
func textOf(value json.RawMessage) (string, error) {
	var s *string
	if err := json.Unmarshal(value, &s); err != nil || s == nil {
		return "", errors.New("not a JSON string")
	}
	if strings.Count(*s, "\uFFFD") > strings.Count(string(value), "\uFFFD")+strings.Count(strings.ToLower(string(value)), `\ufffd`) {
		return "", errors.New("half of a surrogate pair: the text has no bytes")
	}
	return *s, nil
}

func bodyOf(value json.RawMessage) ([]byte, error) {
	if len(value) > 0 && value[0] == '"' {
		s, err := textOf(value)
		return []byte(s), err
	}
	return value, nil
}

func timeOf(value json.RawMessage) (time.Time, error) {
	s, err := textOf(value)
	if err != nil {
		return time.Time{}, err
	}
	t, err := time.Parse(time.RFC3339Nano, s)
	if err != nil {
		return time.Time{}, errors.New("write the time as 2006-01-02T15:04:05Z")
	}
	return t, nil
}

func pairsOf[T any](value json.RawMessage, pair func(name, value string) T) ([]T, error) {
	list, err := members(value)
	if err != nil {
		return nil, err
	}
	pairs := make([]T, 0, len(list))
	for _, m := range list {
		text, err := textOf(m.value)
		if err != nil {
			return nil, err
		}
		pairs = append(pairs, pair(m.name, text))
	}
	return pairs, nil
}

// lineID is the id of a line that gives none: the same line at the same place is the
// same event, so that publishing a file again repeats nothing.
func lineID(number uint64, line []byte) string {
	h := sha256.New()
	h.Write(strconv.AppendUint(nil, number, 10))
	h.Write([]byte{'\n'})
	h.Write(line)
	return "line-" + hex.EncodeToString(h.Sum(nil)[:16])
}
