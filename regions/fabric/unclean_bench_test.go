package fabric_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"domicile/api"
	"domicile/regions"
	"domicile/regions/fabric"
	"domicile/regions/fabric/fabrictest"
)

// BenchmarkStartAfterAnUncleanEnd starts a store of 1,000,000 records that was killed: its
// blocks are read, counted and read again by the broker. stale: the broker's index is older
// than the last record, as of a log that is written; fresh: it is not, as of an idle one.
func BenchmarkStartAfterAnUncleanEnd(b *testing.B) {
	const records = 1_000_000
	data := b.TempDir()
	log := fabric.LogConfig{ID: mustID(b, "orders@here"), Epoch: api.StaticEpoch("here"), MaxBytes: 900 << 20}
	f := fabrictest.Open(b, func(c *fabric.Config) { c.Dir = data })
	l, err := f.Home(context.Background(), log)
	if err != nil {
		b.Fatal(err)
	}
	for from := 0; from < records; from += 10_000 {
		allStored(b, appendRecords(b, l, from, from+10_000, func(i int) api.Record {
			r := record(i)
			r.Body = append(r.Body, strings.Repeat("x", 200)...)
			return r
		}))
	}
	killed := func(name string) string {
		dir := filepath.Join(b.TempDir(), name)
		if err := os.CopyFS(dir, os.DirFS(data)); err != nil {
			b.Fatal(err)
		}
		return dir
	}
	dirs := map[string]string{"stale": killed("stale")}
	if err := f.Close(context.Background()); err != nil {
		b.Fatal(err)
	}
	dirs["fresh"] = killed("fresh")
	clock := regions.NewManualClock(time.Now().Add(24 * time.Hour)) // an opening reads back no more than it must
	for _, name := range []string{"stale", "fresh"} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				b.StopTimer()
				data = dirs[name]
				dir := killed("again")
				if err := os.Remove(filepath.Join(dir, "run.json")); err != nil {
					b.Fatal(err)
				}
				b.StartTimer()
				start := time.Now()
				f := fabrictest.Open(b, func(c *fabric.Config) { c.Dir, c.Clock = dir, clock })
				opened := time.Since(start)
				l, err := f.Home(context.Background(), log)
				if err != nil || l.Head().Records != records {
					b.Fatalf("%+v: %v", l.Head(), err)
				}
				b.ReportMetric(opened.Seconds(), "s/start")
				b.ReportMetric(time.Since(start).Seconds(), "s/to-the-first-append")
				b.StopTimer()
				_ = f.Close(context.Background())
				b.StartTimer()
			}
		})
	}
}
