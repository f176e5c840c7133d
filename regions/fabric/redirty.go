package fabric

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"domicile/api"
)

// clockGrain is how much older than the clock a file's time may be.
const clockGrain = time.Second

// redirty has what an unclean end may have left unwritten written once more. A sync that
// failed says so to the process that called it and to nobody after: the kernel may have
// marked the pages clean. If that process was killed before it could leave a mark, the
// page cache still holds what it wrote, in the same boot. So every file that was written
// since the last round that is known to have gone well is written over with what it holds,
// for the sync that follows. After a reboot what is readable is on disk.
func (f *Fabric) redirty(last run) error {
	if f.cfg.Cluster != nil || last.State != runOpen || last.Boot != f.boot || last.Good == 0 {
		return nil
	}
	files, err := f.writeAnew(time.Unix(0, last.Good))
	if err != nil {
		return &api.Error{Code: api.StorageFailed, Op: "write anew after an unclean end", Hint: "check the disk, then start again", Err: err}
	}
	f.cfg.Logger.Info("what was written last before an unclean end is written once more", "files", files)
	return nil
}

// writeAnew writes over every file of the broker that was changed since then, and says how
// many there were.
func (f *Fabric) writeAnew(since time.Time) (files int, err error) {
	since = since.Add(-clockGrain)
	err = filepath.WalkDir(f.path(brokerDir), func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		info, err := d.Info()
		if err != nil || info.ModTime().Before(since) {
			return err
		}
		files++
		return writeOver(path)
	})
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return files, err
}

// writeOver writes a file's own bytes over it.
func writeOver(path string) error {
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer file.Close()
	b := make([]byte, 1<<20)
	for at := int64(0); ; {
		n, err := file.ReadAt(b, at)
		if _, werr := file.WriteAt(b[:n], at); werr != nil {
			return werr
		}
		at += int64(n)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}
