package main

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"domicile/api"
)

// TestR14h_EachRefusalOfAMoveHasItsRunbook: each rule of the placement, and each code that a
// plan or a move ends with, stands in the first column of the runbook's table.
func TestR14h_EachRefusalOfAMoveHasItsRunbook(t *testing.T) {
	rules, err := os.ReadFile("../../regions/placement/rules.go")
	if err != nil {
		t.Fatal(err)
	}
	var wanted []string
	for _, m := range regexp.MustCompile(`Rule\w+\s+= "(S\d+)"`).FindAllStringSubmatch(string(rules), -1) {
		wanted = append(wanted, m[1])
	}
	if len(wanted) < 11 {
		t.Fatalf("only %v were found", wanted)
	}
	for _, code := range []api.Code{api.HomeOutsideBoundary, api.ManifestMismatch, api.Conflict, api.Contested, api.AuthorityUnreachable, api.Fenced,
		api.HomeUnreachable, api.PlacementRefused, api.PermissionDenied, api.NotReady, api.OutcomeUnknown} {
		wanted = append(wanted, string(code))
	}
	page, err := os.ReadFile("../../deploy/runbooks/failover.md")
	if err != nil {
		t.Fatal(err)
	}
	var has []string
	for line := range strings.Lines(string(page)) {
		if cells := strings.Split(line, "|"); len(cells) > 3 {
			has = append(has, regexp.MustCompile(`[A-Z][A-Z_0-9]+`).FindAllString(cells[1], -1)...)
		}
	}
	for _, w := range wanted {
		if !slices.Contains(has, w) {
			t.Errorf("no row for %s", w)
		}
	}
}
