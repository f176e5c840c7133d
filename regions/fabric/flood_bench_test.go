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

// RT2, B50: what a neighbour's ack takes while others flood, against itself alone in the same
// run. It is a report and no pass or fail: a slow machine is slow for everybody.
func TestRT2_FiguresOfANeighbourOfAFlood(t *testing.T) {
	if os.Getenv("DOMICILE_LONG") == "" {
		t.Skip("measures for half a minute; set DOMICILE_LONG=1")
	}
	for _, c := range []struct{ logs, size int }{{1, 1 << 10}, {1, 64 << 10}, {8, 64 << 10}} {
		f := fabrictest.Open(t, func(c *fabric.Config) { c.Dir, c.MaxStore = t.TempDir(), 24<<30 })
		quiet := fabrictest.Home(t, f, "quiet@here")
		alone := latencies(quiet, "alone", 3*time.Second)
		var floods sync.WaitGroup
		stop := make(chan struct{})
		taken := make([]int, c.logs)
		for i := range c.logs {
			id := api.LogID{Topic: fmt.Sprintf("flood%d", i), Slot: api.HomeSlot}
			l, err := f.Home(t.Context(), fabric.LogConfig{ID: id, Epoch: api.StaticEpoch("here"), MaxBytes: 1 << 30})
			if err != nil {
				t.Fatal(err)
			}
			floods.Go(func() { taken[i] = flood(l, c.size, stop) })
		}
		beside := latencies(quiet, "beside", 4*time.Second)
		close(stop)
		floods.Wait()
		sum := 0
		for _, n := range taken {
			sum += n
		}
		t.Logf("%d flooding logs of %d byte records, %.0f MB/s: the neighbour's ack alone %s, beside them %s", c.logs, c.size, float64(sum*c.size)/4e6, figures(alone), figures(beside))
		closeNow(t, f)
	}
}

func figures(d []time.Duration) string {
	slices.Sort(d)
	return fmt.Sprintf("p50 %.1f p99 %.1f max %.1f ms of %d", ms(d[len(d)/2]), ms(d[len(d)*99/100]), ms(d[len(d)-1]), len(d))
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// latencies appends a record every 10 ms, whether the last was answered or not.
func latencies(l regions.HomeLog, name string, lasts time.Duration) (took []time.Duration) {
	var mu sync.Mutex
	var open sync.WaitGroup
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for n := 0; n < int(lasts/(10*time.Millisecond)); n++ {
		<-tick.C
		began := time.Now()
		open.Add(1)
		l.Append(regions.Draft{Record: api.Record{ID: fmt.Sprintf("%s-%d", name, n), Body: make([]byte, 100)}}, func(s regions.Stored) {
			mu.Lock()
			took = append(took, time.Since(began))
			mu.Unlock()
			open.Done()
		})
	}
	open.Wait()
	return took
}

// flood appends as fast as it is let, with 16 MiB that wait for their answers.
func flood(l regions.HomeLog, size int, stop chan struct{}) (stored int) {
	var mu sync.Mutex
	slots := make(chan struct{}, 16<<20/size)
	for n := 0; ; n++ {
		select {
		case <-stop:
			for range cap(slots) {
				slots <- struct{}{}
			}
			return stored
		case slots <- struct{}{}:
		}
		l.Append(regions.Draft{Record: api.Record{ID: fmt.Sprint(n), Body: make([]byte, size)}}, func(s regions.Stored) {
			mu.Lock()
			defer mu.Unlock()
			if s.Err == nil {
				stored++
				<-slots
				return
			}
			time.AfterFunc(200*time.Millisecond, func() { <-slots })
		})
	}
}
