package fabric_test

import (
	"context"
	"testing"
	"time"

	"domicile/api"
	"domicile/regions/fabric"
	"domicile/regions/fabric/fabrictest"
)

// BenchmarkOpenLog opens a home log of 200,000 records of 1 KiB: its ids are read back
// before it takes an append.
func BenchmarkOpenLog(b *testing.B) {
	dir := b.TempDir()
	log := fabric.LogConfig{ID: mustID(b, "orders@here"), Epoch: api.StaticEpoch("here"), MaxBytes: 512 << 20}
	open := func() *fabric.Fabric {
		return fabrictest.Open(b, func(c *fabric.Config) { c.Dir = dir })
	}
	f := open()
	l, err := f.Home(context.Background(), log)
	if err != nil {
		b.Fatal(err)
	}
	for from := 0; from < 200_000; from += benchRecords {
		benchAppend(b, l, from)
	}
	for b.Loop() {
		if err := f.Close(context.Background()); err != nil {
			b.Fatal(err)
		}
		f = open()
		start := time.Now()
		if _, err := f.Home(context.Background(), log); err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(time.Since(start).Seconds(), "s/open")
		if ids := f.Health().Usage.IDs; ids != 200_000 {
			b.Fatalf("%d ids", ids)
		}
	}
}
