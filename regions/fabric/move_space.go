package fabric

import (
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"domicile/api"
	"domicile/regions"
)

// checkSpace refuses to begin what would not end: each directory takes the bytes, an
// eighth of them and 64 MiB, twice that where the broker keeps a log of its own for three
// nodes, those on one volume together. A directory that an earlier
// run began to fill is not judged again.
func (m *Move) checkSpace(bytes int64) error {
	each := uint64(bytes) + uint64(bytes)/8 + 64<<20
	if len(m.to) > 1 {
		each *= 2
	}
	need := map[uint64]uint64{} // by device
	for i, dir := range m.dirs {
		if most := m.to[i].MaxStore; uint64(most) < each {
			return refuse("max_store", regions.Size(most).String(), "the store that moves needs "+mebibytes(each)+": raise it in node.yaml", nil)
		}
		if _, err := os.Stat(filepath.Join(dir, identityFile)); err == nil {
			continue
		}
		at := nearest(dir)
		var file unix.Stat_t
		var volume unix.Statfs_t
		if err := unix.Stat(at, &file); err != nil {
			return refuse("dir", at, "the directory is not readable", err)
		}
		if err := unix.Statfs(at, &volume); err != nil {
			return refuse("dir", at, "the volume does not say how much is free", err)
		}
		need[file.Dev] += each
		if free := volume.Bavail * uint64(volume.Bsize); free < need[file.Dev] {
			return &api.Error{Code: api.StorageFull, Op: "move store", Field: "dir", Value: dir,
				Hint: "the volume has " + mebibytes(free) + " free, the move needs " + mebibytes(need[file.Dev])}
		}
	}
	return nil
}

// mebibytes is a size in words, rounded down.
func mebibytes(n uint64) string { return fmt.Sprintf("%dMiB", n>>20) }

// nearest is dir, or the closest folder above it that exists.
func nearest(dir string) string {
	for {
		if _, err := os.Stat(dir); err == nil || dir == filepath.Dir(dir) {
			return dir
		}
		dir = filepath.Dir(dir)
	}
}
