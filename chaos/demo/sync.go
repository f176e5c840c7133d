package demo

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"sync"
	"time"

	"domicile/api"
	"domicile/chaos/ledger"
	"domicile/regions/fabric"
)

// recorder watches a region's disk on its own. At each sync of the volume it first
// reads what the broker has written to its block files, then lets the real sync run:
// the ids it read are on disk when that returns. It knows nothing of which appends
// the barrier meant to cover. It is safe for concurrent use.
type recorder struct {
	now func() time.Time

	mu       sync.Mutex
	read     map[string]int64 // per block file, how far it was read
	synced   map[string]time.Time
	released map[string][]release // per log, in order
	rounds   int
}

type release struct {
	sequence uint64
	at       time.Time
}

func newRecorder(now func() time.Time) *recorder {
	return &recorder{now: now, read: map[string]int64{}, synced: map[string]time.Time{}, released: map[string][]release{}}
}

// idLine is how the store's format marks an event id.
const idLine = "Domicile-Id: "

// overlap is how far back a block file is read again, so that an id that was only
// half there the last time is seen whole.
const overlap = 512

// sync stands in for the fabric's call of the real sync.
func (r *recorder) sync(dir *os.File) error {
	ids, err := r.look(dir.Name())
	if err != nil {
		return fmt.Errorf("sync recorder: %w", err)
	}
	if err := fabric.Syncfs(dir); err != nil {
		return err
	}
	at := r.now()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.rounds++
	for _, id := range ids {
		if _, ok := r.synced[id]; !ok {
			r.synced[id] = at
		}
	}
	return nil
}

// look reads what block files have grown by.
func (r *recorder) look(dir string) ([]string, error) {
	var ids []string
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".blk") {
			if os.IsNotExist(err) {
				return nil // a block that retention took meanwhile
			}
			return err
		}
		grown, err := r.grown(path)
		ids = append(ids, idsIn(grown)...)
		return err
	})
	return ids, err
}

func (r *recorder) grown(path string) ([]byte, error) {
	f, err := os.Open(path)
	if os.IsNotExist(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	from := r.read[path]
	if info.Size() < from {
		from = 0 // rewritten
	}
	r.read[path] = info.Size()
	r.mu.Unlock()
	from = max(0, from-overlap)
	b := make([]byte, info.Size()-from)
	n, err := f.ReadAt(b, from)
	if n == len(b) {
		err = nil
	}
	return b[:n], err
}

func idsIn(b []byte) []string {
	var ids []string
	for {
		_, rest, ok := bytes.Cut(b, []byte(idLine))
		if !ok {
			return ids
		}
		id, _, ok := bytes.Cut(rest, []byte("\r\n"))
		if !ok {
			return ids
		}
		if len(id) <= api.MaxID {
			ids = append(ids, string(id))
		}
		b = rest
	}
}

// releasing is told that acks up to sequence are about to go out.
func (r *recorder) releasing(log api.LogID, sequence uint64) {
	at := r.now()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.released[log.String()] = append(r.released[log.String()], release{sequence, at})
}

// judge says how many acks of this region went out with the record not known to be
// on disk, of how many.
func (r *recorder) judge(region string, entries []ledger.Entry) (early, acks int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range entries {
		e := &entries[i]
		if e.Outcome != ledger.Acked || e.Duplicate || e.Region != region {
			continue
		}
		acks++
		at, ok := r.synced[e.ID]
		if !ok || at.After(e.Ended) || at.After(r.releaseOf(e)) {
			early++
		}
	}
	return early, acks
}

// releaseOf is when the fabric let an ack go; the producer's own time if it never
// said so. Releases of a log come in the order of its sequences.
func (r *recorder) releaseOf(e *ledger.Entry) time.Time {
	releases := r.released[e.Log]
	i := sort.Search(len(releases), func(i int) bool { return releases[i].sequence >= e.Sequence })
	if i == len(releases) {
		return e.Ended
	}
	return releases[i].at
}
