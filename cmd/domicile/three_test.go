package main

import (
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// threeOrders is enough that the holder is killed in the middle of them.
const threeOrders = 20_000

// threePorts are the ports of a federation with a region of three.
const threePorts = 90

// startThree writes the files of a federation whose eu-west has three nodes and starts
// its five processes.
func startThree(t *testing.T) *federation {
	t.Helper()
	f := &federation{t: t, dir: filepath.Join(t.TempDir(), "fed"), port: freePorts(t, threePorts), nodes: map[string]*process{}}
	if out, err := exec.Command("domicile", "init", f.dir, "--port", strconv.Itoa(f.port), "--quorum", "eu-west").CombinedOutput(); err != nil {
		t.Fatalf("init: %v\n%s", err, out)
	}
	t.Cleanup(f.stopAll)
	for _, p := range (starter{port: f.port, quorum: starterRegions[:1]}).places() {
		f.start(p.dir())
	}
	eventually(t, startWithin, "one node holds the seat and all are heard", func() bool { return f.seatHolder() != "" })
	return f
}

// seatHolder is the node that says of itself that it has the region's logs open; "":
// none does.
func (f *federation) seatHolder() string {
	for _, p := range (starter{port: f.port, quorum: starterRegions[:1]}).places()[:len(gateways)] {
		response, err := http.Get("http://" + p.address(portMetrics) + "/metrics")
		if err != nil {
			continue // it does not run
		}
		page, err := io.ReadAll(response.Body)
		response.Body.Close()
		if err == nil && strings.Contains(string(page), "\ndomicile_seat_held 1\n") {
			return p.gateway
		}
	}
	return ""
}

// contextOf is the context of a node of eu-west.
func contextOf(node string) string { return place{region: "eu-west", gateway: node}.context() }

// TestRA4_ServeThreeNodes runs a region of three processes from the files that init
// writes. Records come in at a door without the seat, and are read there; the holder is
// killed with kill -9 in the middle, publishing and reading go on by themselves, and
// everything that was acknowledged is there exactly once, at whichever door it is read.
func TestRA4_ServeThreeNodes(t *testing.T) {
	wholeProcesses(t)
	t.Parallel()
	f := startThree(t)
	victim := f.seatHolder()
	door := gateways[0]
	if door == victim {
		door = gateways[1]
	}
	file := writeOrders(t, threeOrders, "three", func(int) string { return "eu" })
	results := filepath.Join(t.TempDir(), "results.ndjson")
	var publishing, following sync.WaitGroup
	var said, tailed output
	following.Go(func() {
		tailed = f.run(t, contextOf(door), "tail", "orders", "--from", "start", "--limit", strconv.Itoa(threeOrders), "-o", "json")
	})
	publishing.Go(func() {
		said = f.run(t, contextOf(door), "publish", "orders", "--file", file, "--results", results, "--patience", "60s", "-o", "json")
	})
	eventually(t, startWithin, "something was stored", func() bool {
		return len(f.orders(contextOf(victim))) > 0
	})
	f.kill("eu-west/" + victim)
	publishing.Wait()
	following.Wait()
	if said.code != exitOK {
		t.Errorf("publish through %s while %s was killed: exit %d\n%s", door, victim, said.code, said.stderr)
	}
	text, err := os.ReadFile(results)
	if err != nil {
		t.Fatal(err)
	}
	acked := map[string]bool{}
	for _, r := range decodeLines[told](t, string(text)) {
		if r.Outcome == "acked" || r.Outcome == "duplicate" {
			acked[r.ID] = true
		}
	}
	if len(acked) != threeOrders {
		t.Errorf("%d of %d acknowledged", len(acked), threeOrders)
	}
	var next string
	eventually(t, startWithin, "another node holds the seat", func() bool { next = f.seatHolder(); return next != "" && next != victim })
	for _, at := range gateways {
		if at == victim {
			continue
		}
		found := map[string]int{}
		for _, r := range f.orders(contextOf(at)) {
			found[r.ID]++
		}
		for id := range acked {
			if found[id] != 1 {
				t.Errorf("at %s: %s was acknowledged and is there %d times", at, id, found[id])
			}
		}
	}
	followed := map[string]bool{}
	for _, r := range decodeLines[recordView](t, tailed.stdout) {
		followed[r.ID] = true
	}
	if tailed.code != exitOK || len(followed) != threeOrders {
		t.Errorf("a reader at %s saw %d of %d records while %s was killed: exit %d\n%s", door, len(followed), threeOrders, victim, tailed.code, tailed.stderr)
	}
	if show := f.run(t, contextOf(door), "topic", "show", "orders"); !strings.Contains(show.stdout, "disk-2of3") {
		t.Errorf("topic show does not say what an ack proves:\n%s", show.stdout)
	}
	t.Logf("killed %s, published through %s, now held by %s", victim, door, next)
}

// orders are the records that a node's app reads, once the region's links are up.
func (f *federation) orders(context string) []recordView {
	f.t.Helper()
	var o output
	eventually(f.t, startWithin, "orders are read at "+context, func() bool {
		o = f.run(f.t, context, "tail", "orders", "--from", "start", "--follow=false", "-o", "json")
		return o.code == exitOK
	})
	return decodeLines[recordView](f.t, o.stdout)
}
