package main

import (
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"domicile/api"
)

const canary = "canary-7f3a91"

// writeOrders writes an NDJSON file of n orders; residency gives each its own.
func writeOrders(t *testing.T, n int, name string, residency func(i int) string) string {
	t.Helper()
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `{"id":"%s-%05d","key":"%s-k%d","tags":{"residency":%q,"class":"order"},"headers":{"Trace":"%s"},"body":{"n":%d,"note":"%s"}}`+"\n",
			name, i, canary, i%7, residency(i), canary, i, canary)
	}
	path := filepath.Join(t.TempDir(), name+".ndjson")
	if err := os.WriteFile(path, []byte(b.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func alwaysEU(int) string { return "eu" }

// TestR14b_ServeFromInitFiles is the newcomer's way, with real processes: three
// nodes from init's files, European orders published in us-east.
func TestR14b_ServeFromInitFiles(t *testing.T) {
	wholeProcesses(t)
	t.Parallel()
	f := startFederation(t)
	const lines = 200
	file, results := writeOrders(t, lines, "eu", alwaysEU), filepath.Join(t.TempDir(), "results.ndjson")

	t.Run("acks name eu-west", func(t *testing.T) {
		sum := decode[published](t, f.must(t, "us-east", "publish", "orders", "--file", file, "--results", results, "-o", "json").stdout)
		if sum.Lines != lines || sum.Acked != lines || sum.Stored["orders@eu-west"] != lines {
			t.Fatalf("summary %+v", sum)
		}
		text, err := os.ReadFile(results)
		if err != nil {
			t.Fatal(err)
		}
		got := bytes.Count(text, []byte(`"outcome":"acked","region":"eu-west","log":"orders@eu-west"`))
		if got != lines {
			t.Errorf("%d of %d outcomes are acks of eu-west", got, lines)
		}
	})
	t.Run("RD1 again: nothing is stored twice", func(t *testing.T) {
		sum := decode[published](t, f.must(t, "us-east", "publish", "orders", "--file", file, "-o", "json").stdout)
		if sum.Duplicates != lines || sum.Acked != 0 {
			t.Errorf("summary %+v", sum)
		}
	})
	t.Run("tail shows them in eu-west and none in us-east", func(t *testing.T) {
		there := f.read(t, "eu-west", "orders")
		if len(there) != lines || there[0].ID != "eu-00000" || there[lines-1].Sequence != lines {
			t.Errorf("eu-west shows %d records", len(there))
		}
		if here := f.read(t, "us-east", "orders"); len(here) != 0 {
			t.Errorf("us-east shows %d records", len(here))
		}
	})
	t.Run("no byte of them rests in us-east or ap-south", func(t *testing.T) {
		if filesWith(t, filepath.Join(f.dir, "eu-west"), canary) == 0 {
			t.Error("the canary is not found at home: the search proves nothing")
		}
		for _, region := range []string{"us-east", "ap-south"} {
			if n := filesWith(t, filepath.Join(f.dir, region), canary); n != 0 {
				t.Errorf("%d files of %s hold the canary", n, region)
			}
			if strings.Contains(f.node(region).stderr.String(), canary) {
				t.Errorf("the log of %s holds the canary", region)
			}
		}
	})
	t.Run("R14b refusals have exit code 2 and one line, with what decided", func(t *testing.T) { refusesWithRule(t, f) })
	t.Run("a bad line is refused by its number and the rest goes on", func(t *testing.T) { badLineGoesOn(t, f) })
	t.Run("operators' commands", func(t *testing.T) { operatorCommands(t, f) })
	t.Run("SIGHUP loads the policy again", func(t *testing.T) { reloads(t, f) })
	t.Run("no core dump", func(t *testing.T) { noCoreDump(t, f) })
	t.Run("B18 they gossip, and open no UDP socket", func(t *testing.T) { gossipsOverTCP(t, f) })
	t.Run("SIGTERM stops gracefully", func(t *testing.T) { stopsGracefully(t, f) })
}

func filesWith(t *testing.T, dir, token string) int {
	t.Helper()
	found := 0
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		if bytes.Contains(text, []byte(token)) {
			found++
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func refusesWithRule(t *testing.T, f *federation) {
	args := []string{"publish", "health.records", "--tag", "residency=eu", "--tag", "class=health", "--body", "x"}
	o := f.run(t, "us-east", args...)
	if o.code != exitRefused || strings.Count(o.stderr, "\n") != 1 ||
		!strings.HasPrefix(o.stderr, "domicile: transit: TRANSIT_DENIED topic=health.records region=us-east reason=D201_FORBIDDEN rule=health/never_in_transit ") {
		t.Errorf("%+v", o)
	}
	o = f.run(t, "us-east", append(args, "-o", "json")...)
	e := decode[errorView](t, o.stderr)
	want := errorView{Error: e.Error, Hint: e.Hint, Revision: e.Revision, Exit: exitRefused, Code: api.TransitDenied, Stored: api.StoredNo, Action: api.ActionRegion,
		Op: "transit", Topic: "health.records", Region: "us-east", Reason: "D201_FORBIDDEN", Rule: "health/never_in_transit"}
	if o.code != exitRefused || o.stdout != "" || e != want || e.Hint == "" || e.Revision == "" {
		t.Errorf("%+v", o)
	}
}

func badLineGoesOn(t *testing.T, f *federation) {
	text := `{"id":"b-1","body":"one"}` + "\n" + `{"id":"b-2","boddy":"two"}` + "\n" + `{"body":"three"}` + "\n" +
		`{"id":"b-4","tags":{"residency":"EU"},"body":"four"}` + "\n"
	file := filepath.Join(t.TempDir(), "mixed.ndjson")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	args := []string{"publish", "orders", "--tag", "residency=eu", "--tag", "class=order", "--file", file, "--results", "-", "-o", "json"}
	o := f.run(t, "eu-west", args...)
	if o.code != exitFailure {
		t.Errorf("exit code %d, %s", o.code, o.stderr)
	}
	for _, want := range []string{`"line":2,"outcome":"refused","code":"BAD_REQUEST"`, `"line":4,"outcome":"refused","id":"b-4","code":"UNKNOWN_TAG"`, `"acked":2`} {
		if !strings.Contains(o.stdout, want) {
			t.Errorf("no %s in\n%s", want, o.stdout)
		}
	}
	if again := f.run(t, "eu-west", args...); !strings.Contains(again.stdout, `"acked":0,"duplicates":2`) {
		t.Errorf("a line without an id was stored twice:\n%s", again.stdout)
	}
}

func operatorCommands(t *testing.T, f *federation) {
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"status"}, `(?m)^ok: `},
		{[]string{"topic", "ls"}, `orders +local`},
		{[]string{"topic", "show", "orders"}, `What you can rely on`},
		{[]string{"lag"}, `orders@us-east +us-east +eu-west`},
		{[]string{"lag", "orders", "-o", "json"}, `"log":"orders@eu-west"`},
		{[]string{"explain", "orders", "--tag", "residency=eu", "--tag", "class=order", "--class", "app", "--from", "us-east"}, `goes to +eu-west`},
		{[]string{"publish", "orders", "--tag", "residency=global", "--tag", "class=order", "--body", "hello"}, `stored in us-east: orders@us-east`},
		{[]string{"tail", "orders@us-east", "--from", "start", "--limit", "1"}, `hello`},
		{[]string{"policy", "reload"}, `was active already`},
	} {
		o := f.run(t, "us-east", c.args...)
		if o.code != exitOK || !regexp.MustCompile(c.want).MatchString(o.stdout) {
			t.Errorf("%v: exit code %d, want %s in\n%s%s", c.args, o.code, c.want, o.stdout, o.stderr)
		}
	}
	if o := f.run(t, "us-east", "topic", "show", "order"); o.code != exitFailure || !strings.Contains(o.stderr, "UNKNOWN_TOPIC") {
		t.Errorf("unknown topic: %+v", o)
	}
}

func reloads(t *testing.T, f *federation) {
	catalog := filepath.Join(f.dir, "policies", "catalog.yaml")
	text, err := os.ReadFile(catalog)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(catalog, bytes.Replace(text, []byte("serial: 1\n"), []byte("serial: 2\n"), 1), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := f.node("eu-west").cmd.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	eventually(t, 20*time.Second, "revision 2 is active in eu-west", func() bool {
		s, ok := f.status(t, "eu-west")
		return ok && len(s.Policies) > 0 && s.Policies[0].Revision != nil && strings.HasPrefix(*s.Policies[0].Revision, "2-")
	})
	o := f.must(t, "us-east", "policy", "reload")
	if !strings.Contains(o.stdout, "is active now") {
		t.Errorf("%+v", o)
	}
}

func noCoreDump(t *testing.T, f *federation) {
	proc := fmt.Sprintf("/proc/%d/", f.node("eu-west").cmd.Process.Pid)
	limits, err := os.ReadFile(proc + "limits")
	if err != nil {
		t.Fatal(err)
	}
	if !regexp.MustCompile(`Max core file size +0 +0 `).Match(limits) {
		t.Errorf("core dumps are not off:\n%s", limits)
	}
}

// gossipsOverTCP holds the sockets of each node against the machine's UDP sockets, once its
// gossip knows of all three.
func gossipsOverTCP(t *testing.T, f *federation) {
	for _, region := range starterRegions {
		place := place{region: region, port: f.port + 10*slices.Index(starterRegions[:], region)}
		eventually(t, startWithin, "all members are seen in "+region, func() bool {
			answer, err := http.Get("http://" + place.address(portMetrics) + "/metrics")
			if err != nil {
				return false
			}
			defer answer.Body.Close()
			text, err := io.ReadAll(answer.Body)
			return err == nil && strings.Contains(string(text), "\ndomicile_gossip_members 3\n")
		})
		proc := fmt.Sprintf("/proc/%d/", f.node(region).cmd.Process.Pid)
		sockets, err := os.ReadDir(proc + "fd")
		if err != nil {
			t.Fatal(err)
		}
		open := map[string]bool{}
		for _, fd := range sockets {
			if to, err := os.Readlink(proc + "fd/" + fd.Name()); err == nil && strings.HasPrefix(to, "socket:[") {
				open[strings.TrimSuffix(strings.TrimPrefix(to, "socket:["), "]")] = true
			}
		}
		for _, table := range []string{"udp", "udp6", "tcp"} {
			text, err := os.ReadFile(proc + "net/" + table)
			if err != nil {
				t.Fatal(err)
			}
			found := 0
			for line := range strings.Lines(string(text)) {
				if columns := strings.Fields(line); len(columns) > 9 && open[columns[9]] {
					found++
				}
			}
			if tcp := table == "tcp"; tcp != (found > 0) { // where TCP sockets are not found, nothing was looked at
				t.Errorf("%s has %d sockets of %s", region, found, table)
			}
		}
	}
}

func stopsGracefully(t *testing.T, f *federation) {
	for _, region := range starterRegions {
		p := f.node(region)
		if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		select {
		case <-p.exited:
		case <-time.After(40 * time.Second):
			t.Fatalf("%s still runs", region)
		}
		if p.err != nil {
			t.Errorf("%s: %v\n%s", region, p.err, tailOf(p.stderr.String(), 1000))
		}
	}
}
