package main

import (
	"strings"
	"testing"
	"time"

	"domicile/regions"
)

func TestSpan(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0ms", 250 * time.Millisecond: "250ms", 1500 * time.Millisecond: "1.5s", 59 * time.Second: "59s",
		12*time.Minute + 5*time.Second: "12m 05s", 3*time.Hour + 4*time.Minute: "3h 04m", 75 * time.Hour: "3d 3h", -time.Second: "-1.0s",
	} {
		if got := regions.Span(d); got != want {
			t.Errorf("Span(%v) = %q, want %q", d, got, want)
		}
	}
}

func TestCountAndBytes(t *testing.T) {
	for n, want := range map[int64]string{0: "0", 999: "999", 1000: "1,000", 1234567: "1,234,567", -1000: "-1,000", -999: "-999"} {
		if got := count(n); got != want {
			t.Errorf("count(%d) = %q, want %q", n, got, want)
		}
	}
	for n, want := range map[int64]string{0: "0 B", 1023: "1023 B", 1536: "1.5 KiB", 16 << 30: "16.0 GiB"} {
		if got := regions.Bytes(n); got != want {
			t.Errorf("Bytes(%d) = %q, want %q", n, got, want)
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
