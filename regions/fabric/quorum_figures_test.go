package fabric_test

import (
	"fmt"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"domicile/api"
	"domicile/regions"
	"domicile/regions/fabric"
	"domicile/regions/fabric/fabrictest"
)

// RA1: what an ack takes and how many a second there are, in a region of three and in one of
// one node, per class, in turns and in one run. It is a report and no pass or fail. In a
// region of three the class relaxed is the class disk.
func TestRA1_FiguresOfARegionOfThree(t *testing.T) {
	if os.Getenv("DOMICILE_LONG") == "" {
		t.Skip("measures for a minute; set DOMICILE_LONG=1")
	}
	solo := fabrictest.Open(t, func(c *fabric.Config) { c.MaxStore = 8 << 30 })
	trio := fabrictest.NewTrio(t, func(c *fabric.Config) { c.MaxStore = 8 << 30 })
	trio.Start()
	kinds := []*figured{{name: "solo disk"}, {name: "solo relaxed"}, {name: "three disk"}}
	for i, f := range []*fabric.Fabric{solo, solo, trio.Node(trio.Holder())} {
		id := api.LogID{Topic: fmt.Sprint("figures", i), Slot: api.HomeSlot}
		l, err := f.Home(t.Context(), fabric.LogConfig{ID: id, Epoch: api.StaticEpoch("here"), MaxBytes: 2 << 30, Relaxed: i == 1})
		if err != nil {
			t.Fatal(err)
		}
		kinds[i].log = l
	}
	for round := range 5 {
		for _, k := range kinds {
			k.took = append(k.took, latencies(k.log, fmt.Sprint("alone-", round), 2*time.Second)...)
			k.pour(round * benchRecords)
		}
	}
	for _, k := range kinds {
		slices.Sort(k.rates)
		t.Logf("%-12s one record each 10 ms: %s; %d of %d bytes in flight: %.0f records/s, %.2f of solo disk, %d refused or unknown", k.name, figures(k.took), benchWindow, benchBody, k.rate(), k.rate()/kinds[0].rate(), k.failed)
	}
	ratio := func(at int) float64 {
		return float64(kinds[2].took[len(kinds[2].took)*at/100]) / float64(kinds[0].took[len(kinds[0].took)*at/100])
	}
	t.Logf("an ack of three takes %.2f (p50) and %.2f (p99) of one node's", ratio(50), ratio(99))
}

// figured is what was measured of a log.
type figured struct {
	name   string
	log    regions.HomeLog
	took   []time.Duration
	rates  []float64 // of the rounds, stored records a second
	failed int
}

// pour appends one round of records, as many at a time as a producer may have without acks.
func (f *figured) pour(from int) {
	var mu sync.Mutex
	stored := 0
	slots := make(chan struct{}, benchWindow)
	start := time.Now()
	for i := range benchRecords {
		slots <- struct{}{}
		r := record(from + i)
		r.Body = make([]byte, benchBody)
		f.log.Append(regions.Draft{Record: r, Revision: "7-abc"}, func(s regions.Stored) {
			mu.Lock()
			defer mu.Unlock()
			if s.Err == nil {
				stored++
			}
			<-slots
		})
	}
	for range benchWindow {
		slots <- struct{}{}
	}
	f.rates = append(f.rates, float64(stored)/time.Since(start).Seconds())
	f.failed += benchRecords - stored
}

func (f *figured) rate() float64 { return f.rates[len(f.rates)/2] }
