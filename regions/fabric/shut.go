package fabric

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/nats-io/nats.go/jetstream"

	"domicile/api"
)

// ErrDamaged is of a log that does not open because of what lies on the disk. It stays shut,
// and takes no other log with it.
var ErrDamaged = errors.New("the log is damaged here")

// shut is why a log is not open.
type shut struct {
	err  error
	last bool // until the next start; else the next opening tries again
}

// shutLog keeps a log from being opened in this run.
func (f *Fabric) shutLog(stream string, err error) {
	f.mu.Lock()
	f.shut[stream] = shut{err, true}
	f.mu.Unlock()
	f.cfg.Logger.Error("a log stays shut", "stream", stream, "error", err)
}

// noteOpening notes how the opening of a log went.
func (f *Fabric) noteOpening(stream string, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case f.shut[stream].last:
	case errors.Is(err, ErrDamaged):
		f.shut[stream] = shut{err: err}
	case err == nil:
		delete(f.shut, stream)
	}
}

// forgive ends what is known against a log that is deleted.
func (f *Fabric) forgive(stream string) error {
	f.mu.Lock()
	delete(f.shut, stream)
	f.mu.Unlock()
	f.identifying.Lock()
	defer f.identifying.Unlock()
	all, err := f.spoilt()
	if err != nil || !slices.Contains(all, stream) {
		return err
	}
	return writeJSON(f.path(spoiltFile), slices.DeleteFunc(all, func(s string) bool { return s == stream }))
}

// Shut is why a log did not open when it was last tried; nil: it did, or nobody tried.
func (f *Fabric) Shut(id api.LogID) error {
	stream, err := streamName(id)
	if err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.shut[stream].err
}

// damagedLog refuses a log whose data can't be gone by.
func (f *Fabric) damagedLog(id, hint string, err error) error {
	topic, _, _ := strings.Cut(id, "@")
	return &api.Error{Code: api.StorageFailed, Op: "open log", Topic: topic, Region: f.cfg.Region, Field: "log", Value: id, Hint: hint,
		Err: errors.Join(ErrDamaged, err)}
}

// goneLog refuses a log of the store's own list that has no stream.
func goneLog(id string) error {
	return refuse("logs", id, "the store's own list holds this log, but its data is gone: restore the data directory from a backup; it is never made anew", ErrDamaged)
}

// A stream that the broker must not touch has its description under another name, without
// which the broker leaves its folder alone. The next start looks at it again.
const (
	metaFile     = "meta.inf"
	hiddenSuffix = ".shut"
)

func (f *Fabric) metaOf(stream string) string {
	return filepath.Join(f.folderPath(streamFolder+stream), metaFile)
}

// hide keeps the broker from a stream, and the log shut.
func (f *Fabric) hide(stream string, why error) error {
	path := f.metaOf(stream)
	if err := os.Rename(path, path+hiddenSuffix); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return errors.Join(why, err)
	}
	f.mu.Lock()
	id := f.known[stream].Log
	f.mu.Unlock()
	f.shutLog(stream, f.damagedLog(id, "its files can't be read or put right: check the disk and the folder quarantine, then start the node again; nothing was taken for lost", why))
	return nil
}

// unhide gives a stream back to the broker, and says whether it was hidden.
func (f *Fabric) unhide(stream string) (bool, error) {
	path := f.metaOf(stream)
	err := os.Rename(path+hiddenSuffix, path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// The broker's index of a stream's blocks is written without a sync, minutes after what it
// tells of or at a clean stop, and believed where the last bytes of the last block are those
// that it names: of an empty stream, zeros.
const indexFile = "index.db"

// indexGap is how far behind the last block the number of an empty one lies.
const indexGap = 1000

// distrust has the broker read every block of every store of its own, those of its groups too,
// and take from an index only how far its numbers went. An index that does not know the last
// block is out of date to it; an empty block is removed again.
func (f *Fabric) distrust() error {
	err := filepath.WalkDir(f.path(brokerDir), func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.Name() != indexFile {
			return err
		}
		all, err := blocks(filepath.Dir(path))
		if err != nil {
			return err
		}
		number := 1
		if len(all) > 0 {
			number = all[len(all)-1].number
		}
		return os.WriteFile(filepath.Join(filepath.Dir(path), fmt.Sprint(number+indexGap)+blockSuffix), nil, 0o600)
	})
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// recount holds what the broker made of a stream against what its blocks held before it
// started. Of a region of three what lies before the broker's first was swept meanwhile.
func (f *Fabric) recount(ctx context.Context, stream, id string, s jetstream.Stream) error {
	f.mu.Lock()
	counted := f.counted[stream]
	f.mu.Unlock()
	if len(counted) == 0 {
		return nil
	}
	info, err := s.Info(ctx, jetstream.WithDeletedDetails(true))
	if err != nil {
		return fmt.Errorf("count the records of %s: %w", id, err)
	}
	var lost, first uint64
	for _, r := range counted {
		if f.cfg.Cluster != nil {
			r.From = max(r.From, info.State.FirstSeq)
		}
		if r.From > r.To {
			continue
		}
		lost += r.To - r.From + 1
		for _, have := range undeleted(r, info.State.FirstSeq, info.State.LastSeq, info.State.Deleted) {
			lost -= have.To - have.From + 1
		}
		if lost > 0 && first == 0 {
			first = r.From
		}
	}
	if lost == 0 {
		f.mu.Lock()
		delete(f.counted, stream)
		f.mu.Unlock()
		return nil
	}
	return errors.Join(f.damagedLog(id, fmt.Sprintf("the broker does not give out %d records that lie in the log's files, the first of them from its number %d on: "+
		"restore the data directory from a backup, or start the node of a region of three with serve --rejoin", lost, first), nil), f.noteSpoilt(stream))
}

// recountAll counts the logs of a solo region. What is missing keeps its log shut.
func (f *Fabric) recountAll(ctx context.Context) error {
	f.mu.Lock()
	counted, known := maps.Clone(f.counted), maps.Clone(f.known)
	f.mu.Unlock()
	for stream := range counted {
		s, err := f.broker.js.Stream(ctx, stream)
		if errors.Is(err, jetstream.ErrStreamNotFound) {
			continue // deleted, or shut already
		}
		if err == nil {
			err = f.recount(ctx, stream, known[stream].Log, s)
		}
		if err != nil && !errors.Is(err, ErrDamaged) {
			return err
		}
		if err != nil {
			f.shutLog(stream, err)
		}
	}
	return nil
}
