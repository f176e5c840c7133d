package fabric

import (
	"fmt"
	"maps"
	"path/filepath"
	"time"
)

// The run mark is written every few seconds while the store is open. It tells the next
// start what the logs cannot when their end is gone or the clock was set back: how far
// each log was durable, and an instant that no closed instant has passed. That instant
// lies ahead, and none is given out beyond the last one that is on disk.
const (
	markEvery = 2 * time.Second // at pace 1
	markAhead = 5 * time.Second
)

// markLoop keeps the run mark young until the fabric closes.
func (f *Fabric) markLoop() {
	for f.rest(f.ctx, markEvery) == nil {
		if err := f.markOpen(); err != nil {
			f.cfg.Logger.Warn("the run mark was not renewed: closed instants stand still", "error", err)
		}
		if err := f.markFolders(); err != nil {
			f.cfg.Logger.Warn("the list of folders was not renewed", "error", err)
		}
	}
}

// markOpen renews the mark, unless it tells of a failed sync.
func (f *Fabric) markOpen() error {
	if f.failure.Load() != nil {
		return nil // a failed sync has a mark of its own, a full disk no room for one
	}
	f.marking.Lock()
	defer f.marking.Unlock()
	if f.marked == runFailed {
		return nil
	}
	return f.putRun(run{State: runOpen, Boot: f.boot})
}

// writeRun writes how the run stands or ended.
func (f *Fabric) writeRun(r run) error {
	f.marking.Lock()
	defer f.marking.Unlock()
	f.marked = r.State
	return f.putRun(r)
}

// putRun writes a mark; marking is held. What it promises never goes back.
func (f *Fabric) putRun(r run) error {
	f.Believe()
	now := f.now()
	if r.State == runOpen {
		now = now.Add(f.cfg.Pace.Of(markAhead))
	}
	r.Clock, r.Unsure = f.belief.state()
	r.Good = f.barrier.lastGood().UnixNano()
	r.Ends, r.Closed = f.ends(), max(now.UnixNano(), f.floor.Load())
	if r.State == runFailed {
		r.Closed = f.bound.Load()
	}
	if err := writeJSON(filepath.Join(f.cfg.Dir, runFile), r); err != nil {
		return err
	}
	f.bound.Store(r.Closed)
	return nil
}

// ends is the last durable sequence of every log, as far as it is known, by the stream's
// incarnation: a log that was deleted and made again begins at 1.
func (f *Fabric) ends() map[string]uint64 {
	f.mu.Lock()
	ends, logs := maps.Clone(f.ended), maps.Clone(f.logs)
	f.mu.Unlock()
	for _, l := range logs {
		d := l.durableEnd()
		ends[l.endKey(d)] = d.Sequence
	}
	return ends
}

// endKey is what a log's end is noted under. Once its records went back to a cut, an end
// that was noted before says nothing any more.
func (l *store) endKey(at end) string {
	if at.owner == nil || at.owner.Rewinds == 0 {
		return l.incarnation
	}
	return fmt.Sprintf("%s.%d", l.incarnation, at.owner.Rewinds)
}

// passLost keeps the sequences that the last run mark knows to have been durable, and
// that the stream no longer holds, from being given away a second time. A copy is sent
// its own again.
func (l *store) passLost() {
	l.f.mu.Lock()
	end := l.f.ended[l.endKey(l.tail)]
	l.f.mu.Unlock()
	if end <= l.tail.Sequence {
		return
	}
	l.lose(Range{l.tail.Sequence + 1, end})
	if l.kind == kindHome {
		l.tail.Sequence, l.cut = end, true
	}
}

// unclosed holds a closed instant to the bound that is on disk.
func (f *Fabric) unclosed(at time.Time) time.Time {
	if bound := time.Unix(0, f.bound.Load()).UTC(); at.After(bound) {
		return bound
	}
	return at
}
