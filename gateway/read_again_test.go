package gateway_test

import (
	"testing"

	"domicile/api"
	"domicile/gateway"
	"domicile/policy"
)

// R4: what another node of the region read is judged again under this node's own policy.
// The stricter of the two wins, what cannot be judged ends the reader, and counts run
// over the whole stream.
func TestR4_ABatchOfAnotherNodeIsJudgedAgain(t *testing.T) {
	r := newRig(t)
	r.must("eu-west", order("eu"))
	r.must("eu-west", order("eu"))
	var batch gateway.Batch
	if err := r.region["eu-west"].Read(t.Context(), gateway.ReadRequest{Topic: "orders", Slot: "eu-west"}, client("eu-west"), func(b gateway.Batch) error {
		if len(b.Records) > 0 {
			batch = b
		}
		return nil
	}); err != nil || len(batch.Records) != 2 {
		t.Fatalf("%d records, %v", len(batch.Records), err)
	}
	nameless := batch
	nameless.Logs = nil
	for name, c := range map[string]struct {
		active *policy.Generation
		place  string
		batch  gateway.Batch
		sent   int
		kept   uint64 // per batch
		code   api.Code
	}{
		"both permit":                 {r.policies.first, "eu-west", batch, 2, 0, ""},
		"this node permits nothing":   {r.policies.none, "eu-west", batch, 0, 2, ""},
		"the reader is elsewhere":     {r.policies.open, "us-east", batch, 0, 2, ""},
		"no policy is active":         {nil, "eu-west", batch, 0, 0, api.PolicyUnavailable},
		"nobody says whose log it is": {r.policies.open, "eu-west", nameless, 0, 2, ""},
	} {
		t.Run(name, func(t *testing.T) {
			gate := policy.NewGate(r.federation, "eu-west", policy.Hooks{})
			if c.active != nil {
				if err := gate.Activate(t.Context(), c.active); err != nil {
					t.Fatal(err)
				}
			}
			kept, log := map[api.LogID]uint64{}, logID(t, "orders@eu-west")
			for round := range uint64(2) {
				b, sends := c.batch, 0
				b.Logs = append([]gateway.LogState(nil), c.batch.Logs...)
				err := gateway.SendAgain(gate, 1, b, client(c.place), kept, func(b gateway.Batch) error {
					sends++
					if len(b.Records) != c.sent || b.Position != batch.Position {
						t.Errorf("%d records sent, want %d", len(b.Records), c.sent)
					}
					if len(b.Logs) > 0 && b.Logs[0].Unreadable != c.kept*(round+1) {
						t.Errorf("%d kept in round %d, want %d per batch", b.Logs[0].Unreadable, round, c.kept)
					}
					return nil
				})
				if api.CodeOf(err) != c.code || sends == 1 != (c.code == "") || kept[log] != c.kept*(round+1) {
					t.Errorf("got %v, %d sends, %d kept", err, sends, kept[log])
				}
			}
		})
	}
}
