package main

import (
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"domicile/api"
)

func TestRA2_TallyKeepsTheOutcomesApart(t *testing.T) {
	var results strings.Builder
	tl := newTally(&results, nil)
	eu := api.LogID{Tenant: api.DefaultTenant, Topic: "orders", Slot: "eu-west"}
	tl.done(1, "a", api.Ack{ID: "a", Log: eu, Region: "eu-west", Sequence: 7}, nil)
	tl.done(2, "b", api.Ack{ID: "b", Log: eu, Region: "eu-west", Duplicate: true}, nil)
	tl.done(3, "c", api.Ack{}, &api.Error{Code: api.ResidencyDenied, Hint: "rule orders/x"})
	tl.done(4, "d", api.Ack{}, &api.Error{Code: api.OutcomeUnknown})
	tl.done(5, "e", api.Ack{}, errors.New("connection lost"))
	if err := tl.finish(); err != nil {
		t.Fatal(err)
	}
	if tl.Lines != 5 || tl.Acked != 1 || tl.Duplicates != 1 || tl.Refused[api.ResidencyDenied] != 1 || tl.Unknown != 2 || tl.Stored["orders@eu-west"] != 2 {
		t.Errorf("%+v", tl)
	}
	var outcomes []string
	for line := range strings.Lines(results.String()) {
		_, rest, _ := strings.Cut(line, `"outcome":"`)
		word, _, _ := strings.Cut(rest, `"`)
		outcomes = append(outcomes, word)
	}
	if d := cmp.Diff([]string{"acked", "duplicate", "refused", "unknown", "unknown"}, outcomes); d != "" {
		t.Error(d)
	}
	if !strings.Contains(results.String(), `"line":1,"outcome":"acked","region":"eu-west","log":"orders@eu-west"`) {
		t.Error(results.String())
	}
}

func TestTally_ExitCodeIsTheWorst(t *testing.T) {
	for _, c := range []struct {
		name  string
		codes []api.Code
		want  exitCode
	}{
		{"all acked", nil, exitOK},
		{"bad line", []api.Code{api.BadRequest}, exitFailure},
		{"rule", []api.Code{api.BadRequest, api.TransitDenied}, exitRefused},
		{"unknown beats a rule", []api.Code{api.TransitDenied, api.OutcomeUnknown}, exitUnknown},
	} {
		tl := newTally(discard{}, nil)
		tl.done(1, "", api.Ack{}, nil)
		for _, code := range c.codes {
			tl.done(2, "", api.Ack{}, &api.Error{Code: code})
		}
		if got := tl.code(); got != c.want {
			t.Errorf("%s: %d, want %d", c.name, got, c.want)
		}
	}
}

func TestTally_FromManyGoroutines(t *testing.T) {
	tl := newTally(discard{}, nil)
	var all sync.WaitGroup
	for i := range uint64(100) {
		all.Go(func() { tl.done(i, "", api.Ack{}, nil); tl.sent(int64(i)) })
	}
	all.Wait()
	if tl.Lines != 100 || tl.Acked != 100 {
		t.Errorf("%+v", tl)
	}
}
