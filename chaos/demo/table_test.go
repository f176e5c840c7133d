package demo

import (
	"bytes"
	"strings"
	"testing"
	"time"
)

func TestR14d_UnknownIsNeverShownAsZero(t *testing.T) {
	regions := []string{"eu-west", "us-east"}
	v := view{
		"orders@eu-west": {"eu-west": {home: true}, "us-east": {known: true, seconds: 3.21, state: "LINK_DOWN"}},
		"orders@us-east": {"us-east": {home: true}},
	}
	var b bytes.Buffer
	now := time.Unix(1_800_000_000, 0)
	lines := &table{out: &b, regions: regions}
	lines.show(now, "cut", v)
	lines.show(now.Add(time.Second), "cut", v)
	want := "  cut      lag: eu-west unknown, us-east 3.2 s link down\n"
	if b.String() != want {
		t.Errorf("got  %q\nwant %q", b.String(), want)
	}
	b.Reset()
	drawn := &table{out: &b, regions: regions, terminal: true}
	drawn.show(now, "cut", v)
	drawn.show(now.Add(time.Second), "cut", v)
	if text := b.String(); strings.Contains(text, "0.0") || strings.Count(text, "unknown") != 2 || strings.Count(text, "\x1b[3A") != 1 {
		t.Errorf("table %q", text)
	}
}
