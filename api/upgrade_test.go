package api_test

import (
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"domicile/api"
)

// Positions are kept by clients for as long as they like: one of version 1 is read, and
// means the same.
func TestUpgrade_PositionsOfVersion1AreRead(t *testing.T) {
	epoch := api.Epoch{Term: 1, Counter: 300, Issuer: "eu-west"}
	for file, want := range map[string][]api.Cursor{
		"start.txt": {},
		"one.txt": {{Log: api.LogID{Tenant: api.DefaultTenant, Topic: "catalog.updates", Slot: api.HomeSlot},
			Incarnation: "00112233445566778899aabbccddeeff", Epoch: api.StaticEpoch("us-east"), Sequence: 1}},
		"two.txt": {
			{Log: api.LogID{Tenant: api.DefaultTenant, Topic: "orders", Slot: "ap-south"}, Epoch: api.StaticEpoch("ap-south")},
			{Log: api.LogID{Tenant: api.DefaultTenant, Topic: "orders", Slot: "eu-west"}, Incarnation: "ab", Epoch: epoch, Sequence: 1<<63 + 7},
		},
	} {
		text, err := os.ReadFile("testdata/version-1/" + file)
		if err != nil {
			t.Fatal(err)
		}
		got, err := api.DecodePosition(api.Position(strings.TrimSpace(string(text))))
		if err != nil {
			t.Errorf("%s: %v", file, err)
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("%s: %s", file, d)
		}
	}
}
