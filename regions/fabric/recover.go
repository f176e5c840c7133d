package fabric

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// failStore: the broker's store could not write and answers nobody from here on. A full
// disk and one that was mounted read-only pass; the broker is then started again, and
// nobody has to. Anything else may be a dying disk and waits for a person.
func (f *Fabric) failStore(why string) {
	passing := passes(why)
	if !f.fail("the broker's store failed: "+why, passing) || !passing {
		return
	}
	f.spawn(f.comeBack)
}

// watchBroker notices that the broker shut its store down, which it does by itself, in a
// quorum region, when it meets the end of the disk.
func (f *Fabric) watchBroker() {
	if b, err := f.running(); err == nil && !f.stopping() && !b.srv.JetStreamEnabled() {
		f.failStore(storeShut)
	}
}

// storeShut is what a broker does only on a disk that is full or may not be written.
const storeShut = "the broker shut its store down, as it does on a full disk"

// passes reports whether the broker's words on a failed write name a cause that goes
// away without a new disk.
func passes(why string) bool {
	if why == storeShut {
		return true
	}
	return names(why, unix.ENOSPC, unix.EDQUOT, unix.EROFS)
}

// ofDevice reports whether the broker's words on a failed write name a device that failed. Of
// a store that was closed under it, as on a full disk, it may say other things.
func ofDevice(why string) bool {
	return names(why, unix.EIO, unix.ENXIO, unix.ENODEV, unix.EUCLEAN)
}

func names(why string, errs ...unix.Errno) bool {
	return slices.ContainsFunc(errs, func(e unix.Errno) bool { return strings.Contains(why, e.Error()) })
}

// comeBack waits until the disk takes writes again, gives the seat up, and starts the broker
// again; a solo region's seat is then taken anew. Until then a solo region's seat is kept:
// what is on disk is still read.
func (f *Fabric) comeBack() {
	from := time.Now().Add(-unsureFor)
	for f.rest(f.ctx, spaceEvery) == nil && f.failure.Load().passes {
		if !f.writable() {
			continue
		}
		seat, _ := f.Seat()
		if f.cfg.Cluster == nil && seat.Mine {
			f.seat.set(Seat{Node: seat.Node, Term: seat.Term, Since: f.cfg.Clock.Now(), Reason: "the broker is started again: its disk was full or read-only"})
		}
		if !f.vacated() {
			return
		}
		switch err := f.restart(from); {
		case err == nil:
			if f.cfg.Cluster == nil {
				f.seat.set(Seat{Node: seat.Node, Mine: true, Term: seat.Term + 1, Since: f.cfg.Clock.Now()})
			}
			f.cfg.Logger.Warn("the store takes records again")
			return
		case f.failure.Load().passes && !errors.Is(err, errUnsynced) && !f.writable(): // full again
		default:
			f.markFailed()
			f.fail(fmt.Sprintf("the broker did not start again: %v", err), false)
			return
		}
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

// unsureFor is how long before a failure was noticed a sync of the broker's own may have
// failed.
const unsureFor = 10 * time.Second

// restart is a stop and an unclean start of the broker alone: every log's term rises when
// it is opened. What was written since from, and the broker of a quorum region may have
// failed to sync, is written once more.
func (f *Fabric) restart(from time.Time) error {
	ctx, cancel := context.WithTimeout(f.ctx, f.cfg.Pace.Of(time.Minute))
	defer cancel()
	f.stopBroker()
	f.mu.Lock()
	f.restarted = true
	f.mu.Unlock()
	err := error(nil)
	if f.cfg.Cluster != nil {
		_, err = f.writeAnew(from)
	}
	if err == nil {
		err = f.start(ctx, 0, run{State: runOpen})
	}
	if err == nil && f.cfg.Cluster != nil {
		err = f.attend()
	}
	if err != nil {
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

// watchStore asks whether the log's stream can be written, until ctx ends: a broker that
// can't write it answers nobody.
func (l *store) watchStore(ctx context.Context) {
	for l.f.rest(ctx, ackWait) == nil {
		if b, err := l.f.running(); err == nil {
			if why := b.unhealthy(l.stream); why != "" {
				l.f.failStore(why)
				return
			}
		}
	}
}

// whileItWorks is a context for what needs the store, that ends when it fails.
func (f *Fabric) whileItWorks(ctx context.Context, most time.Duration) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(ctx, f.cfg.Pace.Of(most))
	fence := f.fence()
	f.spawn(func() {
		defer cancel()
		select {
		case <-fence:
		case <-f.ctx.Done():
		case <-ctx.Done():
		}
	})
	return ctx, cancel
}

// fence is closed at a failure of the store.
func (f *Fabric) fence() <-chan struct{} {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.fenced
}
