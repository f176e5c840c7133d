package regions

import (
	"errors"
	"os"
	"path/filepath"
)

// WriteWhole puts a file in place whole or not at all, and on disk, whenever the process
// ends: what is not whole yet has ".new" behind its name. Mode 0600. One at a time may
// write a path.
func WriteWhole(path string, data []byte) error {
	next := path + ".new"
	f, err := os.OpenFile(next, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err = errors.Join(err, f.Sync(), f.Close()); err == nil {
		err = os.Rename(next, path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(next))
	}
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}
