package opa_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"domicile/api"
	"domicile/policy/opa"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func write(t *testing.T, dir, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func wantRefused(t *testing.T, dir, want string) {
	t.Helper()
	_, f := small(t)
	_, err := opa.Load(context.Background(), dir, f)
	if api.CodeOf(err) != api.PolicyError || !strings.Contains(err.Error(), want) {
		t.Errorf("Load: %v, want %q", err, want)
	}
	if _, err := opa.Digest(dir); api.CodeOf(err) != api.PolicyError {
		t.Errorf("Digest: %v", err)
	}
}

func TestRT3_DirectoryIsBounded(t *testing.T) {
	t.Run("10 MB of data", func(t *testing.T) {
		dir, _ := small(t)
		write(t, dir, "rules/big.rego", "package residency.rules.orders\n# "+strings.Repeat("x", 10<<20))
		wantRefused(t, dir, "bytes\": too much policy data")
	})
	t.Run("in many small files", func(t *testing.T) {
		dir, _ := small(t)
		for i := range 5 {
			write(t, dir, fmt.Sprintf("rules/r%d.rego", i), "package residency.rules.orders\n# "+strings.Repeat("x", 1<<20))
		}
		wantRefused(t, dir, "too much policy data")
	})
	t.Run("too many files", func(t *testing.T) {
		dir, _ := small(t)
		for i := range opa.MaxFiles {
			write(t, dir, fmt.Sprintf("rules/r%d.rego", i), "package residency.rules.orders\n")
		}
		wantRefused(t, dir, "at most 500 files")
	})
}

func TestLoad_RefusesWhatIsNoPolicyDirectory(t *testing.T) {
	t.Run("missing", func(t *testing.T) { wantRefused(t, filepath.Join(t.TempDir(), "none"), "catalog.yaml") })
	t.Run("empty", func(t *testing.T) { wantRefused(t, t.TempDir(), "no catalog.yaml") })
	t.Run("a file", func(t *testing.T) {
		dir := t.TempDir()
		write(t, dir, "f", "x")
		wantRefused(t, filepath.Join(dir, "f"), "read policy directory")
	})
	for _, name := range []string{"notes.txt", "rules/orders.reg", "rules/orders.rego~", "rules/orders_test.rego", "tests/orders.rego", "data.json"} {
		t.Run("odd file "+name, func(t *testing.T) {
			dir, _ := small(t)
			write(t, dir, name, "x")
			wantRefused(t, dir, "move")
		})
	}
	t.Run("folder in rules", func(t *testing.T) {
		dir, _ := small(t)
		if err := os.Mkdir(filepath.Join(dir, "rules", "more.rego"), 0o700); err != nil {
			t.Fatal(err)
		}
		wantRefused(t, dir, "only regular files")
	})
	t.Run("named pipe", func(t *testing.T) {
		dir, _ := small(t)
		if err := unix.Mkfifo(filepath.Join(dir, "rules", "pipe.rego"), 0o600); err != nil {
			t.Fatal(err)
		}
		wantRefused(t, dir, "only regular files")
	})
	t.Run("link out of it", func(t *testing.T) {
		dir, _ := small(t)
		outside := filepath.Join(t.TempDir(), "x.rego")
		if err := os.WriteFile(outside, []byte("package residency.rules.orders\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(outside, filepath.Join(dir, "rules", "x.rego")); err != nil {
			t.Fatal(err)
		}
		wantRefused(t, dir, "links must stay inside")
	})
	t.Run("no rules", func(t *testing.T) {
		dir, f := small(t)
		if err := os.RemoveAll(filepath.Join(dir, "rules")); err != nil {
			t.Fatal(err)
		}
		if _, err := opa.Load(context.Background(), dir, f); api.CodeOf(err) != api.PolicyError {
			t.Errorf("got %v", err)
		}
	})
}

func TestLoad_TakesLinksAndNotesInside(t *testing.T) {
	dir, f := small(t)
	if err := os.Rename(filepath.Join(dir, "rules", "orders.rego"), filepath.Join(dir, "rules", "..v1")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("..v1", filepath.Join(dir, "rules", "orders.rego")); err != nil {
		t.Fatal(err)
	}
	write(t, dir, "README.md", "notes")
	write(t, dir, ".swap", "x")
	if _, err := opa.Load(context.Background(), dir, f); err != nil {
		t.Fatal(err)
	}
}

func TestDigest_IsTheLoadedOne(t *testing.T) {
	dir, f := small(t)
	seen := map[string]string{}
	digest := func(what string) {
		d, err := opa.Digest(dir)
		if err != nil {
			t.Fatal(err)
		}
		if before, ok := seen[d]; ok {
			t.Errorf("%s: the digest is that of %s", what, before)
		}
		seen[d] = what
	}
	digest("the example")
	p, err := opa.Load(context.Background(), dir, f)
	if err != nil {
		t.Fatal(err)
	}
	if seen[p.Generation.Digest] == "" || p.Report.Digest != p.Generation.Digest {
		t.Errorf("loaded as %s", p.Generation.Digest)
	}
	write(t, dir, "rules/more.rego", "package residency.rules.orders\n")
	digest("a rule file more")
	write(t, dir, "rules/more.rego", "package residency.rules.orders\n\n")
	digest("a line more")
	if err := os.Rename(filepath.Join(dir, "rules", "more.rego"), filepath.Join(dir, "rules", "other.rego")); err != nil {
		t.Fatal(err)
	}
	digest("another name")
	write(t, dir, "tests/more_test.rego", "package residency.tests.more\n")
	digest("a test more")
	write(t, dir, "catalog.yaml", "serial: 2\n")
	digest("another catalog")
}
