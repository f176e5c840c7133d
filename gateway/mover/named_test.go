package mover

import (
	"log/slog"
	"testing"
	"time"

	"domicile/api"
	"domicile/regions"
	"domicile/regions/placement"
)

// TestFA2_AHomeGivesNothingUpToAStranger: the authority says that the log's home is another
// region. One that this region's manifest names gets it; from any other it stays as it is.
func TestFA2_AHomeGivesNothingUpToAStranger(t *testing.T) {
	t.Parallel()
	open, shut := Held{Role: regions.RoleHome, Epoch: epochOf(1), End: 10}, Held{Home: epochOf(1)}
	for _, c := range []struct {
		home  string
		held  Held
		taken bool
	}{{"b", open, true}, {"x", open, false}, {"b", shut, true}, {"x", shut, false}} {
		home, taken := c.home, c.taken
		s := &standstill{held: c.held,
			log: placement.Log{Incarnation: "L", Home: home, Epoch: epochOf(2), Status: placement.Active, Version: 1,
				History: []placement.Ended{{Epoch: epochOf(1), Home: "a", End: 7, EndKnown: true}}}}
		var did []string
		id := api.LogID{Topic: "orders"}
		refused := &api.Error{Code: api.HomeOutsideBoundary, Op: "move log", Hint: "by the test"}
		m := New(Config{Self: "a", Authority: s, Logs: s, Clock: regions.NewManualClock(time.Now()), Pace: 1, Logger: slog.New(slog.DiscardHandler),
			Policy: Policy{Named: func(_ api.LogID, region string) error {
				if region == "b" {
					return nil
				}
				return refused
			}},
			Before: func(_ api.LogID, act string) error { did = append(did, act); return refused }})
		if !m.begin(id, 2) {
			t.Fatal("the log is not looked at")
		}
		_, err := m.step(t.Context(), id)
		m.leave(id, false, err)
		if taken != (len(did) == 1) || api.CodeOf(err) != api.HomeOutsideBoundary {
			t.Errorf("the home is %s: %v was done (%v)", home, did, err)
		}
	}
}
