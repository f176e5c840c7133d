package fabric

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// failStore: the broker's store could not write and answers nobody from here on. A full
// disk and one that was mounted read-only pass; the broker is then started again, and
// nobody has to. Anything else may be a dying disk and waits for a person.
func (f *Fabric) failStore(why string) {
	passing := f.cfg.Cluster == nil && passes(why) // two other nodes go on meanwhile
	if !f.fail("the broker's store failed: "+why, passing) || !passing {
		return
	}
	f.spawn(f.comeBack)
}

// passes reports whether the broker's words on a failed write name a cause that goes
// away without a new disk.
func passes(why string) bool {
	for _, e := range []unix.Errno{unix.ENOSPC, unix.EDQUOT, unix.EROFS} {
		if strings.Contains(why, e.Error()) {
			return true
		}
	}
	return false
}

// comeBack waits until the disk takes writes again, gives the seat up, and takes it again
// with a new broker. Until then the seat is kept: what is on disk is still read.
func (f *Fabric) comeBack() {
	for {
		if f.rest(f.ctx, spaceEvery) != nil {
			return
		}
		if x := f.failure.Load(); !x.passes {
			return
		}
		if !f.writable() {
			continue
		}
		seat, _ := f.Seat()
		if seat.Mine {
			f.seat.set(Seat{Node: seat.Node, Term: seat.Term, Since: f.cfg.Clock.Now(), Reason: "the broker is started again: its disk was full or read-only"})
		}
		if !f.vacated() {
			return
		}
		if err := f.restart(); err != nil {
			f.markFailed()
			f.fail(fmt.Sprintf("the broker did not start again: %v", err), false)
			return
		}
		f.seat.set(Seat{Node: seat.Node, Mine: true, Term: seat.Term + 1, Since: f.cfg.Clock.Now()})
		f.cfg.Logger.Warn("the store takes records again")
		return
	}
}

// writable: the volume has room above its reserve, and a file can be written and synced.
func (f *Fabric) writable() bool {
	if v, err := f.look(); err != nil || !v.Low.IsZero() {
		return false
	}
	path := filepath.Join(f.cfg.Dir, "probe"+tempSuffix)
	defer os.Remove(path)
	return writeJSON(path, f.boot) == nil
}

// vacated waits until whoever opened logs has given them back; false when the fabric
// closes first.
func (f *Fabric) vacated() bool {
	for {
		f.mu.Lock()
		empty := len(f.logs) == 0 && len(f.opening) == 0
		f.mu.Unlock()
		if empty {
			return true
		}
		select {
		case <-f.emptied:
		case <-f.ctx.Done():
			return false
		}
	}
}

// tellEmptied wakes vacated: a log was given back, or its opening or deletion has ended.
func (f *Fabric) tellEmptied() {
	select {
	case f.emptied <- struct{}{}:
	default:
	}
}

// restart is a stop and an unclean start of the broker alone: every log's term rises when
// it is opened.
func (f *Fabric) restart() error {
	ctx, cancel := context.WithTimeout(f.ctx, f.cfg.Pace.Of(time.Minute))
	defer cancel()
	f.stopBroker()
	f.mu.Lock()
	f.restarted = true
	f.mu.Unlock()
	if err := f.start(ctx, 0, run{State: runOpen}); err != nil {
		return fmt.Errorf("start again: %w", err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if x := f.failure.Load(); !x.passes {
		return errors.New(x.reason) // a sync that was under way failed meanwhile
	}
	f.fenced = make(chan struct{})
	f.failure.Store(nil)
	return nil
}

// fence is closed at a failure of the store.
func (f *Fabric) fence() <-chan struct{} {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.fenced
}
