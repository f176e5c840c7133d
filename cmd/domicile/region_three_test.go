package main

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// TestRA4_GrownRegionServesAsThreeProcesses takes a region of one node to three with the
// files and commands that the README names: what the one acknowledged is there once at
// every door of the three, a retry of it is a duplicate, each door takes more, and so it
// stays when the holder is killed with kill -9. The old store opens no more.
func TestRA4_GrownRegionServesAsThreeProcesses(t *testing.T) {
	wholeProcesses(t)
	t.Parallel()
	dir, port := t.TempDir(), freePorts(t, threePorts)
	at := func(name string, more ...string) *federation {
		f := &federation{t: t, dir: filepath.Join(dir, name), port: port, nodes: map[string]*process{}}
		if out, err := exec.Command("domicile", append([]string{"init", f.dir, "--port", strconv.Itoa(port)}, more...)...).CombinedOutput(); err != nil {
			t.Fatalf("init: %v\n%s", err, out)
		}
		t.Cleanup(f.stopAll)
		return f
	}
	old, grown := at("old"), at("grown", "--quorum", "eu-west")
	acked := map[string]bool{}
	publish := func(f *federation, context, name string, n int) string {
		file := writeOrders(t, n, name, alwaysEU)
		eventually(t, startWithin, name+" is taken", func() bool {
			return f.run(t, context, "publish", "orders", "--file", file, "--patience", "60s").code == exitOK
		})
		for i := range n {
			acked[fmt.Sprintf("%s-%05d", name, i)] = true
		}
		return file
	}

	old.start("eu-west")
	first := publish(old, "eu-west", "before", 300)
	grow := []string{"region", "grow", "-c", old.nodeFile("eu-west"), "--federation", filepath.Join(grown.dir, "federation.yaml")}
	for _, name := range gateways {
		grow = append(grow, "--to", name+"="+filepath.Join(grown.dir, "eu-west", name, "data"))
	}
	if running := old.run(t, "eu-west", grow...); running.code != exitFailure || !strings.Contains(running.stderr, "stop it first") {
		t.Fatalf("with the node running: %+v", running)
	}
	old.stop("eu-west")
	report := strings.Join(strings.Fields(old.must(t, "eu-west", grow...).stdout), " ")
	for _, want := range []string{"orders@eu-west home 300 1 300", "compared record by record", "Start the three."} {
		if !strings.Contains(report, want) {
			t.Errorf("the report lacks %q:\n%s", want, report)
		}
	}
	if out, err := exec.Command("domicile", "serve", "-c", old.nodeFile("eu-west")).CombinedOutput(); err == nil || !strings.Contains(string(out), "grown") {
		t.Fatalf("the retired store: %v\n%s", err, out)
	}

	for _, name := range gateways {
		grown.start("eu-west/" + name)
	}
	for _, name := range gateways {
		publish(grown, contextOf(name), "through-"+name, 20)
	}
	again := decode[published](t, grown.must(t, contextOf("b"), "publish", "orders", "--file", first, "-o", "json").stdout)
	if again.Duplicates != 300 || again.Acked != 0 {
		t.Errorf("what the old node had acknowledged, sent again: %+v", again)
	}
	grown.allOnce(gateways[:], acked)
	var victim string
	eventually(t, startWithin, "a node holds the seat", func() bool { victim = grown.seatHolder(); return victim != "" })
	grown.kill("eu-west/" + victim)
	left := []string{}
	for _, name := range gateways {
		if name != victim {
			left = append(left, name)
		}
	}
	publish(grown, contextOf(left[0]), "after", 50)
	grown.allOnce(left, acked)
}

// allOnce reads the log of eu-west at each of these nodes: what was acknowledged is there,
// once, and nothing else.
func (f *federation) allOnce(nodes []string, acked map[string]bool) {
	f.t.Helper()
	for _, name := range nodes {
		var o output
		eventually(f.t, startWithin, "orders are read at "+name, func() bool {
			o = f.run(f.t, contextOf(name), "tail", "orders@eu-west", "--from", "start", "--follow=false", "-o", "json")
			return o.code == exitOK
		})
		found := map[string]int{}
		for _, r := range decodeLines[recordView](f.t, o.stdout) {
			found[r.ID]++
		}
		if len(found) != len(acked) {
			f.t.Errorf("at %s: %d records, %d were acknowledged", name, len(found), len(acked))
		}
		for id := range acked {
			if found[id] != 1 {
				f.t.Errorf("at %s: %s is there %d times", name, id, found[id])
			}
		}
	}
}
