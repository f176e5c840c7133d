package lab_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"domicile/chaos/lab"
	"domicile/regions/link"
)

// TestR14g_ALeaseIsRenewedThroughAThirdRegion cuts one link, between the home of a log that
// fences itself and the region of the authority's leader. Both reach the third region, so the
// home goes on far beyond the end of the lease that it had.
func TestR14g_ALeaseIsRenewedThroughAThirdRegion(t *testing.T) {
	t.Parallel()
	m := moving(t, ", fence_after: 20s", lab.Options{})
	leads := func() (leader string) {
		m.until("another region leads", func() error {
			if leader = m.authority("us-east").GetLeader(); leader == "" {
				return fmt.Errorf("nobody leads")
			}
			return nil
		})
		return leader
	}
	for leads() == "eu-west" {
		if err := m.Region("eu-west").Restart(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	var producers sync.WaitGroup
	ctx, stop := context.WithCancel(t.Context())
	defer producers.Wait()
	defer stop()
	m.publish(ctx, &producers, "eu-west", "w")
	m.more(20)
	if err := m.CutLink("eu-west", leads(), link.BlackHole, time.Hour); err != nil {
		t.Fatal(err)
	}
	cut := time.Now()
	m.until("the home acknowledges beyond its lease", func() error {
		if last, _ := m.acksOf("eu-west"); last.Sub(cut) < quick.Of(40*time.Second) {
			return fmt.Errorf("acknowledged until %s after the cut; refused: %v", last.Sub(cut), m.refused())
		}
		return nil
	})
	t.Logf("refused on the way: %v", m.refused())
	m.Heal()
	stop()
	producers.Wait()
	m.whole("eu-west", nil)
}
