package council

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"domicile/api"
	"domicile/regions/placement"
)

// paper is a snapshot sink in memory.
type paper struct{ bytes.Buffer }

func (*paper) ID() string    { return "paper" }
func (*paper) Cancel() error { return nil }
func (*paper) Close() error  { return nil }

func newTestMachine(t *testing.T, dir string) *machine {
	a, err := openAudit(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = a.close() })
	return newMachine(func() time.Duration { return time.Hour }, a, slog.New(slog.DiscardHandler), placement.CommandVersion, nil)
}

// TestR14e_SnapshotBringsALateVoterForward: it has the same state, and its audit file says
// what it never saw. A line that a kill cut short is written again.
func TestR14e_SnapshotBringsALateVoterForward(t *testing.T) {
	ahead, dir := newTestMachine(t, t.TempDir()), t.TempDir()
	index := uint64(0)
	apply := func(m *machine, at uint64, c placement.Command) {
		t.Helper()
		data, err := c.Encode()
		if err != nil {
			t.Fatal(err)
		}
		if o := m.Apply(&raft.Log{Index: at, Data: data}).(outcome); o.err != nil {
			t.Fatal(o.err)
		}
	}
	declare := func(i int) placement.Command {
		return placement.Command{Verb: placement.Declare, ID: fmt.Sprint(i), Log: fmt.Sprint("L", i), Actor: "a", Reason: "r", Home: "eu-west", Expect: api.StaticEpoch("eu-west"),
			Terms: &placement.Terms{Allowed: []string{"eu-west"}, Mode: placement.Never, Isolation: placement.Accept, Digest: "d"}}
	}
	next := func(c placement.Command) { index++; apply(ahead, index, c) }
	next(placement.Command{Verb: placement.Found, ID: "f", Actor: "a", Reason: "r", Founding: &placement.Founding{Authority: "A"}})
	for i := range 1500 { // more than the state keeps of the audit
		next(declare(i))
	}
	image, err := ahead.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	var sink paper
	if err := image.Persist(&sink); err != nil {
		t.Fatal(err)
	}

	late := newTestMachine(t, dir)
	if err := late.Restore(io.NopCloser(&sink.Buffer)); err != nil {
		t.Fatal(err)
	}
	for i := 1500; i < 1510; i++ {
		next(declare(i))
		apply(late, index, declare(i))
	}
	for _, m := range []*machine{ahead, late} {
		if _, err := m.Snapshot(); err != nil {
			t.Fatal(err)
		}
	}
	a, _ := ahead.state.Snapshot()
	if b, _ := late.state.Snapshot(); !bytes.Equal(a, b) {
		t.Fatal("the late voter came to another state")
	}
	text, err := os.ReadFile(filepath.Join(dir, auditName))
	if err != nil || !strings.HasPrefix(string(text), `{"Missing":{"From":1,"To":478}}`) {
		t.Fatalf("%.200s %v", text, err)
	}
	whole, err := os.ReadFile(ahead.audit.file.Name())
	if err != nil || bytes.Count(whole, []byte("\n")) != 1511 || bytes.Contains(whole, []byte("Missing")) {
		t.Fatalf("%d lines: %v", bytes.Count(whole, []byte("\n")), err)
	}

	if err := os.WriteFile(filepath.Join(dir, auditName), append(text, `{"Number":15`...), 0o600); err != nil {
		t.Fatal(err)
	}
	again, err := openAudit(dir)
	if err != nil || again.number != 1511 || again.size != int64(len(text)) {
		t.Fatalf("%+v %v", again, err)
	}
	if err := again.close(); err != nil {
		t.Fatal(err)
	}
}

// TestFC0_AnAuditWhoseLastWriteIsHalfZerosOpens: of an append that was not synced a file system
// leaves zeros where pages were not written, also in front of ones that were.
func TestFC0_AnAuditWhoseLastWriteIsHalfZerosOpens(t *testing.T) {
	dir := t.TempDir()
	text := "{\"Number\":1}\n{\"Number\":2}\n" + string(make([]byte, 100)) + "\"}\n{\"Number\":5}\n"
	if err := os.WriteFile(filepath.Join(dir, auditName), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	a, err := openAudit(dir)
	if err != nil || a.number != 2 {
		t.Fatalf("%+v: %v", a, err)
	}
	defer a.file.Close()
	if left, err := os.ReadFile(filepath.Join(dir, auditName)); err != nil || string(left) != text[:26] {
		t.Fatalf("left %q: %v", left, err)
	}
}
