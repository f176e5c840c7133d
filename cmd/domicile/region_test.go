package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// stop ends a node in order.
func (f *federation) stop(region string) {
	f.t.Helper()
	p := f.node(region)
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		f.t.Fatal(err)
	}
	<-p.exited
}

func (f *federation) nodeFile(region string) string { return filepath.Join(f.dir, region, "node.yaml") }

// A region's store goes to another directory while the others go on: what was
// acknowledged is there once, mirrors in both directions go on behind it, the producer's
// retry is a duplicate, and the old store refuses.
func TestRA1_RegionMovesToAnotherDisk(t *testing.T) {
	wholeProcesses(t)
	t.Parallel()
	f := startFederation(t)
	global := func(int) string { return "global" }
	first := writeOrders(t, 300, "first", global)
	f.must(t, "eu-west", "publish", "orders", "--file", first, "-o", "json")
	acked := map[string]bool{}
	for i := range 300 {
		acked[fmt.Sprintf("first-%05d", i)] = true
	}
	f.restExactlyOnce("us-east", "global", acked)
	to := filepath.Join(t.TempDir(), "new")

	running := f.run(t, "eu-west", "region", "move", "-c", f.nodeFile("eu-west"), "--to", to)
	if running.code != exitFailure || !strings.Contains(running.stderr, "stop it first") {
		t.Fatalf("with the node running: %+v", running)
	}
	f.stop("eu-west")
	// Others publish while the region is away.
	f.must(t, "us-east", "publish", "orders", "--file", writeOrders(t, 100, "away", global), "-o", "json")
	done := f.must(t, "eu-west", "region", "move", "-c", f.nodeFile("eu-west"), "--to", to)
	report := strings.Join(strings.Fields(done.stdout), " ")
	for _, want := range []string{"orders@eu-west home 300 1 300", "orders@us-east copy", "set data: " + to, "compared record by record"} {
		if !strings.Contains(report, want) {
			t.Errorf("the report lacks %q:\n%s", want, done.stdout)
		}
	}
	if out, err := exec.Command("domicile", "serve", "-c", f.nodeFile("eu-west")).CombinedOutput(); err == nil || !bytes.Contains(out, []byte(to)) {
		t.Fatalf("the retired store: %v\n%s", err, out)
	}
	again := decode[moveReport](t, f.must(t, "eu-west", "region", "move", "-c", f.nodeFile("eu-west"), "--to", to, "-o", "json").stdout)
	if len(again.Logs) != 0 {
		t.Errorf("a move that was done moved %v", again.Logs)
	}

	text, err := os.ReadFile(f.nodeFile("eu-west"))
	if err != nil {
		t.Fatal(err)
	}
	moved := bytes.Replace(text, []byte("\ndata: data"), []byte("\ndata: "+to), 1)
	if bytes.Equal(moved, text) {
		t.Fatal("node.yaml has no line data: data")
	}
	if err := os.WriteFile(f.nodeFile("eu-west"), moved, 0o600); err != nil {
		t.Fatal(err)
	}
	f.start("eu-west")
	f.waitForLinks()
	sum := decode[published](t, f.must(t, "eu-west", "publish", "orders", "--file", first, "-o", "json").stdout)
	if sum.Duplicates != 300 || sum.Acked != 0 {
		t.Errorf("the retry after the move: %+v", sum)
	}
	f.must(t, "eu-west", "publish", "orders", "--file", writeOrders(t, 50, "later", global), "-o", "json")
	for i := range 50 {
		acked[fmt.Sprintf("later-%05d", i)] = true
	}
	for i := range 100 {
		acked[fmt.Sprintf("away-%05d", i)] = true
	}
	for _, region := range starterRegions {
		f.restExactlyOnce(region, "global", acked)
	}
	status, _ := f.status(t, "us-east")
	for _, l := range status.Links {
		if l.State != "up" {
			t.Errorf("link %+v", l)
		}
	}
}
