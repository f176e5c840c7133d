package fabric

import (
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"domicile/api"
	"domicile/regions"
)

// After an unclean end the broker reads its blocks anew, and cuts one where it stops making
// sense to it, with all that lies behind. So, before it starts, the blocks are read here: of
// one in which something is damaged a copy is kept in the quarantine folder, from which a
// person can still take the records behind the damage. What is lost to readers is counted
// as damaged when the log opens, as ever.

// rescueBytes bounds what is kept; more is only said.
const rescueBytes = 256 << 20

const rescueDir = quarantineDir + "/blocks"

// Rescued is what was kept of damaged blocks, in this and earlier starts.
type Rescued struct {
	Files int
	Bytes int64
	Over  int // damaged blocks, found at this start, that found no room
}

// rescue reads all blocks after an unclean end. It fails when one can't be read: the broker
// must not take that for damage.
func (f *Fabric) rescue(last run) error {
	err := filepath.WalkDir(f.path(rescueDir), func(_ string, d fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(d.Name(), blockSuffix) {
			return err
		}
		info, err := d.Info()
		if err == nil {
			f.rescued.Files, f.rescued.Bytes = f.rescued.Files+1, f.rescued.Bytes+info.Size()
		}
		return err
	})
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if last.State == runClean {
		return nil
	}
	folders, err := f.folders()
	if err != nil {
		return err
	}
	for _, name := range folders {
		stream, ok := strings.CutPrefix(name, streamFolder)
		if !ok || stream == controlStream {
			continue
		}
		all, err := blocks(f.blocksDir(stream))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return f.notRescued(err)
		}
		for _, b := range all {
			if err := f.rescueBlock(stream, b); err != nil {
				return f.notRescued(err)
			}
		}
	}
	return nil
}

func (f *Fabric) notRescued(err error) error {
	return &api.Error{Code: api.StorageFailed, Op: "read blocks after an unclean end", Region: f.cfg.Region,
		Hint: "check the disk, then start again; nothing was taken for lost", Err: err}
}

func (f *Fabric) rescueBlock(stream string, b block) error {
	data, err := os.ReadFile(b.path)
	if err != nil {
		return err
	}
	places := f.damagedPlaces(data, stream)
	if places == 0 {
		return nil
	}
	dir := filepath.Join(f.path(rescueDir), stream)
	to := filepath.Join(dir, fmt.Sprintf("%d-%08x%s", b.number, crc32.Checksum(data, castagnoli), blockSuffix))
	if _, err := os.Stat(to); err == nil {
		return nil // of an earlier start
	}
	log := f.cfg.Logger.With("block", b.path, "damaged_places", places)
	free, total, err := f.cfg.Hooks.Free(f.cfg.Dir)
	if size := int64(len(data)); err != nil || f.rescued.Bytes+size > rescueBytes || free-size < reserveOf(total) {
		f.rescued.Over++
		log.Error("a block is damaged, and there is no room to keep a copy of it")
		return nil
	}
	if err := regions.MakeFolder(dir); err != nil {
		return err
	}
	if err := regions.WriteWhole(to, data); err != nil {
		return err
	}
	f.rescued.Files, f.rescued.Bytes = f.rescued.Files+1, f.rescued.Bytes+int64(len(data))
	log.Error("a block is damaged: a copy is kept before the broker cuts it", "copy", to)
	return nil
}

// damagedPlaces counts where a block does not hold what was stored. An end that was not
// written whole is none: nothing lies behind it, and nobody was told that it is there.
func (f *Fabric) damagedPlaces(block []byte, stream string) (places int) {
	subjects := [][]byte{[]byte("r." + stream), []byte("c." + stream), []byte("o." + stream)}
	for len(block) > 0 {
		r, size := frameOf(block)
		if size == 0 {
			next := nextFrame(block[1:], subjects)
			if next < 0 {
				return places
			}
			places++
			block = block[1+next:]
			continue
		}
		if r.sequence&blockMarks == 0 && r.header != nil {
			m, err := decodeFrame(r, "")
			if err != nil || f.hash.verify(m) != nil {
				places++
			}
		}
		block = block[size:]
	}
	return places
}
