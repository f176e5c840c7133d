package fabric

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"domicile/api"
)

// Health is what the region can say of its own store.
type Health struct {
	Failed bool      // no append is taken until the process is started again
	Reason string    // why; no record content
	Since  time.Time // of the failure
	Logs   []LogHealth
	Usage  Usage
}

// LogHealth is one log of the store's own list, also when it is not open.
type LogHealth struct {
	Log       string // written form
	Kind      string // "home" or "copy"
	Open      bool
	Bytes     uint64    // as the broker counts them; 0 when not open
	MaxBytes  int64     // 0 when not open
	FullSince time.Time // zero: not full
	Stopped   string    // why the log takes nothing although the store works
	Damaged   uint64    // sequences found in this run whose records are damaged or missing
	Damage    []Range   // where, the first ten
}

// Usage is what the store uses of its bounds.
type Usage struct {
	Bytes    uint64 // of all streams, as the broker counts them
	MaxStore int64
	Held     int64 // bytes of appends not yet decided
	IDs      int   // in the dedupe indexes
}

type failure struct {
	reason string
	since  time.Time
}

// Health reads the present state; it does not touch the disk.
func (f *Fabric) Health() Health {
	h := Health{Usage: Usage{MaxStore: f.cfg.MaxStore, Held: f.held.Load(), IDs: f.indexes.count()}}
	if x := f.failure.Load(); x != nil {
		h.Failed, h.Reason, h.Since = true, x.reason, x.since
	}
	f.mu.Lock()
	known, logs := maps.Clone(f.known), maps.Clone(f.logs)
	f.mu.Unlock()
	for stream, e := range known {
		if e.State != "" {
			continue
		}
		lh := LogHealth{Log: e.Log, Kind: e.Kind}
		if l := logs[stream]; l != nil {
			l.describe(&lh)
			h.Usage.Bytes += lh.Bytes
		}
		h.Logs = append(h.Logs, lh)
	}
	slices.SortFunc(h.Logs, func(a, b LogHealth) int { return cmp.Compare(a.Log, b.Log) })
	return h
}

func (f *Fabric) storageFailed() error {
	x := f.failure.Load()
	if x == nil {
		return nil
	}
	return &api.Error{Code: api.StorageFailed, Op: "append", Region: f.cfg.Region, For: max(0, f.cfg.Clock.Now().Sub(x.since)),
		Hint: "the store stopped taking records: check the disk, then start the region's node again; " + x.reason}
}

func (f *Fabric) syncRound(dir *os.File) error {
	if f.cfg.Hooks.NoBarrier {
		return nil
	}
	return f.cfg.Hooks.Sync(dir)
}

// failSync: a failed sync is final for this run. The kernel may since have marked the
// pages clean, so the mark that tells the next start goes first.
func (f *Fabric) failSync(err error) {
	f.mu.Lock()
	logs := maps.Clone(f.logs)
	clean := maps.Clone(f.clean)
	f.mu.Unlock()
	for stream, l := range logs {
		clean[stream] = l.durableBroker()
	}
	mark := run{State: runFailed, Boot: f.boot, Clean: clean}
	e := f.writeRun(mark)
	if e != nil {
		// A disk without room for another file still takes the mark in place of the old.
		e = errors.Join(e, overwriteJSON(filepath.Join(f.cfg.Dir, runFile), mark))
	}
	if e != nil {
		f.cfg.Logger.Error("mark of the failed sync is not on disk", "error", e)
	}
	f.fail(fmt.Sprintf("a sync of the data volume failed: %v", err))
}

// fail fences the store: whatever is not released is unknown, and nothing more is
// taken in this run.
func (f *Fabric) fail(reason string) {
	if !f.failure.CompareAndSwap(nil, &failure{reason: reason, since: f.cfg.Clock.Now()}) {
		return
	}
	close(f.fenced)
	f.cfg.Logger.Error("the store takes no more records in this run", "reason", reason)
	f.mu.Lock()
	logs := maps.Clone(f.logs)
	f.mu.Unlock()
	for _, l := range logs {
		l.abandon()
	}
}
