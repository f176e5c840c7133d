package node

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"domicile/chaos/canary"
)

// TestR14i_TheLogOfAProcessIsSearchedWhereItIsAFile: a pipe can't be read back, and is said
// not to have been; what goes nowhere holds nothing.
func TestR14i_TheLogOfAProcessIsSearchedWhereItIsAFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "node.log")
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	in, out, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	defer out.Close()
	null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	for _, c := range []struct {
		stdout, stderr *os.File
		files, beyond  []string
	}{
		{null, file, []string{path}, nil},
		{file, file, []string{path}, nil},
		{null, out, nil, []string{"standard error: it is no file that can be read back"}},
		{out, file, []string{path}, []string{"standard output: it is no file that can be read back"}},
	} {
		if files, beyond := outputs(c.stdout, c.stderr); !slices.Equal(files, c.files) || !slices.Equal(beyond, c.beyond) {
			t.Errorf("%v %v, want %v %v", files, beyond, c.files, c.beyond)
		}
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if files, beyond := outputs(null, file); len(files) != 0 || len(beyond) != 1 || !strings.Contains(beyond[0], "not there any more") {
		t.Errorf("a file that was removed: %v %v", files, beyond)
	}
}

// A mark in the data folder, in whatever form, is counted.
func TestR14i_ANodeFindsAMarkInItsFiles(t *testing.T) {
	mark := canary.Plain()
	n := &Node{cfg: Config{Data: t.TempDir(), Region: "eu-west"}}
	if err := os.WriteFile(filepath.Join(n.cfg.Data, "log"), []byte("a "+mark+" b"), 0o600); err != nil {
		t.Fatal(err)
	}
	found, err := n.searchFiles(t.Context(), []string{mark, canary.Plain()}, time.Time{})
	if err != nil || found.Files != 1 || found.Marks[0] != 1 || found.Marks[1] != 0 {
		t.Errorf("%+v %v", found, err)
	}
	n.cfg.Data = filepath.Join(n.cfg.Data, "gone")
	if _, err := n.searchFiles(t.Context(), []string{mark}, time.Time{}); err == nil {
		t.Error("a folder that is not there passed as clean")
	}
}
