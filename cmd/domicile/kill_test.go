package main

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"
)

// killRounds is how often a node is killed: twice by default, as many as
// DOMICILE_KILL_ROUNDS says where there is time.
func killRounds(t *testing.T) int {
	text := os.Getenv("DOMICILE_KILL_ROUNDS")
	if text == "" {
		return 2
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		t.Fatalf("DOMICILE_KILL_ROUNDS=%s: write a number", text)
	}
	return n
}

// TestRA1_KillsLoseNoAckedRecord kills one node after the other with kill -9 while
// records are published, and starts it again; in every other round it is killed once
// more on its way up, where it reads its logs back and takes its mirrors up again.
// Every acknowledged record is at its home exactly once; every global one is in every
// region exactly once.
func TestRA1_KillsLoseNoAckedRecord(t *testing.T) {
	wholeProcesses(t)
	t.Parallel()
	f := startFederation(t)
	acked := map[string]map[string]bool{"eu": {}, "global": {}}
	for round := range killRounds(t) {
		victim := starterRegions[rand.IntN(len(starterRegions))]
		moments := []time.Duration{rand.N(1500 * time.Millisecond)}
		if round%2 == 1 {
			moments = append(moments, rand.N(1500*time.Millisecond))
		}
		t.Logf("round %d: kill %s after %s", round, victim, moments)
		results := f.publishDuringKills(round, victim, moments)
		for _, r := range results {
			if r.Outcome == "acked" || r.Outcome == "duplicate" {
				acked[residencyOf(r.Line)][r.ID] = true
			}
		}
		f.start(victim)
		f.waitForLinks()
	}
	if len(acked["eu"]) == 0 || len(acked["global"]) == 0 {
		t.Fatal("nothing was acknowledged: the test proves nothing")
	}
	t.Logf("%d European and %d global records acknowledged", len(acked["eu"]), len(acked["global"]))
	f.restExactlyOnce("eu-west", "eu", acked["eu"])
	for _, region := range starterRegions {
		f.restExactlyOnce(region, "global", acked["global"])
	}
}

// told is what a producer reads of one line's outcome.
type told struct {
	Line    uint64
	Outcome string
	ID      string
}

// residencyOf is the residency of a line, counted from 1.
func residencyOf(line uint64) string {
	if line%2 == 1 {
		return "eu"
	}
	return "global"
}

// publishDuringKills publishes through us-east and meanwhile kills the victim, each
// time so long after it was started again. It returns what the producer was told.
func (f *federation) publishDuringKills(round int, victim string, moments []time.Duration) []told {
	f.t.Helper()
	file := writeOrders(f.t, 3000, fmt.Sprintf("kill-%d", round), func(i int) string { return residencyOf(uint64(i) + 1) })
	results := filepath.Join(f.t.TempDir(), "results.ndjson")
	var publishing sync.WaitGroup
	publishing.Go(func() {
		f.run(f.t, "us-east", "publish", "orders", "--file", file, "--results", results, "--patience", "2s", "-o", "json")
	})
	for i, after := range moments {
		if i > 0 {
			f.start(victim)
		}
		<-time.After(after) // the random moment itself, not a wait for something
		f.kill(victim)
	}
	publishing.Wait()
	text, err := os.ReadFile(results)
	if err != nil {
		f.t.Fatal(err)
	}
	return decodeLines[told](f.t, string(text))
}

// restExactlyOnce waits until a region holds every acknowledged record, then looks
// for one that is there twice.
func (f *federation) restExactlyOnce(region, residency string, acked map[string]bool) {
	f.t.Helper()
	var found map[string]int
	missing := func() (n int) {
		found = map[string]int{}
		for _, r := range f.read(f.t, region, "orders") {
			if r.Tags["residency"] == residency {
				found[r.ID]++
			}
		}
		for id := range acked {
			if found[id] == 0 {
				n++
			}
		}
		return n
	}
	what := fmt.Sprintf("%s holds all %d acknowledged %s records", region, len(acked), residency)
	eventually(f.t, 2*time.Minute, what, func() bool { return missing() == 0 })
	for id, n := range found {
		if n > 1 {
			f.t.Errorf("%s: record %s is there %d times", region, id, n)
		}
	}
}
