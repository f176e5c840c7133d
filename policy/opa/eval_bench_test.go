package opa_test

import (
	"context"
	"testing"

	"domicile/policy/opa"
)

// Reading, compiling, judging the whole domain and testing the example.
func BenchmarkLoad(b *testing.B) {
	dir, f := example(b), manifest(b)
	for b.Loop() {
		p, err := opa.Load(context.Background(), dir, f)
		if err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(float64(p.Report.Cells)/p.Report.Took.Seconds(), "cells/s")
	}
}
