package lab_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"domicile/chaos/lab"
	"domicile/gateway/node"
	"domicile/regions/council"
)

// TestFC3_AStartOnAnOlderViewCatchesUp: a region is started with a cache of the placement
// that is older than what its store went by before it ended, as after a death. Whatever the
// cache says of where the log was, the region's copy stays what it is and takes what the
// present home writes.
func TestFC3_AStartOnAnOlderViewCatchesUp(t *testing.T) {
	m := moving(t, "", lab.Options{})
	orders := 0
	publish := func(region string) {
		t.Helper()
		for range 3 {
			orders++
			m.send(door(t, m.Lab, region, 1), fmt.Sprintf("order-%d", orders))
		}
	}
	cache := func(region string) string {
		return filepath.Join(node.CouncilDir(m.Region(region).Data()), council.CacheFile)
	}
	older := func(region string) []byte {
		t.Helper()
		var data []byte
		m.until("the cache has the present", func() error {
			state, kept, err := council.LoadCache(cache(region))
			if err != nil {
				return err
			}
			if l, _ := state.Log(m.at(region).Incarnation); l.Version != m.at(region).Version {
				return fmt.Errorf("it has %s", l.Epoch)
			}
			data = kept
			return nil
		})
		return data
	}
	startOn := func(region string, view []byte) {
		t.Helper()
		r := m.Region(region)
		if err := r.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(cache(region), view, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := r.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	all := []string{"eu-west", "eu-central", "us-east"}
	publish("eu-west")
	first := map[string][]byte{"eu-west": older("eu-west"), "eu-central": older("eu-central")}
	m.move("eu-west", "m1", "us-east")
	m.settled("us-east", all...)
	publish("us-east")
	m.everywhere("us-east", orders)
	for region, view := range first {
		startOn(region, view)
		publish("us-east")
		m.everywhere("us-east", orders)
	}
	m.move("us-east", "m2", "eu-central")
	m.settled("eu-central", all...)
	publish("eu-central")
	m.everywhere("eu-central", orders)
}
