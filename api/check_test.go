package api_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"domicile/api"
)

func TestCheckAtAndBeyondTheLimits(t *testing.T) {
	headers := func(n, size int) []api.Header {
		h := make([]api.Header, n)
		for i := range h {
			h[i] = api.Header{Name: "n", Value: strings.Repeat("v", size-1)}
		}
		return h
	}
	for name, c := range map[string]struct {
		change func(*api.Record)
		code   api.Code
		field  string
	}{
		"plain":                {func(*api.Record) {}, "", ""},
		"body at the cap":      {func(r *api.Record) { r.Body = make([]byte, api.MaxBody) }, "", ""},
		"body over the cap":    {func(r *api.Record) { r.Body = make([]byte, api.MaxBody+1) }, api.BodyTooLarge, "body"},
		"empty body":           {func(r *api.Record) { r.Body = []byte{} }, api.BodyEmpty, "body"},
		"id at the cap":        {func(r *api.Record) { r.ID = strings.Repeat("i", api.MaxID) }, "", ""},
		"id over the cap":      {func(r *api.Record) { r.ID = strings.Repeat("i", api.MaxID+1) }, api.BadID, "id"},
		"id in other letters":  {func(r *api.Record) { r.ID = "заказ-1" }, "", ""},
		"id with a line break": {func(r *api.Record) { r.ID = "a\nb" }, api.BadID, "id"},
		"no id, no key":        {func(r *api.Record) { r.ID, r.Key = "", "" }, "", ""},
		"key not UTF-8":        {func(r *api.Record) { r.Key = "\xff" }, api.BadKey, "key"},
		"64 headers":           {func(r *api.Record) { r.Headers = headers(api.MaxHeaders, 512) }, "", ""},
		"65 headers":           {func(r *api.Record) { r.Headers = headers(api.MaxHeaders+1, 2) }, api.HeadersTooLarge, "headers"},
		"32 KiB and a byte":    {func(r *api.Record) { r.Headers = append(headers(63, 512), headers(1, 513)...) }, api.HeadersTooLarge, "headers"},
		"empty header value":   {func(r *api.Record) { r.Headers = []api.Header{{Name: "n"}} }, "", ""},
		"no header name":       {func(r *api.Record) { r.Headers = []api.Header{{Value: "v"}} }, api.BadHeader, "headers[0].name"},
		"header name":          {func(r *api.Record) { r.Headers = []api.Header{{Name: "a:b"}} }, api.BadHeader, "headers[0].name"},
		"header not UTF-8":     {func(r *api.Record) { r.Headers = []api.Header{{Name: "n", Value: "\xc3"}} }, api.BadHeader, "headers[0].value"},
		"header with NUL":      {func(r *api.Record) { r.Headers = []api.Header{{Name: "n"}, {Name: "n", Value: "\x00"}} }, api.BadHeader, "headers[1].value"},
		"event time long ago":  {func(r *api.Record) { r.EventTime = time.Date(1700, 1, 1, 0, 0, 0, 0, time.UTC) }, "", ""},
		"event time too far":   {func(r *api.Record) { r.EventTime = time.Date(2300, 1, 1, 0, 0, 0, 0, time.UTC) }, api.BadRequest, "event_time"},
	} {
		r := api.Record{ID: "id", Key: "key", Body: []byte("x")}
		c.change(&r)
		err := r.Check()
		if api.CodeOf(err) != c.code {
			t.Errorf("%s: got %v, want %q", name, err, c.code)
			continue
		}
		var e *api.Error
		if errors.As(err, &e) && (e.Field != c.field || e.Hint == "") {
			t.Errorf("%s: field %q, hint %q", name, e.Field, e.Hint)
		}
	}
}

// FuzzCheck: no refusal repeats what the record holds, whatever that is.
func FuzzCheck(f *testing.F) {
	f.Add("id", "key", "name", "value", []byte("body"))
	f.Add("\xff", "k\x00", "na me", "\r\n", []byte{})
	f.Fuzz(func(t *testing.T, id, key, name, value string, body []byte) {
		const mark = "canary-in-the-record"
		r := api.Record{ID: id + mark, Key: key + mark, Headers: []api.Header{{Name: name, Value: value + mark}}, Body: body}
		if err := r.Check(); err != nil && strings.Contains(err.Error(), mark) {
			t.Fatalf("the error holds content: %v", err)
		}
	})
}
