package fabrictest

import (
	"crypto/sha256"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

// TreeSum is a digest over every path and file of a folder, but for the lock: two are alike
// when nothing in it was touched.
func TreeSum(t testing.TB, dir string) [sha256.Size]byte {
	t.Helper()
	h := sha256.New()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.Name() == "lock" {
			return err
		}
		fmt.Fprintln(h, path)
		if d.IsDir() {
			return nil
		}
		b, err := os.ReadFile(path)
		h.Write(b)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return [sha256.Size]byte(h.Sum(nil))
}
