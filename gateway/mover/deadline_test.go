package mover

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"domicile/api"
	"domicile/regions"
	"domicile/regions/placement"
)

// standstill is an authority with one log that moves and never comes on, and a store that
// holds it.
type standstill struct {
	Logs // what no step that is allowed asks
	log  placement.Log
	held Held
	said []placement.Command
}

func (s *standstill) Placements() (map[api.LogID]placement.Log, <-chan struct{}) {
	return map[api.LogID]placement.Log{{Topic: "orders"}: s.log}, nil
}

func (s *standstill) Submit(_ context.Context, c placement.Command) (placement.Result, error) {
	s.said = append(s.said, c)
	return placement.Result{}, nil
}

func (s *standstill) Held(context.Context, api.LogID) (Held, error) { return s.held, nil }

func (s *standstill) Copies(api.LogID) bool             { return true }
func (s *standstill) Brought(api.LogID, string) bool    { return false }
func (s *standstill) Log(api.LogID) (regions.Log, bool) { return nil, false }

// TestS12_AMoveThatStandsStillIsGivenUp: home and target count a minute by their own clocks
// and take the move back then, not before; a forced move whose home said nothing waits for
// people.
func TestS12_AMoveThatStandsStillIsGivenUp(t *testing.T) {
	t.Parallel()
	marker, lapsed := &placement.Proof{Kind: placement.Marker, End: 10}, &placement.Proof{Kind: placement.Lapsed}
	home, copied := Held{Role: regions.RoleHome, Stopped: true, End: 10}, Held{Role: regions.RoleCopy, End: 5}
	for name, c := range map[string]struct {
		self  string
		held  Held
		op    placement.Op
		never bool
	}{
		"planned, at its home":              {self: "a", held: home, op: placement.Op{Kind: placement.Planned, Step: placement.Cut, Proof: marker}},
		"planned, at its target":            {self: "b", held: copied, op: placement.Op{Kind: placement.Planned, Step: placement.Cut, Proof: marker}},
		"forced, its home has marked":       {self: "b", held: copied, op: placement.Op{Kind: placement.Forced, Step: placement.Cut, Proof: marker}},
		"planned, at a third region":        {self: "c", held: copied, op: placement.Op{Kind: placement.Planned, Step: placement.Cut, Proof: marker}, never: true},
		"forced, its home said nothing":     {self: "b", held: copied, op: placement.Op{Kind: placement.Forced, Step: placement.Proven, Proof: lapsed}, never: true},
		"planned, decided for another home": {self: "b", held: copied, op: placement.Op{Kind: placement.Planned, Step: placement.Flipped, Proof: marker}, never: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c.op.ID, c.op.Target = "m", "b"
			s := &standstill{held: c.held,
				log: placement.Log{Incarnation: "L", Home: "a", Epoch: epochOf(1), Status: placement.Moving, Version: 1, Op: &c.op}}
			if c.op.Step == placement.Flipped {
				s.log.Home, s.log.Status, s.log.Epoch = "b", placement.Opening, epochOf(2)
				s.log.History = []placement.Ended{{Epoch: epochOf(1), Home: "a", End: 10, EndKnown: true}}
			}
			s.standsStill(t, c.self, c.never)
		})
	}
}

// standsStill has a region look at the log 48, 53, 58 and 63 s after it saw it first.
func (s *standstill) standsStill(t *testing.T, self string, never bool) {
	t.Helper()
	id, clock := api.LogID{Topic: "orders"}, regions.NewManualClock(time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC))
	m := New(Config{Self: self, Authority: s, Logs: s, Clock: clock, Pace: 1, Logger: slog.New(slog.DiscardHandler),
		Before: func(_ api.LogID, act string) error {
			if act == string(giveUp) {
				return nil
			}
			return &api.Error{Code: api.NotReady, Op: "hold", Hint: "by the test"}
		}})
	look := func(later time.Duration) {
		t.Helper()
		clock.Advance(later)
		if !m.begin(id, s.log.Version+1) { // as if something else had changed
			t.Fatal("the log is not looked at")
		}
		done, err := m.step(t.Context(), id)
		m.leave(id, done || err == nil, err)
	}
	waits := []time.Duration{0, 48 * time.Second, 5 * time.Second, 5 * time.Second}
	if never {
		waits = append(waits, 5*time.Second, time.Minute, time.Minute)
	}
	for _, wait := range waits {
		look(wait)
	}
	if len(s.said) > 0 {
		t.Fatalf("said: %+v", s.said)
	}
	if never {
		return
	}
	look(5 * time.Second)
	if len(s.said) != 1 || s.said[0].Verb != placement.Abort || s.said[0].Op != "m" {
		t.Errorf("said %+v", s.said)
	}
}
