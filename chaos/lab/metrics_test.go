package lab_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"domicile/chaos/lab"
)

func TestMetricsPage(t *testing.T) {
	page := `# HELP x a thing
# TYPE x gauge
x 1
x_total{code="A",log="orders@eu-west"} 2.5e3 1700000000000
odd{text="a \"b\", {c} \\ d",} NaN
inf{ a="1", b="2" } +Inf
`
	got, err := lab.ParseMetrics(strings.NewReader(page))
	if err != nil {
		t.Fatal(err)
	}
	got[2].Value = 0 // NaN equals nothing
	want := []lab.Metric{
		{"x", map[string]string{}, 1},
		{"x_total", map[string]string{"code": "A", "log": "orders@eu-west"}, 2500},
		{"odd", map[string]string{"text": `a "b", {c} \ d`}, 0},
	}
	if d := cmp.Diff(want, got[:3]); d != "" {
		t.Error(d)
	}
	for _, bad := range []string{"x", "x{", `x{a="1"`, `x{a=1} 2`, "x y"} {
		if _, err := lab.ParseMetrics(strings.NewReader(bad)); err == nil {
			t.Errorf("%q was taken", bad)
		}
	}
}

func FuzzParseMetrics(f *testing.F) {
	f.Add(`x_total{code="A",log="orders@eu-west"} 2.5e3 1700000000000`)
	f.Add("x 1\n# y\n")
	f.Fuzz(func(t *testing.T, page string) {
		metrics, err := lab.ParseMetrics(strings.NewReader(page))
		for _, m := range metrics {
			if err == nil && m.Labels == nil {
				t.Error("no labels map")
			}
		}
	})
}
