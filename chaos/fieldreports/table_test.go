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
	// Whoever has no test of its own name says which one it is, or what it waits for.
	for _, id := range strings.Fields("B19 B22 B23 B24 B25 B47 B48 B49 B52 B54") {
		if !regexp.MustCompile("(?m)^\\| " + id + " .*(`Test|waits for )").MatchString(text) {
			t.Errorf("report %s: no test and no reason in the table of chaos/DESIGN.md", id)
		}
	}
}

// TestRP1_EachDecisionHasItsExperiment: each row of the decisions names a test that has the
// decision in its name, or says why there is none.
func TestRP1_EachDecisionHasItsExperiment(t *testing.T) {
	text, err := os.ReadFile("../VALIDATION.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := regexp.MustCompile(`(?m)^\| (D?)(\d+) [^|]*\|[^|]*\|(.*)\|$`).FindAllStringSubmatch(string(text), -1)
	seen := map[string]bool{}
	for _, row := range rows {
		id := "_Decision" + row[2] + "_"
		if row[1] != "" {
			id = "_D" + row[2] + "_"
		}
		seen[id] = true
		named := regexp.MustCompile("`Test[A-Za-z0-9_]*" + id + "[A-Za-z0-9_]*`").MatchString(row[3])
		if !named && !regexp.MustCompile(`not ours|not here|waits`).MatchString(row[3]) {
			t.Errorf("%s: no test with it in its name, and no reason: %s", strings.Trim(id, "_"), row[3])
		}
	}
	if len(rows) != 28 || len(seen) != 28 {
		t.Errorf("%d rows, %d decisions", len(rows), len(seen))
	}
	for test := range allTests(t) {
		for _, id := range regexp.MustCompile(`_(D\d+|Decision\d+)(?:_|$)`).FindAllString(strings.ReplaceAll(test, "_", "__"), -1) {
			if !seen["_"+strings.Trim(id, "_")+"_"] || !strings.Contains(string(text), "`"+test+"`") {
				t.Errorf("%s is not in chaos/VALIDATION.md", test)
			}
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
