package main

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"domicile/regions/fabric/fabrictest"
	"domicile/regions/testenv"
)

// previous is the last commit of the version before this one: store format 1.
const previous = "bbf83294724af47d72aca66f37e1ba39395ffa5b"

// previousBinary builds the version before this one out of the repository's history.
func previousBinary(t *testing.T) string {
	t.Helper()
	if os.Getenv("DOMICILE_UPGRADE") == "" {
		t.Skip("set DOMICILE_UPGRADE to build the previous version and run both: half a minute of compiling")
	}
	if err := exec.Command("git", "cat-file", "-e", previous+"^{commit}").Run(); err != nil {
		testenv.Missing(t, "the history does not hold the previous version: ", err)
	}
	source := t.TempDir()
	archive, err := exec.Command("git", "-C", "../..", "archive", previous).Output()
	if err != nil {
		t.Fatal(err)
	}
	for r := tar.NewReader(bytes.NewReader(archive)); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if h.Typeflag != tar.TypeReg {
			continue
		}
		path := filepath.Join(source, filepath.FromSlash(h.Name))
		text, err := io.ReadAll(r)
		if err == nil {
			err = os.MkdirAll(filepath.Dir(path), 0o700)
		}
		if err == nil {
			err = os.WriteFile(path, text, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	binary := filepath.Join(t.TempDir(), "domicile-previous")
	build := exec.Command("go", "build", "-buildvcs=false", "-o", binary, "./cmd/domicile")
	build.Dir = source
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the previous version: %v\n%s", err, out)
	}
	return binary
}

// B46: a fleet of the previous version is upgraded region by region under load, on its
// own files and stores. What either version acknowledges is everywhere it belongs, once.
// What only the newer one knows is refused by the older one, and so is the newer one's
// store, which it leaves as it is: there is no way back but a region's copies.
func TestB46_UpgradeFromThePreviousVersion(t *testing.T) {
	old := previousBinary(t)
	f := startFederationOf(t, old)
	acked := map[string]map[string]bool{"eu": {}, "global": {}}
	publish := func(name, through string) {
		for _, r := range f.publishWhile(name, through, func() {}) {
			acked[residencyOf(r.Line)][r.ID] = true
		}
	}
	publish("before", "us-east")
	for _, r := range f.publishWhile("during", "us-east", func() { f.upgrade("eu-west") }) {
		acked[residencyOf(r.Line)][r.ID] = true
	}
	f.waitForLinks()
	publish("old-to-new", "us-east")
	publish("new-to-old", "eu-west")
	if len(acked["eu"]) < 300 || len(acked["global"]) < 300 {
		t.Fatalf("%d European and %d global records were acknowledged: that proves little", len(acked["eu"]), len(acked["global"]))
	}
	everywhere := func() {
		t.Helper()
		f.restExactlyOnce("eu-west", "eu", acked["eu"])
		for _, region := range starterRegions {
			f.restExactlyOnce(region, "global", acked["global"])
		}
	}
	everywhere()
	for region, peers := range map[string][]string{"eu-west": {"us-east", "ap-south"}} {
		s, _ := f.status(t, region)
		for _, l := range s.Links {
			if l.State != "up" || l.WireVersion != 1 {
				t.Errorf("%s with %v: %+v", region, peers, l)
			}
		}
	}
	t.Run("what only the newer one knows is refused by the older one", func(t *testing.T) { f.refusesNewerManifest(t, old) })
	t.Run("the older one refuses the newer one's store", func(t *testing.T) {
		f.stop("eu-west")
		f.refusesStore(t, old, "eu-west")
		f.start("eu-west")
		f.waitForLinks()
		f.kill("eu-west")
		f.refusesStore(t, old, "eu-west")
		f.start("eu-west")
		f.waitForLinks()
	})
	for _, region := range []string{"us-east", "ap-south"} {
		f.upgrade(region)
	}
	f.waitForLinks()
	publish("after", "us-east")
	everywhere()
}

// upgrade stops a node and starts this binary on its files.
func (f *federation) upgrade(region string) {
	f.stop(region)
	delete(f.binary, region)
	f.start(region)
}

// publishWhile publishes orders through a region while something happens, each until it
// has an answer for good, and returns those that were acknowledged.
func (f *federation) publishWhile(name, through string, happens func()) []told {
	f.t.Helper()
	file := writeOrders(f.t, 300, name, func(i int) string { return residencyOf(uint64(i) + 1) })
	results := filepath.Join(f.t.TempDir(), "results.ndjson")
	done := make(chan output)
	go func() {
		done <- f.run(f.t, through, "publish", "orders", "--file", file, "--results", results, "--patience", "60s", "-o", "json")
	}()
	happens()
	o := <-done
	text, err := os.ReadFile(results)
	if err != nil {
		f.t.Fatalf("%v\n%s", err, o.stderr)
	}
	var acked []told
	for _, r := range decodeLines[told](f.t, string(text)) {
		if r.Outcome == "acked" || r.Outcome == "duplicate" {
			acked = append(acked, r)
		}
	}
	return acked
}

// refusesNewerManifest has the older binary check a manifest with a key that it does not
// know.
func (f *federation) refusesNewerManifest(t *testing.T, old string) {
	text, err := os.ReadFile(filepath.Join(f.dir, "federation.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "federation.yaml")
	newer := bytes.Replace(text, []byte("  catalog.updates:\n"), []byte("  catalog.updates:\n    quota: {records_per_second: 5, bytes_per_second: 0}\n"), 1)
	if err := os.WriteFile(path, newer, 0o600); err != nil {
		t.Fatal(err)
	}
	for binary, want := range map[string]int{"domicile": 0, old: int(exitFailure)} {
		check := exec.Command(binary, "config", "check", "--federation", path)
		out, _ := check.CombinedOutput()
		if got := check.ProcessState.ExitCode(); got != want || want != 0 && !bytes.Contains(out, []byte("quota")) {
			t.Errorf("%s: exit code %d, want %d\n%s", binary, got, want, out)
		}
	}
}

// refusesStore starts the older binary on a region's store.
func (f *federation) refusesStore(t *testing.T, old, region string) {
	t.Helper()
	data := filepath.Join(f.dir, region, "data")
	before := fabrictest.TreeSum(t, data)
	f.binary[region] = old
	p := f.start(region)
	delete(f.binary, region)
	select {
	case <-p.exited:
	case <-time.After(startWithin):
		t.Fatal("the older binary runs on the newer one's store")
	}
	said := p.stderr.String()
	if p.err == nil || !strings.Contains(said, "field=format") || !strings.Contains(said, "run the version that wrote it") {
		t.Errorf("it ended with %v and said:\n%s", p.err, tailOf(said, 1000))
	}
	if fabrictest.TreeSum(t, data) != before {
		t.Error("it changed the store")
	}
}
