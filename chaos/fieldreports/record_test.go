package fieldreports

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"domicile/api"
	"domicile/chaos/lab"
)

// largest is a record with everything at its limit, headers included.
func largest(id, residency string) api.Record {
	r := record(id+strings.Repeat("i", api.MaxID-len(id)), "orders", residency, make([]byte, api.MaxBody))
	r.Key = strings.Repeat("k", api.MaxKey)
	each := api.MaxHeaderBytes / api.MaxHeaders
	for n := range api.MaxHeaders {
		name := fmt.Sprintf("h%03d", n)
		r.Headers = append(r.Headers, api.Header{Name: name, Value: strings.Repeat("v", each-len(name))})
	}
	return r
}

// B35: exactly at the limit a record is taken, forwarded and mirrored, with all that
// the product adds to it; one byte beyond it is refused, with both sizes, and the
// connection goes on.
func TestB35_ExactlyAtTheLimit(t *testing.T) {
	d := start(t, lab.Options{})
	ok := map[string]api.Record{
		"forwarded": largest("forwarded-", "eu"),
		"mirrored":  largest("mirrored-", "global"),
		"one byte":  record("one byte", "orders", "global", []byte("x")),
	}
	for name, r := range ok {
		if _, err := d.publish("us-east", r); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	body, header, count := largest("a", "eu"), largest("b", "eu"), largest("c", "eu")
	body.Body = make([]byte, api.MaxBody+1)
	header.Headers[3].Value += "v"
	count.Headers = append(count.Headers, api.Header{Name: "one-more", Value: ""})
	empty := record("empty", "orders", "global", nil)
	for name, c := range map[string]struct {
		record api.Record
		code   api.Code
	}{"body": {body, api.BodyTooLarge}, "headers": {header, api.HeadersTooLarge}, "header count": {count, api.HeadersTooLarge}, "empty": {empty, api.BodyEmpty}} {
		_, err := d.publish("us-east", c.record)
		var e *api.Error
		if !errors.As(err, &e) || e.Code != c.code || e.Hint == "" {
			t.Errorf("%s: got %v, want %s", name, err, c.code)
		}
		if name == "body" && e != nil && (!strings.Contains(err.Error(), fmt.Sprint(api.MaxBody+1)) || !strings.Contains(err.Error(), "1 MiB")) {
			t.Errorf("%s: %v names not both sizes", name, err)
		}
	}
	d.burst("us-east", "after", "orders", "eu", 5)
	d.settle()
}

// B36: names that suit the wire and not the store. A topic that is not declared is
// refused at once, whatever it is called: no name reaches the store or its subjects.
func TestB36_StrangeTopicNamesAreRefusedAtOnce(t *testing.T) {
	d := start(t, lab.Options{})
	for _, name := range []string{
		"orders.eu", "Orders", "ORDERS", "a..b", ".a", "a.", "orders.*", "orders.>", "*", ">", "a b", "", strings.Repeat("a", 256), "../orders", "orders/../orders",
		"a/b", `a\b`, "con", "$SYS.x", "$JS.API.STREAM.DELETE.x", "_INBOX.x", "caf\u00e9", "cafe\u0301", "\U0001F4E6", "orders\x00", "orders\n", "оrders",
	} {
		r := record("named", "orders", "global", []byte("x"))
		r.Topic = name
		if _, err := d.publish("us-east", r); api.CodeOf(err) != api.UnknownTopic && api.CodeOf(err) != api.BadName {
			t.Errorf("%q: %v", name, err)
		}
	}
	d.burst("us-east", "after", "orders", "global", 5)
	d.settle()
}
