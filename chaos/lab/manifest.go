package lab

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// manifest is the region's own federation.yaml.
func (r *Region) manifest() string { return filepath.Join(r.Dir, "federation.yaml") }

// Declare replaces text in the region's federation.yaml. Its node carries that out when
// it is told to reload, or at its next start; the other regions' files stay.
func (r *Region) Declare(old, text string) error {
	data, err := os.ReadFile(r.manifest())
	if err != nil {
		return err
	}
	if !strings.Contains(string(data), old) {
		return fmt.Errorf("the manifest of %s has no %q", r.Name, old)
	}
	return os.WriteFile(r.manifest(), []byte(strings.Replace(string(data), old, text, 1)), 0o600)
}
