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
	Failed bool          // no append is taken until the process is started again
	Reason string        // why; no record content
	Since  time.Time     // of the failure
	Passes bool          // the failure ends by itself, once the disk takes writes again
	Sync   time.Duration // how long the sync that runs now has lasted; 0: none runs
	Volume Volume
	Logs   []LogHealth
	Usage  Usage
	Kept   Rescued // copies of damaged blocks, in the folder quarantine of the data directory

	Mode       string         // "solo" or "quorum"
	Durability api.Durability // what an ack of a record that was synced means
	Members    []Member       // of a quorum region
	Quorum     bool           // a majority of the nodes is heard; always so of a solo region
	Seat       Seat
}

// LogHealth is one log of the store's own list, also when it is not open.
type LogHealth struct {
	Log       string // written form
	Kind      string // "home" or "copy"
	Open      bool
	Bytes     uint64    // as the broker counts them; 0 when not open
	MaxBytes  int64     // 0 when not open
	FullSince time.Time // zero: not full
	Shut      string    // why the log does not open; "": it does, or nobody tried
	Stopped   string    // why the log takes nothing although the store works
	Unread    string    // why some of its files could not be read, when last tried; "": all could
	Damaged   uint64    // sequences found in this run whose records are damaged or missing; of more than 1,000 rows, with what lies between some
	Damage    []Range   // where, the first ten
	// Overdue is by how much the oldest record has outlived its age, by the node's clock, and
	// is kept because that is in doubt.
	Overdue time.Duration
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
	passes bool
}

// Health reads the present state; it does not touch the disk.
func (f *Fabric) Health() Health {
	seat, _ := f.Seat()
	h := Health{Mode: f.cfg.mode(), Durability: f.cfg.durability(), Members: f.Members(), Quorum: f.suspension() == nil, Seat: seat, Kept: f.rescued, Usage: Usage{MaxStore: f.cfg.MaxStore, Held: f.held.Load(), IDs: f.indexes.count()}}
	if x := f.failure.Load(); x != nil {
		h.Failed, h.Reason, h.Since, h.Passes = true, x.reason, x.since, x.passes
	}
	h.Volume, h.Sync = f.volume(), f.barrier.lasting()
	f.mu.Lock()
	known, logs, closed := maps.Clone(f.known), maps.Clone(f.logs), maps.Clone(f.shut)
	f.mu.Unlock()
	for stream, e := range known {
		if e.State != "" {
			continue
		}
		lh := LogHealth{Log: e.Log, Kind: e.Kind}
		if s := closed[stream]; s.err != nil {
			lh.Shut = plain(s.err)
		}
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
	e := &api.Error{Code: api.StorageFailed, Op: "append", Region: f.cfg.Region, For: max(0, f.cfg.Clock.Now().Sub(x.since)),
		Hint: "the store stopped taking records: check the disk, then start the region's node again; " + x.reason}
	if x.passes {
		e.RetryAfter = f.cfg.Pace.Of(5 * time.Second)
		e.Hint = "the store takes records again by itself once its disk can be written: free space there; " + x.reason
	}
	return e
}

func (f *Fabric) syncRound(dir *os.File) error {
	if f.cfg.Hooks.NoBarrier || f.cfg.Cluster != nil {
		return nil // the cluster's own acknowledgement says that it is on two disks
	}
	return f.cfg.Hooks.Sync(dir)
}

// failSync: a failed sync is final for this run. The kernel may since have marked the
// pages clean, so the mark that tells the next start goes first.
func (f *Fabric) failSync(err error) {
	f.markFailed()
	f.fail(fmt.Sprintf("a sync of the data volume failed: %v", err), false)
}

// markFailed tells the next start that what was written since the last good round may
// not be on disk.
func (f *Fabric) markFailed() {
	f.mu.Lock()
	logs := maps.Clone(f.logs)
	clean := maps.Clone(f.clean)
	f.mu.Unlock()
	for stream, l := range logs {
		clean[stream] = l.durableBroker()
	}
	mark := run{State: runFailed, Boot: f.boot, Clean: clean, Ends: f.ends(), Closed: f.bound.Load()}
	mark.Clock, mark.Unsure = f.belief.state()
	e := f.writeRun(mark)
	if e != nil {
		// A disk without room for another file still takes the mark in place of the old.
		e = errors.Join(e, overwriteJSON(filepath.Join(f.cfg.Dir, runFile), mark))
	}
	if e != nil {
		f.cfg.Logger.Error("mark of the failed sync is not on disk", "error", e)
	}
}

// fail fences the store: whatever is not released is unknown, and nothing more is
// taken in this run, or until comeBack ends it. It reports whether this is the failure
// that did.
func (f *Fabric) fail(reason string, passes bool) bool {
	f.mu.Lock()
	first := f.failure.CompareAndSwap(nil, &failure{reason: reason, since: f.cfg.Clock.Now(), passes: passes})
	if first {
		close(f.fenced)
	} else if x := f.failure.Load(); x.passes && !passes {
		f.failure.Store(&failure{reason: reason, since: x.since})
	}
	logs := maps.Clone(f.logs)
	f.mu.Unlock()
	if !first {
		return false
	}
	f.cfg.Logger.Error("the store takes no more records", "reason", reason, "passes", passes)
	for _, l := range logs {
		l.abandon()
	}
	return true
}
