package doctor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"domicile/regions/fabric"
	"domicile/regions/fabric/fabrictest"
)

const modeKey, dirKey = "DOCTOR_TEST_MODE", "DOCTOR_TEST_DIR"

func TestMain(m *testing.M) {
	act := map[string]func() error{
		"write": func() error { return Write(context.Background(), os.Getenv(dirKey), os.Stdout) },
		"read":  func() error { return Read(context.Background(), os.Getenv(dirKey), os.Stdout) },
	}[os.Getenv(modeKey)]
	if act == nil {
		fabrictest.VerifyTestMain(m)
		return
	}
	if err := act(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func self(ctx context.Context, mode, dir string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, os.Args[0])
	cmd.Env = append(os.Environ(), modeKey+"="+mode, dirKey+"="+dir)
	return cmd
}

func find(t *testing.T, c Certificate, name string) Check {
	t.Helper()
	for _, k := range c.Checks {
		if k.Name == name {
			return k
		}
	}
	t.Fatalf("no check %q in %+v", name, c)
	return Check{}
}

// RA1: the examination holds on a sound disk, says what it did not look at, and leaves
// nothing behind.
func TestRA1_DoctorOnThisDisk(t *testing.T) {
	folder := t.TempDir()
	c, err := Durability(t.Context(), Options{Folder: folder, For: time.Second, Domicile: "test", Self: self})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%+v %+v", c, c.Speed)
	for _, name := range []string{"sync before ack", "kill -9"} {
		if k := find(t, c, name); k.Result != Passed || k.Acked == 0 || k.Lost != 0 {
			t.Errorf("%+v", k)
		}
	}
	if k := find(t, c, "power cut"); k.Result == Failed || k.Result == NotChecked && k.Why == "" || k.Result == Passed && k.Acked < 2000 {
		t.Errorf("%+v", k)
	}
	if c.Machine.FileSystem == "" || c.Versions.Kernel == "" || len(c.Versions.Binary) != 64 || c.Host == "" || len(c.NotProven) < 3 || c.Speed == nil || c.Speed.SyncP50 <= 0 {
		t.Errorf("the certificate leaves out what it stands on: %+v", c)
	}
	if left, err := os.ReadDir(folder); err != nil || len(left) != 0 {
		t.Errorf("left %v, %v", left, err)
	}
}

// A store that acknowledges before its sync is found, and so is one that can't sync.
func TestRA1_DoctorSeesAMissingSync(t *testing.T) {
	r := &recorder{}
	hooks := r.hooks(fabric.Syncfs)
	hooks.NoBarrier = true
	f, log, err := open(t.Context(), t.TempDir(), hooks)
	if err != nil {
		t.Fatal(err)
	}
	loading, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	if err := errors.Join(load(loading, log, r.acked), f.Close(context.WithoutCancel(t.Context()))); err != nil {
		t.Fatal(err)
	}
	if len(r.acks) == 0 || r.early == 0 {
		t.Errorf("%d acknowledged without a sync, %d of them seen", len(r.acks), r.early)
	}
	broken := func(*os.File) error { return errors.New("input/output error") }
	if c, _ := watchSyncs(t.Context(), t.TempDir(), time.Second, broken); c.Result != Failed || c.Why == "" {
		t.Errorf("a disk that can't sync: %+v", c)
	}
}

func TestRA1_DoctorCountsWhatIsMissing(t *testing.T) {
	w := &writer{acked: []string{"doctor-1", "doctor-2", "doctor-3"}}
	if lost := w.missing(map[string]bool{"doctor-2": true}); lost != 2 {
		t.Errorf("%d missing", lost)
	}
}

func TestRA1_DoctorReadsMounts(t *testing.T) {
	for _, c := range []struct {
		lines, folder, mount string
		want                 Result
	}{
		{"1 0 8:1 / / rw - ext4 /dev/sda1 rw\n2 1 8:2 / /var rw - xfs /dev/sdb rw", "/var/lib/x", "/var", Passed},
		{"1 0 8:1 / / rw - ext4 /dev/sda1 rw,nobarrier", "/var", "/", Failed},
		{"1 0 8:1 / / rw - ext4 /dev/sda1 rw\n2 1 0:5 / /var rw - tmpfs tmpfs rw", "/var", "/var", Failed},
		{"1 0 8:1 / / rw - ext4 /dev/sda1 rw\n2 1 0:5 / /va rw - tmpfs tmpfs rw", "/var", "/", Passed},
		{"1 0 8:1 / / rw - ext4 /dev/sda1 rw\n2 1 0:5 / /var rw - nfs4 host:/x rw", "/var", "/var", NotChecked},
		{"1 0 0:9 / / rw - overlay overlay rw", "/var", "/", NotChecked},
		{"torn", "/var", "", NotChecked},
	} {
		var m Machine
		for _, line := range strings.Split(c.lines, "\n") {
			m.take(line, c.folder)
		}
		if k := m.check(); k.Result != c.want || m.Mount != c.mount {
			t.Errorf("%q: mounted at %q, %+v", c.lines, m.Mount, k)
		}
	}
}

// A machine that is too slow for a check has not failed it, and a check that stands on no record
// says nothing of lost ones; memory is never called a disk that outlives a cut.
func TestRA1_DoctorClaimsNoMoreThanItSaw(t *testing.T) {
	var slow, broken Check
	slow.fail(fmt.Errorf("write: %w", errSlow("2 of 1000 records")))
	broken.fail(errors.New("input/output error"))
	if slow.Result != NotChecked || slow.Why == "" || broken.Result != Failed || broken.Why == "" {
		t.Errorf("slow: %+v, broken: %+v", slow, broken)
	}
	if c := powerCut(t.Context(), t.TempDir(), &Machine{FileSystem: "tmpfs"}, self); c.Result != NotChecked || c.Why == "" {
		t.Errorf("a cut in memory: %+v", c)
	}
	for c, want := range map[Check]string{
		{Name: "a", Claim: "b", Result: NotChecked, Why: "c"}:      `{"name":"a","claim":"b","result":"not checked","why":"c"}`,
		{Name: "a", Claim: "b", Result: Passed, Acked: 7}:          `{"name":"a","claim":"b","result":"passed","acked":7,"lost":0}`,
		{Name: "a", Claim: "b", Result: Failed, Acked: 7, Lost: 7}: `{"name":"a","claim":"b","result":"failed","acked":7,"lost":7}`,
	} {
		if text, err := json.Marshal(c); err != nil || string(text) != want {
			t.Errorf("%s %v", text, err)
		}
	}
}

func TestVerdict(t *testing.T) {
	p, n, f := Check{Result: Passed}, Check{Result: NotChecked}, Check{Result: Failed}
	for want, checks := range map[Result][]Check{Passed: {p, p}, NotChecked: {p, n}, Failed: {n, f, p}} {
		if got := verdict(checks); got != want {
			t.Errorf("%v: %s, want %s", checks, got, want)
		}
	}
}
