package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"domicile/chaos/drill"
	"domicile/chaos/drill/history"
)

// TestRP1_MetricsOfALookKeepWhenOneWasClean: what is not known has no sample, and a look that
// is not clean does not forget the last one that was.
func TestRP1_MetricsOfALookKeepWhenOneWasClean(t *testing.T) {
	path := filepath.Join(t.TempDir(), "domicile.prom")
	keep := func(at int64, r drill.CanaryResult) string {
		t.Helper()
		if err := keepCanary(path, &r, time.Unix(at, 0)); err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		var samples []string
		for line := range strings.Lines(string(text)) {
			if !strings.HasPrefix(line, "#") {
				samples = append(samples, strings.TrimPrefix(strings.TrimSpace(line), "domicile_canary_"))
			}
		}
		return strings.Join(samples, ", ")
	}
	leaked := drill.CanaryResult{Verdict: drill.Leaked, Seen: []drill.Sighting{{Scan: history.Scan{Hits: 3}}, {Scan: history.Scan{Hits: 9, Home: true}}}}
	for _, c := range []struct {
		at   int64
		r    drill.CanaryResult
		want string
	}{
		{1, drill.CanaryResult{Verdict: drill.Unproven}, "ended_timestamp_seconds 1.000"},
		{2, drill.CanaryResult{Verdict: drill.Clean}, "ended_timestamp_seconds 2.000, clean_timestamp_seconds 2.000, outside 0"},
		{3, leaked, "ended_timestamp_seconds 3.000, clean_timestamp_seconds 2.000, outside 3"},
		{4, drill.CanaryResult{Verdict: drill.Unproven}, "ended_timestamp_seconds 4.000, clean_timestamp_seconds 2.000"},
	} {
		if got := keep(c.at, c.r); got != c.want {
			t.Errorf("at %d: %s\nwant %s", c.at, got, c.want)
		}
	}
}
