package fabric

import (
	"fmt"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"domicile/api"
)

// The data volume's high-water mark. A broker that meets the end of the disk stops its
// store for good, so appends are refused while there is still room for what goes on:
// marks, retention, the rewriting of a block, the broker's own index.
const (
	spaceEvery   = 500 * time.Millisecond // between two looks at the volume, at pace 1
	leastReserve = 64 << 20
	mostReserve  = 1 << 30
)

// Volume is the file system that a store lies on.
type Volume struct {
	Free    int64 // bytes this process may still write
	Total   int64
	Reserve int64     // bytes kept free: below them new appends are refused
	Low     time.Time // since when they are; zero: they are taken
	Known   bool      // false: the file system did not say
}

// Statfs asks the file system of a folder how much of it is free, and how large it is.
func Statfs(dir string) (free, total int64, err error) {
	var s unix.Statfs_t
	if err := unix.Statfs(dir, &s); err != nil {
		return 0, 0, err
	}
	return int64(s.Bavail) * s.Bsize, int64(s.Blocks) * s.Bsize, nil
}

// reserveOf is what is kept free of a volume: a twentieth, 64 MiB to 1 GiB, but never
// more than a quarter.
func reserveOf(total int64) int64 {
	return min(max(total/20, leastReserve), mostReserve, total/4)
}

// space follows how full the data volume is. Between two looks it counts what was
// written and what waits to be.
type space struct {
	mu    sync.Mutex
	at    Volume
	spent int64 // written since it was asked
}

// look asks the file system. Appends are taken again a quarter above the reserve, so that
// the region does not change its mind with every sweep.
func (f *Fabric) look() (Volume, error) {
	free, total, err := f.cfg.Hooks.Free(f.cfg.Dir)
	s := &f.space
	s.mu.Lock()
	defer s.mu.Unlock()
	was := s.at
	s.at, s.spent = Volume{Free: free, Total: total, Reserve: reserveOf(total), Low: was.Low, Known: err == nil}, 0
	if err != nil {
		s.at = Volume{Low: was.Low}
		return s.at, err
	}
	switch {
	case free >= s.at.Reserve+s.at.Reserve/4:
		s.at.Low = time.Time{}
	case free < s.at.Reserve && was.Low.IsZero():
		s.at.Low = f.cfg.Clock.Now()
	}
	if was.Low.IsZero() != s.at.Low.IsZero() {
		f.cfg.Logger.Warn("data volume", "appends_refused", !s.at.Low.IsZero(), "free_bytes", free, "reserve_bytes", s.at.Reserve)
	}
	return s.at, nil
}

// volume is what was last seen, less what was written since.
func (f *Fabric) volume() Volume {
	s := &f.space
	s.mu.Lock()
	defer s.mu.Unlock()
	v := s.at
	v.Free = max(0, v.Free-s.spent)
	return v
}

// spend counts bytes given to the broker.
func (f *Fabric) spend(n int64) {
	f.space.mu.Lock()
	f.space.spent += n
	f.space.mu.Unlock()
}

// full is what new appends of size bytes are told while the volume is below its reserve;
// nil when there is room.
func (f *Fabric) full(topic string, size int) error {
	s := &f.space
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.at.Known || s.at.Low.IsZero() && s.at.Free-s.spent-f.held.Load()-int64(size) >= s.at.Reserve {
		return nil
	}
	if s.at.Low.IsZero() {
		s.at.Low = f.cfg.Clock.Now()
	}
	return &api.Error{Code: api.StorageFull, Op: "append", Topic: topic, Region: f.cfg.Region, RetryAfter: f.cfg.Pace.Of(5 * time.Second),
		Hint: fmt.Sprintf("the region's data volume has %s free and keeps %s of it: free space there, or wait for retention; then retry with the same id", megabytes(s.at.Free-s.spent), megabytes(s.at.Reserve))}
}

func megabytes(n int64) string { return fmt.Sprintf("%d MiB", max(0, n)>>20) }

// spaceLoop looks at the volume, and whether the broker still has its store, until the
// fabric closes.
func (f *Fabric) spaceLoop() {
	failing := false
	for f.rest(f.ctx, spaceEvery) == nil {
		_, err := f.look()
		if err != nil && !failing {
			f.cfg.Logger.Warn("free space of the data volume is not known", "error", err)
		}
		failing = err != nil
		f.watchBroker()
	}
}

// checkStart refuses to start a broker on a disk without room: it could take what it can't
// write for what is not there.
func (f *Fabric) checkStart() error {
	v, err := f.look()
	if err != nil || v.Free >= v.Reserve/4 {
		return nil // what is not known does not keep a region down
	}
	return &api.Error{Code: api.StorageFull, Op: "open store", Region: f.cfg.Region,
		Hint: fmt.Sprintf("the data volume has %s free and a start needs %s: free space there and start again; nothing was touched", megabytes(v.Free), megabytes(v.Reserve/4))}
}
