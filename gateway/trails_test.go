package gateway

import (
	"fmt"
	"testing"
	"time"

	"domicile/api"
)

// hands is a clock that tests move.
type hands struct{ now time.Time }

func (h *hands) Now() time.Time { return h.now }

var (
	west    = api.LogID{Tenant: api.DefaultTenant, Topic: "orders", Slot: "eu-west"}
	central = api.LogID{Tenant: api.DefaultTenant, Topic: "orders", Slot: "eu-central"}
	nobody  = &api.Error{Code: api.OutcomeUnknown}
	full    = &api.Error{Code: api.Overloaded}
)

func (t *trails) has(id string) string {
	log, ok := t.find("orders", id)
	if !ok {
		return ""
	}
	return log.Slot
}

func TestRA5_WhatTheGatewayRemembers(t *testing.T) {
	clock := &hands{now: time.Unix(1000, 0)}
	m := newTrails(clock)
	for _, c := range []struct {
		name   string
		detour bool
		err    error
		kept   bool
	}{
		{"an ack of the first choice", false, nil, false},
		{"a refusal of the first choice", false, full, false},
		{"an unknown outcome of the first choice", false, nobody, true},
		{"an ack of another log", true, nil, true},
		{"a refusal of another log", true, full, false},
		{"an unknown outcome of another log", true, nobody, true},
	} {
		log := west
		if c.detour {
			log = central
		}
		over, ok := m.begin("orders", c.name, log, c.detour)
		if !ok || m.has(c.name) != log.Slot {
			t.Fatalf("%s: not remembered while it is open", c.name)
		}
		over(c.err)
		if got := m.has(c.name) != ""; got != c.kept {
			t.Errorf("%s: kept %v", c.name, got)
		}
	}
	clock.now = clock.now.Add(trailsFor)
	if m.has("an ack of another log") != "" || len(m.logs) != 0 || len(m.ending) != 0 {
		t.Errorf("after %s it still holds %d ids", trailsFor, len(m.logs))
	}
}

func TestRA5_TriesOfOneIDShareALog(t *testing.T) {
	clock := &hands{now: time.Unix(1000, 0)}
	m := newTrails(clock)
	first, _ := m.begin("orders", "x", west, false)
	second, _ := m.begin("orders", "x", west, false)
	if _, ok := m.begin("orders", "x", central, true); ok {
		t.Error("a third try went to another log")
	}
	second(full)
	if m.has("x") != "eu-west" {
		t.Error("a refused try made it forget one that is open")
	}
	clock.now = clock.now.Add(2 * trailsFor)
	if first(nobody); m.has("x") != "eu-west" {
		t.Error("an unknown outcome is not remembered")
	}
	clock.now = clock.now.Add(trailsFor)
	if m.has("x") != "" || len(m.logs) != 0 {
		t.Error("it is remembered for ever")
	}
}

func TestRT3_TheGatewaysMemoryIsBounded(t *testing.T) {
	clock := &hands{now: time.Unix(1000, 0)}
	m := newTrails(clock)
	for i := range trailsKept {
		over, _ := m.begin("orders", fmt.Sprint(i), west, false)
		over(nobody)
	}
	if m.complete() {
		t.Error("it is full and says that one more fits")
	}
	if _, ok := m.begin("orders", "detour", central, true); ok {
		t.Error("a record took another way that nobody will remember")
	}
	over, ok := m.begin("orders", "first", west, false)
	if !ok || len(m.logs) > trailsKept {
		t.Fatalf("first choice: %v, %d ids", ok, len(m.logs))
	}
	clock.now = clock.now.Add(trailsFor)
	m.find("orders", "")
	if len(m.logs) != 0 || m.complete() {
		t.Error("a record without a trail is open, and it says that all is remembered")
	}
	over(nobody)
	if m.complete() {
		t.Error("the outcome of a record without a trail is unknown, and it says that all is remembered")
	}
	clock.now = clock.now.Add(trailsFor)
	if !m.complete() {
		t.Error("nothing matters any more, and it still takes no other way")
	}
}
