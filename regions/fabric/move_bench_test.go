package fabric_test

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"domicile/api"
	"domicile/regions"
	"domicile/regions/fabric"
	"domicile/regions/fabric/fabrictest"
)

// BenchmarkMove says how long a move takes, comparison included: to one node and to three
// on this machine, 1 KiB records.
func BenchmarkMove(b *testing.B) {
	for _, to := range []string{"one", "three"} {
		b.Run(to, func(b *testing.B) {
			const records, size = 100_000, 1 << 10
			for range b.N {
				b.StopTimer()
				from := filepath.Join(b.TempDir(), "old")
				fillBench(b, from, records, size)
				targets := []fabric.Config{at(filepath.Join(b.TempDir(), "new"))}
				if to == "three" {
					r := fabrictest.NewTrio(b)
					targets = []fabric.Config{r.Configs["a"], r.Configs["b"], r.Configs["c"]}
				}
				b.StartTimer()
				m, err := fabric.NewMove(context.Background(), at(from), targets...)
				if err != nil {
					b.Fatal(err)
				}
				moved, err := m.Run(context.Background(), func(fabric.MoveProgress) {})
				if err != nil || moved[0].Records != records {
					b.Fatalf("%+v, %v", moved, err)
				}
				if err := m.Close(context.Background()); err != nil {
					b.Fatal(err)
				}
			}
			b.SetBytes(records * size)
			b.ReportMetric(time.Duration(float64(b.Elapsed())/float64(b.N)*(1<<30)/(records*size)).Seconds(), "s/GiB")
		})
	}
}

func fillBench(b *testing.B, dir string, records, size int) {
	b.Helper()
	f := fabrictest.Open(b, func(c *fabric.Config) { c.Dir = dir })
	l, err := f.Home(context.Background(), fabric.LogConfig{ID: mustID(b, "orders@here"), Epoch: api.StaticEpoch("here"), MaxBytes: 900 << 20})
	if err != nil {
		b.Fatal(err)
	}
	slots := make(chan struct{}, 4000)
	for i := range records {
		slots <- struct{}{}
		l.Append(regions.Draft{Record: childRecord(i, size)}, func(s regions.Stored) {
			if s.Err != nil {
				b.Error(s.Err)
			}
			<-slots
		})
	}
	for range cap(slots) {
		slots <- struct{}{}
	}
	if err := f.Close(context.Background()); err != nil {
		b.Fatal(err)
	}
}
