package opa_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"domicile/api"
	"domicile/policy/opa"
)

// Each script changes the small directory (files between "-- name --" lines; an
// empty one is removed) and shows what loading it says.
func TestR14b_Loads(t *testing.T) {
	datadriven.Walk(t, "testdata/loads", func(t *testing.T, path string) {
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			dir, f := small(t)
			change(t, dir, d.Input)
			p, err := opa.Load(context.Background(), dir, f)
			if err != nil {
				return loadError(t, err)
			}
			out := fmt.Sprintf("cells=%d tests=%d", p.Report.Cells, p.Report.Tests)
			if p.Report.Cases+p.Report.Rows > 0 {
				out += fmt.Sprintf(" cases=%d rows=%d", p.Report.Cases, p.Report.Rows)
			}
			if d.HasArg("findings") {
				for _, f := range p.Report.Findings {
					out += fmt.Sprintf("\n%s %s: %s; %s", f.Where, f.Check, f.Reason, f.Fix)
				}
			}
			for _, w := range p.Report.Warnings {
				out += "\nwarning: " + w
			}
			return out
		})
	})
}

func change(t *testing.T, dir, text string) {
	t.Helper()
	var name string
	files := map[string]string{}
	for line := range strings.Lines(text) {
		if rest, ok := strings.CutPrefix(line, "-- "); ok {
			name = strings.TrimSuffix(strings.TrimSpace(rest), " --")
			files[name] = ""
			continue
		}
		files[name] += line
	}
	for name, text := range files {
		path := filepath.Join(dir, name)
		var err error
		if text == "" {
			err = os.Remove(path)
		} else {
			err = errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(text), 0o600))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

func loadError(t *testing.T, err error) string {
	t.Helper()
	var e *api.Error
	if !errors.As(err, &e) {
		t.Fatalf("%v is no *api.Error", err)
	}
	if strings.Contains(err.Error(), "\n") {
		t.Errorf("more than one line: %q", err)
	}
	if filepath.IsAbs(e.Value) {
		e.Value = "…/" + filepath.Base(e.Value)
	}
	out := strings.TrimSpace(fmt.Sprintf("%s %s %s", e.Code, e.Field, e.Value))
	if e.Err != nil {
		out += "\n" + strings.ReplaceAll(e.Err.Error(), "; matrix.csv", "\nmatrix.csv")
	}
	if e.Hint != "" {
		out += "\n" + e.Hint
	}
	return out
}
