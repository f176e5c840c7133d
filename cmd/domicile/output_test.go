package main

import (
	"encoding/json"
	"io"
	"strconv"
	"strings"
	"testing"
	"time"

	"domicile/api"
	pb "domicile/api/domicile/v1"
)

func TestCount(t *testing.T) {
	for n, want := range map[int64]string{0: "0", 999: "999", 1000: "1,000", 1234567: "1,234,567", -1000: "-1,000", -999: "-999"} {
		if got := count(n); got != want {
			t.Errorf("count(%d) = %q, want %q", n, got, want)
		}
	}
}

func TestTable_AlignsAndLeavesNoTrailingSpace(t *testing.T) {
	var b strings.Builder
	table(&b, "  ", [][]string{{"a", "long cell", ""}, {"±±", "b", "c"}})
	if want := "  a   long cell\n  ±±  b          c\n"; b.String() != want {
		t.Errorf("got %q, want %q", b.String(), want)
	}
}

func TestClockTime(t *testing.T) {
	now := time.Date(2026, 11, 29, 3, 0, 0, 0, time.UTC)
	if got := clockTime(now.Add(-time.Hour), now); got != "02:00:00" {
		t.Error(got)
	}
	if got := clockTime(now.Add(-24*time.Hour), now); got != "2026-11-28 03:00:00" {
		t.Error(got)
	}
}

// A remark that is longer than any cell moves no column of the rows around it.
func TestTable_RemarksWidenNothing(t *testing.T) {
	var b strings.Builder
	table(&b, "", [][]string{{"a", "bb", "c"}, {"", "because: a long story"}, {"aaa", "b", "c"}})
	if want := "a    bb  c\n     because: a long story\naaa  b   c\n"; b.String() != want {
		t.Errorf("got\n%swant\n%s", b.String(), want)
	}
}

// A4: a status whose every text is another region's clears no screen and forges no line, and
// JSON says the same behind the screen as before it.
func TestFA4_NothingThatIsSaidReachesATerminalRaw(t *testing.T) {
	const esc = "\x1b[2J\x1b]0;owned\x07\r\u009b31m\u202eok: all is well\u200b"
	m := &pb.StatusResponse{Region: "eu-west", Verdict: esc, Level: "degraded", Warnings: []string{esc}, Advice: []string{esc},
		Links:    []*pb.LinkState{{Peer: "us-east", State: "down", Reason: esc, Gateway: esc}},
		Policies: []*pb.PolicyState{{Region: "us-east", Known: true, Revision: esc, ManifestDigest: esc, Differences: []string{esc}}}}
	var seen strings.Builder
	a := &app{out: screen{&seen}, err: screen{&seen}}
	if _, err := io.WriteString(a.out, renderStatus(m, time.Now())); err != nil {
		t.Fatal(err)
	}
	a.printError(&api.Error{Code: api.PermissionDenied, Region: esc, Hint: esc})
	if i := strings.IndexFunc(seen.String(), func(r rune) bool { return r != '\n' && !strconv.IsPrint(r) }); i >= 0 {
		t.Errorf("at %d: %q", i, seen.String())
	}
	seen.Reset()
	if err := a.printJSON(map[string]string{"reason": esc}); err != nil {
		t.Fatal(err)
	}
	var back map[string]string
	if err := json.Unmarshal([]byte(seen.String()), &back); err != nil || back["reason"] != esc {
		t.Errorf("%q: %v", seen.String(), err)
	}
}
