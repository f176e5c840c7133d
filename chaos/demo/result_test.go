package demo

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"domicile/api"
)

func TestResultHoldsOnlyIfEveryCheckDoes(t *testing.T) {
	for _, broken := range append([]string{""}, checks...) {
		r := newResult()
		for _, name := range checks {
			r.verdict(name, name != broken, "because")
		}
		if r.Holds() != (broken == "") {
			t.Errorf("broken %q: holds %v", broken, r.Holds())
		}
		r.verdict(CheckLedger, true, "")
		if broken == CheckLedger && r.Checks[CheckLedger] {
			t.Error("a later yes has covered a no")
		}
	}
	r := newResult()
	for _, name := range checks[1:] {
		r.verdict(name, true, "")
	}
	if r.Holds() || len(r.Failed()) != 1 {
		t.Error("a check that was never made counts as held")
	}
}

// The JSON form is a contract: integers, a number, a map of names to true.
func TestResultJSON(t *testing.T) {
	r := newResult()
	s := 1.01
	r.Acked, r.LagSlopeDuringCut, r.Codes[api.MissingTag] = 7, &s, 1
	r.verdict(CheckLedger, true, "")
	var b bytes.Buffer
	if err := r.writeJSON(&b); err != nil {
		t.Fatal(err)
	}
	if strings.Count(b.String(), "\n") != 1 {
		t.Errorf("not one line: %q", b.String())
	}
	var got map[string]any
	if err := json.Unmarshal(b.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"acked", "forwarded", "mirrored", "refused", "resident_bytes_outside", "lost", "duplicates"} {
		if n, ok := got[name].(float64); !ok || n != float64(int(n)) {
			t.Errorf("%s is %v", name, got[name])
		}
	}
	if got["lag_slope_during_cut"] != 1.01 || got["checks"].(map[string]any)["ledger"] != true {
		t.Errorf("got %v", got)
	}
	none := newResult()
	b.Reset()
	if err := none.writeJSON(&b); err != nil || !strings.Contains(b.String(), `"lag_slope_during_cut":null`) {
		t.Errorf("an unknown slope is shown as a number: %s, %v", b.String(), err)
	}
}
