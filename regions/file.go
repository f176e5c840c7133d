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
	return SyncFolder(filepath.Dir(path))
}

// SyncFolder has what was put into a folder, or taken out of it, on disk when it returns.
func SyncFolder(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

// MakeFolder makes a folder, and those above it that are missing, and has them on disk
// when it returns: without that a power cut takes the folder and all that was synced in
// it. Mode 0700.
func MakeFolder(path string) error {
	if at, err := os.Stat(path); err == nil && at.IsDir() {
		return SyncFolder(filepath.Dir(path))
	}
	if up := filepath.Dir(path); up != path {
		if _, err := os.Stat(up); errors.Is(err, os.ErrNotExist) {
			if err := MakeFolder(up); err != nil {
				return err
			}
		}
	}
	if err := os.Mkdir(path, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	return SyncFolder(filepath.Dir(path))
}
