package main

import (
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"domicile/api"
)

func TestParseLine_Whole(t *testing.T) {
	got, err := parseLine([]byte(`{"id":"o-1","key":"k","tags":{"residency":"eu","class":"order"},"headers":{"Trace":"t"},"time":"2026-03-01T10:00:00.5Z","body":"h\u00e9"}`))
	if err != nil {
		t.Fatal(err)
	}
	want := api.Record{
		ID: "o-1", Key: "k", Tags: []api.Tag{{Name: "residency", Value: "eu"}, {Name: "class", Value: "order"}},
		Headers: []api.Header{{Name: "Trace", Value: "t"}}, Body: []byte("hé"),
		EventTime: time.Date(2026, 3, 1, 10, 0, 0, 5e8, time.UTC),
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

// Any JSON that is not a string is the body byte by byte: spaces, big numbers and
// the order of keys stay as they are.
func TestParseLine_BodyKeepsItsBytes(t *testing.T) {
	for _, body := range []string{`{"b": 1.0,  "a":12345678901234567890}`, `[1, 2]`, `0.10`, `true`, `null`} {
		r, err := parseLine([]byte(`{"body":` + body + `}`))
		if err != nil || string(r.Body) != body {
			t.Errorf("body %s: got %q, %v", body, r.Body, err)
		}
	}
}

func TestParseLine_Refuses(t *testing.T) {
	for _, c := range []struct{ name, line, field, hint string }{
		{"not JSON", `hello`, "line", "not a JSON object"},
		{"array", `[]`, "line", "not a JSON object"},
		{"cut off", `{"body":"x"`, "line", "does not end"},
		{"two objects", `{"body":"x"}{}`, "line", "follows"},
		{"unknown key", `{"boddy":"x"}`, "line", `"body"`},
		{"key twice", `{"id":"a","id":"b","body":"x"}`, "line", "twice"},
		{"tag twice", `{"tags":{"residency":"eu","residency":"us"},"body":"x"}`, "tags", "twice"},
		{"tag not text", `{"tags":{"residency":1},"body":"x"}`, "tags", "string"},
		{"no body", `{"id":"a"}`, "body", "no body"},
		{"time", `{"time":"yesterday","body":"x"}`, "time", "2006"},
		{"null id", `{"id":null,"body":"x"}`, "id", "string"},
		{"not UTF-8", "{\"body\":\"\xff\"}", "line", "UTF-8"},
		{"half a surrogate", `{"body":"\ud800"}`, "body", "surrogate"},
	} {
		_, err := parseLine([]byte(c.line))
		var e *api.Error
		if !errors.As(err, &e) || e.Code != api.BadRequest || e.Field != c.field || !strings.Contains(e.Hint, c.hint) {
			t.Errorf("%s: got %v, want field %s and %q", c.name, err, c.field, c.hint)
		}
	}
}

// R14b: what a line holds reaches no error text.
func TestR14b_ParseLineErrorsHoldNoContent(t *testing.T) {
	for _, line := range []string{`{"SECRET":"x"}`, `{"id":{"SECRET":1},"body":"x"}`, `{"time":"SECRET","body":"x"}`, `{"body":"x"}SECRET`, `{"tags":{"SECRET":"SECRET","SECRET":"a"},"body":"x"}`} {
		if _, err := parseLine([]byte(line)); err == nil || strings.Contains(err.Error(), "SECRET") {
			t.Errorf("%s: error %v", line, err)
		}
	}
}

func TestLineReader_NumbersBlankAndLongLines(t *testing.T) {
	text := "a\r\n\n  \nb\n" + strings.Repeat("x", maxLine+1) + "\nlast"
	l := newLineReader(strings.NewReader(text))
	type step struct {
		Line   string
		Number uint64
		Long   bool
	}
	var got []step
	for {
		line, n, err := l.next()
		if errors.Is(err, io.EOF) {
			break
		}
		got = append(got, step{string(line), n, errors.Is(err, errLongLine)})
	}
	want := []step{{"a", 1, false}, {"b", 4, false}, {"", 5, true}, {"last", 6, false}}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	if l.read != int64(len(text)) {
		t.Errorf("read %d bytes of %d", l.read, len(text))
	}
}

func TestLineID_SameLineSamePlaceOnly(t *testing.T) {
	a := lineID(1, []byte("x"))
	if a != lineID(1, []byte("x")) || a == lineID(2, []byte("x")) || a == lineID(1, []byte("y")) || lineID(1, []byte("1\nx")) == lineID(11, []byte("\nx")) {
		t.Error("the derived id must depend on line number and bytes, and on nothing else")
	}
	if len(a) > api.MaxID {
		t.Errorf("%d bytes", len(a))
	}
}

func FuzzParseLine(f *testing.F) {
	f.Add([]byte(`{"id":"o-1","key":"k","tags":{"residency":"eu"},"headers":{"a":"b"},"time":"2026-03-01T10:00:00Z","body":{"a":1}}`))
	f.Add([]byte(`{"body":"\ud83d\ude00"}`))
	f.Fuzz(func(t *testing.T, line []byte) {
		if r, err := parseLine(line); err == nil && r.Body == nil {
			t.Error("a record without a body was accepted")
		}
	})
}
