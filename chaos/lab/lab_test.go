package lab_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"domicile/chaos/lab"
	"domicile/regions"
	"domicile/regions/fabric/fabrictest"
	"domicile/regions/link"
)

func TestMain(m *testing.M) { fabrictest.VerifyTestMain(m) }

// quick is the fastest pace that nodes support.
const quick = regions.Pace(0.25)

func open(t *testing.T, o lab.Options) *lab.Lab {
	t.Helper()
	o.Parent = t.TempDir()
	if o.Pace == 0 {
		o.Pace = quick
	}
	l, err := lab.Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(context.Background()); err != nil {
			t.Error(err)
		}
		if left, err := os.ReadDir(o.Parent); err != nil || len(left) != 0 {
			t.Errorf("the lab left %v, %v", left, err)
		}
	})
	if err := l.Linked(t.Context()); err != nil {
		t.Fatal(err)
	}
	return l
}

func TestR14a_LabCutsHealsAndRestarts(t *testing.T) {
	l := open(t, lab.Options{})
	ctx := t.Context()
	if err := l.CaughtUp(ctx, time.Now(), 10*time.Second); err != nil {
		t.Fatal(err)
	}
	if err := l.Cut("eu-west", link.BlackHole, time.Minute); err != nil {
		t.Fatal(err)
	}
	if err := lab.Poll(ctx, 10*time.Second, func() error { return down(ctx, l, "us-east", "eu-west") }); err != nil {
		t.Fatal(err)
	}
	if err := l.CaughtUp(ctx, time.Now(), 300*time.Millisecond); err == nil {
		t.Error("a copy is complete up to now although its home is cut off")
	}
	l.Heal()
	if err := l.Linked(ctx); err != nil {
		t.Fatal(err)
	}
	before := l.Region("us-east").Node().Link()
	if err := l.Region("us-east").Restart(ctx); err != nil {
		t.Fatal(err)
	}
	if after := l.Region("us-east").Node().Link(); after != before {
		t.Errorf("the address moved from %s to %s", before, after)
	}
	if err := l.Linked(ctx); err != nil {
		t.Fatal(err)
	}
	if err := l.CaughtUp(ctx, time.Now(), 10*time.Second); err != nil {
		t.Fatal(err)
	}
}

type notDown struct{ who, peer string }

func (n notDown) Error() string { return n.who + " sees the link to " + n.peer + " up" }

func down(ctx context.Context, l *lab.Lab, who, peer string) error {
	page, err := l.Region(who).Metrics(ctx)
	if err != nil {
		return err
	}
	for _, m := range page {
		if m.Name == lab.LinkUp && m.Labels["peer"] == peer && m.Value == 0 {
			return nil
		}
	}
	return notDown{who, peer}
}

// Every file a region writes lies in its own directory, its log included.
func TestR14b_OneDirectoryPerRegion(t *testing.T) {
	l := open(t, lab.Options{})
	for _, r := range l.Regions() {
		info, err := os.Stat(filepath.Join(r.Dir, "node.log"))
		if err != nil || info.Size() == 0 {
			t.Errorf("%s writes no log: %v", r.Name, err)
		}
	}
}

func TestLabRefusesABadManifest(t *testing.T) {
	parent := t.TempDir()
	if _, err := lab.Open(t.Context(), lab.Options{Parent: parent, Manifest: []byte("version: 2")}); err == nil {
		t.Fatal("opened")
	}
	if left, _ := os.ReadDir(parent); len(left) != 0 {
		t.Errorf("left %v", left)
	}
}
