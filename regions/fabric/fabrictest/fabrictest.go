// Package fabrictest starts real fabrics on temporary directories for tests of the
// packages above.
package fabrictest

import (
	"context"
	"testing"
	"time"

	"domicile/api"
	"domicile/regions"
	"domicile/regions/fabric"
)

// Config is a usable configuration on a temporary directory: region "here", 1 GiB.
func Config(t testing.TB) fabric.Config {
	t.Helper()
	return fabric.Config{Region: "here", Federation: "test", Dir: t.TempDir(), MaxStore: 1 << 30}
}

// Open starts a fabric that ends with the test. change may adjust its configuration.
func Open(t testing.TB, change ...func(*fabric.Config)) *fabric.Fabric {
	t.Helper()
	cfg := Config(t)
	for _, c := range change {
		c(&cfg)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	f, err := fabric.Open(ctx, cfg)
	if err != nil {
		t.Fatalf("open fabric: %v", err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
		defer cancel()
		_ = f.Close(ctx)
	})
	return f
}

// Home opens a home log of 64 MiB in the fabric.
func Home(t testing.TB, f *fabric.Fabric, log string) regions.HomeLog {
	t.Helper()
	id, err := api.ParseLogID(log)
	if err != nil {
		t.Fatal(err)
	}
	l, err := f.Home(context.Background(), fabric.LogConfig{ID: id, Epoch: api.StaticEpoch("here"), MaxBytes: 64 << 20})
	if err != nil {
		t.Fatalf("open home %s: %v", log, err)
	}
	return l
}

// Copy opens a copy of a log, of 64 MiB, in the fabric.
func Copy(t testing.TB, f *fabric.Fabric, log string) regions.CopyLog {
	t.Helper()
	id, err := api.ParseLogID(log)
	if err != nil {
		t.Fatal(err)
	}
	l, err := f.Copy(context.Background(), fabric.LogConfig{ID: id, MaxBytes: 64 << 20})
	if err != nil {
		t.Fatalf("open copy %s: %v", log, err)
	}
	return l
}

// Append appends one record and waits for its outcome.
func Append(t testing.TB, l regions.HomeLog, r api.Record) regions.Stored {
	t.Helper()
	done := make(chan regions.Stored, 1)
	l.Append(regions.Draft{Record: r, Revision: "test-1"}, func(s regions.Stored) { done <- s })
	select {
	case s := <-done:
		return s
	case <-time.After(60 * time.Second):
		t.Fatal("append was never answered")
		return regions.Stored{}
	}
}

// ReadAll reads a log from the item after sequence after to its durable head.
func ReadAll(t testing.TB, l regions.Log, after uint64) []regions.Item {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	r, err := l.Reader(ctx, after)
	if err != nil {
		t.Fatalf("open reader: %v", err)
	}
	defer r.Close()
	var all []regions.Item
	for {
		items, err := r.Next(ctx, regions.ReadLimit{Records: 500, Bytes: 1 << 20})
		if err != nil {
			t.Fatalf("read: %v", err)
		}
		if len(items) == 0 {
			return all
		}
		all = append(all, items...)
	}
}
