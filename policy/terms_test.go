package policy_test

import (
	"slices"
	"testing"
	"time"

	"domicile/api"
	"domicile/policy"
)

var day = time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC)

func term(from, until time.Time) policy.Term {
	return policy.Term{Owner: "legal", Approvers: []string{"anna", "ben"}, Reason: "contract 7", From: from, Until: until}
}

// TestR14b_TermsBeginAndEndToTheInstant looks one nanosecond before and at each boundary.
func TestR14b_TermsBeginAndEndToTheInstant(t *testing.T) {
	terms := policy.Terms{
		Exceptions: map[string]policy.Term{"audit": term(day, day.AddDate(0, 0, 10))},
		Mechanisms: map[string]policy.Term{"scc": term(day.AddDate(0, 0, 10), day.AddDate(0, 0, 90))},
	}
	if err := terms.Check(); err != nil {
		t.Fatal(err)
	}
	if got := terms.Boundaries(); len(got) != 3 || !got[0].Equal(day) {
		t.Fatalf("boundaries %v", got)
	}
	for _, c := range []struct {
		at         time.Time
		step       int
		audit, scc bool
	}{
		{time.Time{}, 0, false, false}, {day.Add(-1), 0, false, false}, {day, 1, true, false},
		{day.AddDate(0, 0, 10).Add(-1), 1, true, false}, {day.AddDate(0, 0, 10), 2, false, true}, {day.AddDate(0, 0, 90), 3, false, false},
	} {
		facts := terms.Facts(c.at, nil)
		if terms.Step(c.at) != c.step || facts["exceptions"]["audit"] != c.audit || facts["mechanisms"]["scc"] != c.scc {
			t.Errorf("%s: step %d, %v", c.at, terms.Step(c.at), facts)
		}
		if terms.Facts(c.at, []string{"scc"})["mechanisms"]["scc"] {
			t.Errorf("%s: it lasts although it is revoked", c.at)
		}
	}
	if !slices.Equal(terms.Names(), []string{"audit", "scc"}) {
		t.Error(terms.Names())
	}
}

func TestR14b_TermsThatNobodyAnswersForAreRefused(t *testing.T) {
	good := term(day, day.AddDate(0, 0, 90))
	for name, change := range map[string]func(*policy.Term){
		"no owner":         func(t *policy.Term) { t.Owner = " " },
		"one approver":     func(t *policy.Term) { t.Approvers = []string{"anna"} },
		"one twice":        func(t *policy.Term) { t.Approvers = []string{"anna", "anna"} },
		"an empty one":     func(t *policy.Term) { t.Approvers = []string{"anna", ""} },
		"no reason":        func(t *policy.Term) { t.Reason = "" },
		"91 days":          func(t *policy.Term) { t.Until = t.From.AddDate(0, 0, 91) },
		"no begin":         func(t *policy.Term) { t.From = time.Time{} },
		"end before begin": func(t *policy.Term) { t.Until = t.From },
	} {
		one := good
		change(&one)
		err := policy.Terms{Mechanisms: map[string]policy.Term{"scc": one}}.Check()
		if api.CodeOf(err) != api.ConfigInvalid {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, terms := range map[string]policy.Terms{
		"a name with a dash": {Exceptions: map[string]policy.Term{"a-b": good}},
		"one name twice":     {Exceptions: map[string]policy.Term{"a": good}, Mechanisms: map[string]policy.Term{"a": good}},
	} {
		if err := terms.Check(); api.CodeOf(err) != api.ConfigInvalid {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := (policy.Terms{Exceptions: map[string]policy.Term{"scc": good}}).Check(); err != nil {
		t.Error(err)
	}
}
