package main

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	pb "domicile/api/domicile/v1"
)

var ordersEU = &pb.LogId{Topic: "orders", Slot: "eu-west"}

// R14d: what nobody knows is never shown as zero, in text and in JSON.
func TestR14d_UnknownIsNeverZero(t *testing.T) {
	lag := &pb.LogLag{Log: ordersEU, Home: "eu-west", Target: "us-east", State: "UNKNOWN"}
	text := renderLag(&pb.LagResponse{Region: "us-east", Logs: []*pb.LogLag{lag}})
	row := strings.Split(strings.TrimSpace(text), "\n")[2]
	if n := strings.Count(row, unknown); n != 5 || strings.Contains(row, " 0") {
		t.Errorf("want five figures unknown and none zero: %s", row)
	}
	b, err := json.Marshal(viewLag(lag))
	if err != nil {
		t.Fatal(err)
	}
	for _, field := range []string{"staleness_seconds", "staleness_error_seconds", "safe_time", "exposure_seconds", "pending_records", "pending_bytes", "knowledge_age_seconds"} {
		if !strings.Contains(string(b), `"`+field+`":null`) {
			t.Errorf("%s is not null in %s", field, b)
		}
	}
	// Nothing at all is known: every part says so and nothing claims to be well.
	empty := renderStatus(&pb.StatusResponse{Links: []*pb.LinkState{{Peer: "eu-west"}}, Policies: []*pb.PolicyState{{Region: "eu-west"}}}, time.Now())
	for _, want := range []string{"eu-west  unknown  since unknown", "policy unknown", "not heard in this run"} {
		if !strings.Contains(empty, want) {
			t.Errorf("no %q in\n%s", want, empty)
		}
	}
}

func TestRenderTopics_FiguresThatAreNotKnownHere(t *testing.T) {
	r := &pb.TopicsResponse{Topics: []*pb.TopicState{{
		Name: "orders", Declaration: map[string]string{"writes": "local"},
		Logs: []*pb.LogHolding{
			{Log: ordersEU, Role: "home", Home: "eu-west", Known: true, First: 1, Head: 10, Records: 10},
			{Log: &pb.LogId{Topic: "orders", Slot: "us-east"}, Role: "copy", Home: "us-east"},
			{Log: &pb.LogId{Topic: "orders", Slot: "ap-south"}, Role: "elsewhere", Home: "ap-south"},
			{Log: &pb.LogId{Topic: "orders", Slot: "us-west"}, Role: "copy", Home: "us-west", State: "ABSENT"},
		},
	}}}
	if text := renderTopics(r); !strings.Contains(text, "3 of 4     unknown") || !strings.Contains(text, "none") {
		t.Error(text)
	}
	text := renderTopic(r.GetTopics()[0], "")
	for _, want := range []string{"10 records, 1 to 10", "not kept here", "not there: copied anew", "orders@us-east   copy       us-east   unknown"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
}

func TestParagraphs_BreakAndIndent(t *testing.T) {
	rows := paragraphs([]string{strings.Repeat("word ", 40), "short"})
	if len(rows) != 4 || !strings.HasPrefix(rows[0][0], "- word") || !strings.HasPrefix(rows[1][0], "  word") || rows[3][0] != "- short" {
		t.Errorf("%q", rows)
	}
	for _, r := range rows {
		if len(r[0]) > textWidth+1 {
			t.Errorf("%d wide", len(r[0]))
		}
	}
}

func TestPrintable_CannotReachTheTerminal(t *testing.T) {
	for in, want := range map[string]string{"héllo {}": "héllo {}", "a\x1b[2Jb": `"a\x1b[2Jb"`, "two\nlines": `"two\nlines"`, "\xff": `"\xff"`} {
		if got := printable(in); got != want {
			t.Errorf("printable(%q) = %s, want %s", in, got, want)
		}
	}
}

func TestProgress_LineAndSilenceElsewhere(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	var out strings.Builder
	p := &progress{w: &out, now: func() time.Time { return now.Add(2 * time.Second) }, start: now, size: 100}
	tl := newTally(discard{}, nil)
	tl.Lines, tl.Acked, tl.read = 5000, 4990, 50
	p.draw(tl)
	p.draw(tl) // too soon: nothing
	if want := "\r\x1b[K[############------------]  50%  5,000 lines, 4,990 acked, 0 unknown, 2,500/s"; out.String() != want {
		t.Errorf("got %q", out.String())
	}
	var nobody *progress
	nobody.draw(tl)
	nobody.end()
}
