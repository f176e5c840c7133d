package node_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"domicile/api"
	"domicile/api/client"
	pb "domicile/api/domicile/v1"
	"domicile/chaos/lab"
	"domicile/gateway/node"
	"domicile/regions"
)

// mirroredSolo has a topic that goes to a region that is not there.
const mirroredSolo = `
version: 1
federation: solo
regions: {eu-west: {link: "127.0.0.1:1"}, us-east: {link: "127.0.0.1:2"}}
boundaries: {eu: [eu-west]}
links: [[eu-west, us-east]]
topics:
  orders: {writes: local, mirror: [all], hold: true, retention: {max_age: 100h, max_bytes: 8MiB}, on_home_loss: {producers: refuse, consumers: {mode: wait}, owner: o, text: t}}
`

// startWith starts the node with another federation.yaml.
func (w *world) startWith(text string) *node.Node {
	w.t.Helper()
	if err := os.WriteFile(w.config.Federation, []byte(text), 0o600); err != nil {
		w.t.Fatal(err)
	}
	f, err := regions.LoadManifest(w.config.Federation)
	if err != nil {
		w.t.Fatal(err)
	}
	w.f = f
	return w.start()
}

// firstAt is the first sequence that the log orders@eu-west still has.
func firstAt(t *testing.T, desk *client.Client) uint64 {
	t.Helper()
	m, err := desk.Topics(t.Context(), "orders")
	if err != nil {
		t.Fatal(err)
	}
	for _, h := range m.GetTopics()[0].GetLogs() {
		if h.GetLog().GetSlot() == "eu-west" {
			return h.GetFirst()
		}
	}
	return 0
}

// B12, B08: a file that keeps less and comes into force with a restart takes nothing that
// is not copied: what was in force stays, status says so, and only a reload carries it
// out, which is refused with the count, or forced and audited.
func TestB12_ShorteningThatComesWithARestart(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.policy(1, soloRules+"\ndestination contains \"eu-west\" if input.tags.residency == \"eu\"\n")
	w.config.Federation = filepath.Join(t.TempDir(), "federation.yaml")
	soon := func(ask func() error) {
		t.Helper()
		if err := lab.Poll(t.Context(), time.Minute, ask); err != nil {
			t.Fatal(err)
		}
	}
	n := w.startWith(mirroredSolo)
	for i := range 5 {
		soon(func() error { _, err := w.publish(n, fmt.Sprint("id-", i)); return err })
	}
	stored := time.Now()
	w.stop(n)

	shorter := strings.Replace(strings.Replace(mirroredSolo, "100h", "1s", 1), "hold: true, ", "", 1)
	n = w.startWith(shorter)
	desk := dial(t, n.Admin())
	first := func() uint64 { return firstAt(t, desk) }
	soon(func() error { // a few sweeps later
		if at := first(); at != 1 {
			t.Fatalf("what a restart shortened was taken: the first is %d", at)
		}
		if time.Since(stored) < 6*time.Second {
			return fmt.Errorf("wait for retention")
		}
		return nil
	})
	const held = "(max_age: 100h0m0s | 1s; hold: true | false): domicile config reload"
	if got := strings.Join(w.status(n).GetWarnings(), "\n"); !strings.Contains(got, held) {
		t.Errorf("status does not say what is kept: %s", got)
	}
	_, err := desk.ReloadManifest(t.Context(), &pb.ReloadManifestRequest{})
	if api.CodeOf(err) != api.NotCopied || !strings.Contains(err.Error(), "us-east") {
		t.Fatalf("a reload of the shortening: %v", err)
	}
	if err := n.Reload(t.Context()); api.CodeOf(err) != api.NotCopied { // SIGHUP
		t.Fatalf("SIGHUP: %v", err)
	}
	acts := func() string { text, _ := os.ReadFile(filepath.Join(w.config.Data, "acts.jsonl")); return string(text) }
	if acts() != "" {
		t.Errorf("a refused reload is in the audit: %s", acts())
	}
	r, err := desk.ReloadManifest(t.Context(), &pb.ReloadManifestRequest{Force: true, Reason: "disk is short"})
	if err != nil || !r.GetChanged() || len(r.GetTopics()) != 1 {
		t.Fatalf("forced: %v %v", r, err)
	}
	for _, part := range []string{`"reason":"disk is short"`, `"changes":["orders: alter (max_age: 100h0m0s | 1s; hold: true | false)"]`, "orders@eu-west", "us-east"} {
		if strings.Count(acts(), part) < 2 {
			t.Errorf("the audit lacks %s: %s", part, acts())
		}
	}
	soon(func() error {
		if at := first(); at != 6 {
			return fmt.Errorf("the first is %d", at)
		}
		return nil
	})
	w.stop(n)
	n = w.startWith(shorter)
	if got := strings.Join(w.status(n).GetWarnings(), "\n"); strings.Contains(got, "config reload carries it out") {
		t.Errorf("what was carried out is still said to wait: %s", got)
	}
}
