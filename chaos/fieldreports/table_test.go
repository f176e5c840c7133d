package fieldreports

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Every test that the design names exists, and every report that has a test is in its
// table.
func TestRP1_TheTableOfReportsIsTrue(t *testing.T) {
	tests := allTests(t)
	named(t, "../VALIDATION.md", tests)
	text := named(t, "../DESIGN.md", tests)
	for test := range tests {
		if id := regexp.MustCompile(`^TestB(\d\d)_`).FindStringSubmatch(test); id != nil && !strings.Contains(text, "| B"+id[1]+" ") {
			t.Errorf("%s: report B%s is not in the table of chaos/DESIGN.md", test, id[1])
		}
	}
}

// named reads a text whose tests must all exist; with … behind it a name stands for all
// that begin so.
func named(t *testing.T, path string, tests map[string]bool) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range regexp.MustCompile("`(Test[A-Za-z0-9_]+)(…?)`").FindAllStringSubmatch(string(text), -1) {
		found := tests[name[1]]
		for test := range tests {
			found = found || name[2] != "" && strings.HasPrefix(test, name[1])
		}
		if !found {
			t.Errorf("%s names %s%s, which does not exist", path, name[1], name[2])
		}
	}
	return string(text)
}

// allTests lists the names of the module's tests.
func allTests(t *testing.T) map[string]bool {
	t.Helper()
	tests := map[string]bool{}
	declared := regexp.MustCompile(`(?m)^func (Test\w+)\(`)
	err := filepath.WalkDir("../..", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		source, err := os.ReadFile(path)
		for _, m := range declared.FindAllStringSubmatch(string(source), -1) {
			tests[m[1]] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return tests
}
