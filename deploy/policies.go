package deploy

import (
	"embed"
	"fmt"
	"io/fs"
	"os"
)

// Policies is the example policy directory, under "policies".
//
//go:embed policies
var Policies embed.FS

// WritePolicies writes the example policy directory into dir, which is made if it is
// not there. It overwrites nothing.
func WritePolicies(dir string) error {
	files, err := fs.Sub(Policies, "policies")
	if err != nil {
		return fmt.Errorf("read example policies: %w", err)
	}
	if err := os.CopyFS(dir, files); err != nil {
		return fmt.Errorf("write example policies: %w", err)
	}
	return nil
}
