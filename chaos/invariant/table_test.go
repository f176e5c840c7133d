package invariant_test

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
)

// Each of the 32 numbers has one row in chaos/DESIGN.md: with a test, or with what it waits
// for. That the tests exist is checked where all of that text is.
func TestRP2_EveryInvariantHasItsRow(t *testing.T) {
	text, err := os.ReadFile("../DESIGN.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, found := strings.Cut(string(text), "The list of 32 ")
	if !found {
		t.Fatal("chaos/DESIGN.md has no list of 32")
	}
	for n := 1; n <= 32; n++ {
		rows := regexp.MustCompile(fmt.Sprintf(`(?m)^\| %d \|(.*)$`, n)).FindAllString(table, -1)
		if len(rows) != 1 {
			t.Errorf("invariant %d has %d rows", n, len(rows))
			continue
		}
		if !strings.Contains(rows[0], "`Test") && !strings.Contains(rows[0], "waits") {
			t.Errorf("invariant %d: neither a test nor what it waits for: %s", n, rows[0])
		}
	}
}
