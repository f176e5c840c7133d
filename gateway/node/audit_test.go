package node

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	"domicile/api"
	pb "domicile/api/domicile/v1"
	"domicile/gateway/drill"
	"domicile/regions"
	"domicile/regions/approval"
)

// An audit reads a whole disk: a second one is told that it has to wait.
func TestAudit_OneAtATime(t *testing.T) {
	n := &Node{}
	n.audit.Lock()
	err := n.verifyTopic(t.Context(), &pb.VerifyTopicRequest{}, func(*pb.VerifyTopicResponse) error { return nil })
	if api.CodeOf(err) != api.NotReady {
		t.Fatalf("%v", err)
	}
	n.audit.Unlock()
}

// B12: a line of the audit that a crash cut off, at whatever byte, swallows no later act.
func TestB12_ATornLineOfTheAuditSwallowsNoOther(t *testing.T) {
	n := &Node{cfg: Config{Data: t.TempDir()}, seams: Seams{Clock: regions.NewSteadyClock()}}
	path := filepath.Join(n.cfg.Data, actsFile)
	first, err := n.begin(t.Context(), act{Act: "purge", Topic: "orders"})
	if err != nil {
		t.Fatal(err)
	}
	n.finish(first, nil)
	whole, err := os.ReadFile(path)
	if err != nil || bytes.Count(whole, []byte("\n")) != 2 {
		t.Fatalf("%q %v", whole, err)
	}
	for cut := bytes.IndexByte(whole, '\n') + 1; cut <= len(whole); cut++ {
		if err := os.WriteFile(path, whole[:cut], 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := n.begin(t.Context(), act{Act: "delete", Topic: "orders"}); err != nil {
			t.Fatal(err)
		}
		after, err := os.ReadFile(path)
		if err != nil || !bytes.HasPrefix(after, whole[:cut]) {
			t.Fatalf("cut at %d: what was there has changed: %q %v", cut, after, err)
		}
		lines := bytes.Split(bytes.TrimSuffix(after, []byte("\n")), []byte("\n"))
		var last act
		if err := json.Unmarshal(lines[len(lines)-1], &last); err != nil || last.Act != "delete" {
			t.Fatalf("cut at %d: %q %v", cut, lines, err)
		}
	}
}

// TestR14i_AConsentToADrillCountsOnceOverARestart: which drills were armed is read from the
// audit, as long as an approval of them could still count, whatever a crash left behind.
func TestR14i_AConsentToADrillCountsOnceOverARestart(t *testing.T) {
	clock := regions.NewManualClock(time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC))
	n := &Node{cfg: Config{Data: t.TempDir()}, seams: Seams{Clock: clock}}
	path := filepath.Join(n.cfg.Data, actsFile)
	used := func() map[string]time.Time {
		past, err := drillsOf(path, clock.Now().Add(-approval.MaxLife))
		if err != nil {
			t.Fatal(err)
		}
		return past.used
	}
	if len(used()) != 0 {
		t.Error("no audit is no drill")
	}
	for _, id := range []string{"one", "two"} {
		if err := n.auditDrill(t.Context(), id, "test"); err != nil {
			t.Fatal(err)
		}
		clock.Advance(time.Hour)
	}
	whole, err := os.ReadFile(path)
	if err != nil || os.WriteFile(path, whole[:len(whole)-3], 0o600) != nil {
		t.Fatal(err)
	}
	if u := used(); len(u) != 1 || u["one"].IsZero() {
		t.Errorf("with a torn end: %v", u)
	}
	if err := os.WriteFile(path, whole, 0o600); err != nil {
		t.Fatal(err)
	}
	if u := used(); len(u) != 2 {
		t.Errorf("%v", u)
	}
	passed := clock.Now()
	if err := n.auditProof(t.Context(), "two", "abc", []drill.Measured{{Topic: "news", RTO: 3 * time.Second}}); err != nil {
		t.Fatal(err)
	}
	clock.Advance(approval.MaxLife - time.Hour)
	past, err := drillsOf(path, clock.Now())
	if err != nil || past.proof.ID != "two" || past.proof.Chain != "abc" || !past.proof.At.Equal(passed) {
		t.Errorf("evidence: %+v %v", past.proof, err)
	}
	if m := past.measured["news"]; m.Drill != "two" || m.RTO != 3*time.Second || !m.At.Equal(passed) || len(past.measured) != 1 {
		t.Errorf("measured: %+v", past.measured)
	}
	if u := used(); len(u) != 1 || u["two"].IsZero() {
		t.Errorf("a day later: %v", u)
	}
}
