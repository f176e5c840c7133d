package main

import (
	"strings"
	"testing"
	"time"
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
