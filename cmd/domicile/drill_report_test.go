package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"domicile/chaos/drill/history"
	"domicile/regions"
)

// drilled keeps the history of a small drill: a cut that was healed, and one expectation.
func drilled(t *testing.T, dir, id string, answer *history.Probe) {
	t.Helper()
	if err := os.MkdirAll(filepath.Join(dir, id), 0o700); err != nil {
		t.Fatal(err)
	}
	clock := regions.NewManualClock(time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC))
	w, err := history.Create(filepath.Join(dir, id, historyName), history.Head{Drill: id, Federation: "example"}, clock)
	if err != nil {
		t.Fatal(err)
	}
	events := []history.Event{
		{Plan: &history.Plan{Isolate: "eu-west", Peers: []string{"us-east"}, Expect: []history.Expectation{{Topic: "orders", Moment: history.Always, Want: history.Denied, Why: history.WhyResides}}}},
		{Region: "eu-west", Gate: &history.Gate{Act: history.ActCut, OK: true}},
		{Probe: answer},
		{Region: "eu-west", Gate: &history.Gate{Act: history.ActHeal, OK: true}},
	}
	for _, e := range events {
		clock.Advance(time.Second)
		if err := w.Note(e); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := w.Close(history.Close{Outcome: history.Completed}); err != nil {
		t.Fatal(err)
	}
}

// TestR14i_AReportIsMadeAndVerifiedOffline goes by exit codes, as a pipeline does.
func TestR14i_AReportIsMadeAndVerifiedOffline(t *testing.T) {
	dir := t.TempDir()
	drilled(t, dir, "good", &history.Probe{Topic: "orders", Log: "orders@eu-west", Target: "us-east", Moment: history.AtCut, Why: history.WhyResides, Rule: "S5"})
	drilled(t, dir, "bad", &history.Probe{Topic: "orders", Log: "orders@eu-west", Target: "us-east", Moment: history.AtCut, Allowed: true})
	ask := func(args ...string) (exitCode, string) {
		var out, errs bytes.Buffer
		code := run(context.Background(), append([]string{"drill"}, args...), strings.NewReader(""), &out, &errs)
		return code, out.String() + errs.String()
	}
	kept := filepath.Join(dir, "good", "report.json")
	for _, c := range []struct {
		args []string
		code exitCode
		want string
	}{
		{[]string{"report", "good", "--dir", dir}, exitOK, "good: pass"},
		{[]string{"report", "bad", "--dir", dir}, exitFailure, "got allowed"},
		{[]string{"report", "good", "--dir", dir, "-o", "html"}, exitOK, "<!DOCTYPE html>"},
		{[]string{"report", "good", "--dir", dir, "-o", "md"}, exitOK, "# Drill good: pass"},
		{[]string{"report", "bad", "--dir", dir, "-o", "junit"}, exitFailure, `failures="3"`},
		{[]string{"report", "none", "--dir", dir}, exitFailure, "no such file"},
		{[]string{"report", "good", "--dir", dir, "-o", "json", "--file", kept}, exitOK, "written to"},
		{[]string{"verify", kept}, exitOK, "to the letter"},
		{[]string{"verify", kept, "--history", filepath.Join(dir, "bad", historyName)}, exitRefused, "another drill"},
		{[]string{"verify", filepath.Join(dir, "good", historyName)}, exitFailure, "read report"},
	} {
		if code, text := ask(c.args...); code != c.code || !strings.Contains(text, c.want) {
			t.Errorf("%v: code %d, want %d and %q in:\n%s", c.args, code, c.code, c.want, text)
		}
	}
	text, err := os.ReadFile(kept)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(kept, bytes.Replace(text, []byte(`"pass"`), []byte(`"fail"`), 1), 0o600); err != nil {
		t.Fatal(err)
	}
	if code, text := ask("verify", kept); code != exitRefused || !strings.Contains(text, "the report says fail") {
		t.Errorf("a changed report: code %d, %s", code, text)
	}
	at := filepath.Join(dir, "good", historyName)
	if text, err = os.ReadFile(at); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(at, bytes.Replace(text, []byte(`"residency"`), []byte(`"resodency"`), 1), 0o600); err != nil {
		t.Fatal(err)
	}
	if code, text := ask("verify", kept); code != exitRefused || !strings.Contains(text, "line 2") {
		t.Errorf("a changed history: code %d, %s", code, text)
	}
}
