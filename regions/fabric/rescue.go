package fabric

import (
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"domicile/api"
	"domicile/regions"
)

// After an unclean end the broker reads its blocks anew, and cuts one where it stops making
// sense to it, with all that lies behind. So, before it starts, the blocks are read here. Of
// one in which something is damaged a copy is kept in the quarantine folder, and what can't be
// read is left out, so that the broker reads on behind it. What is good is counted, and held
// against what the broker has made of it before anybody opens the log.

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
	folders, err := f.folders()
	if err != nil {
		return err
	}
	for _, name := range folders {
		stream, ok := strings.CutPrefix(name, streamFolder)
		if !ok {
			if err := f.rescueGroup(name, last); err != nil {
				return f.notRescued(err)
			}
			continue
		}
		was, err := f.unhide(stream)
		if err == nil && (was || last.State != runClean) {
			err = f.rescueStream(stream)
		}
		if err != nil && f.cfg.Cluster == nil {
			err = f.hide(stream, f.notRescued(err))
		}
		if err != nil {
			return f.notRescued(err)
		}
	}
	return nil
}

// rescueGroup notes a group that would forget what it agreed on, as the broker cuts its blocks
// at the first damage too.
func (f *Fabric) rescueGroup(folder string, last run) error {
	if last.State == runClean || f.cfg.Cluster == nil {
		return nil
	}
	all, err := blocks(filepath.Join(f.folderPath(folder), "msgs"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, b := range all {
		s, err := readBlock(b, filepath.Base(folder), 0, nil)
		if err == nil && s.mended != nil {
			f.cfg.Logger.Error("what a group of replicas agreed on is damaged on this disk", "block", b.path)
			err = f.noteSpoilt(folder)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// rescueStream counts what is good in a stream's blocks.
func (f *Fabric) rescueStream(stream string) error {
	all, err := blocks(f.blocksDir(stream))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	var good []Range
	var gone []uint64
	last := uint64(0)
	for _, b := range all {
		s, err := f.rescueBlock(stream, b, last)
		if err != nil {
			return err
		}
		last = s.last
		good, gone = append(good, s.good...), append(gone, s.gone...)
	}
	slices.Sort(gone)
	var kept []Range
	for _, r := range good {
		kept = append(kept, undeleted(r, r.From, r.To, gone)...)
	}
	f.counted[stream] = kept
	return nil
}

func (f *Fabric) notRescued(err error) error {
	return &api.Error{Code: api.StorageFailed, Op: "read blocks after an unclean end", Region: f.cfg.Region,
		Hint: "check the disk, then start again; nothing was taken for lost", Err: err}
}

// rescueBlock reads one block, and mends it.
func (f *Fabric) rescueBlock(stream string, b block, last uint64) (survey, error) {
	intact := func(r raw) bool {
		m, err := decodeFrame(r, "")
		return err == nil && f.hash.verify(m) == nil
	}
	if stream == controlStream {
		intact = nil // it has no checksums of ours
	}
	s, err := readBlock(b, stream, last, intact)
	if err != nil {
		return s, err
	}
	if s.places == 0 {
		return s, nil
	}
	if err := f.keepBlock(stream, b, s); err != nil || s.mended == nil {
		return s, err
	}
	if f.cfg.Cluster != nil {
		if err := f.noteSpoilt(stream); err != nil {
			return s, err
		}
	}
	return s, regions.WriteWhole(b.path, s.mended)
}

// keepBlock puts a copy of a damaged block aside.
func (f *Fabric) keepBlock(stream string, b block, s survey) error {
	data := s.block
	dir := filepath.Join(f.path(rescueDir), stream)
	to := filepath.Join(dir, fmt.Sprintf("%d-%08x%s", b.number, crc32.Checksum(data, castagnoli), blockSuffix))
	if _, err := os.Stat(to); err == nil {
		return nil // of an earlier start
	}
	log := f.cfg.Logger.With("block", b.path, "damaged_places", s.places)
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
	log.Error("a block is damaged: a copy is kept of it as it is", "copy", to)
	return nil
}
