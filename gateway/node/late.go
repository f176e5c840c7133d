package node

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"domicile/api"
	"domicile/regions/fabric"
)

// lateEvery is how often a log is tried again for which the store has no place, at pace 1.
const lateEvery = 5 * time.Second

// openLate goes on trying to make the logs for which the store had no place when the turn
// opened, because one of the region's nodes was not heard. The others do not wait for that.
func (t *turn) openLate() {
	late := t.logs.late
	if len(late) == 0 {
		return
	}
	ctx, cancel := context.WithCancel(t.life)
	var work sync.WaitGroup
	work.Go(func() {
		for len(late) > 0 && pause(ctx, t.seams.Pace.Of(lateEvery)) {
			late = slices.DeleteFunc(late, func(id api.LogID) bool { return t.made(ctx, id) })
		}
	})
	t.onClose("late logs", func(context.Context) error {
		cancel()
		work.Wait()
		return nil
	})
}

// made tries a late log once more; true: nothing is left to try.
func (t *turn) made(ctx context.Context, id api.LogID) bool {
	f := t.federation.Snapshot()
	if open, _ := t.logs.find(id); open != nil {
		return true // by a reload
	}
	if _, declared := f.Topic(id.Topic); !declared {
		return true
	}
	if err := t.logs.openAs(ctx, id, f.Role(id, t.cfg.Region), f); err != nil {
		t.logger.Warn("a log is not open; trying again", "log", id.String(), "err", err)
		return false
	}
	t.logger.Info("a log has found its place", "log", id.String())
	t.source.LogsChanged()
	return true
}

// waits reports whether a log that does not open is one that waits for its place.
func waits(err error) bool { return errors.Is(err, fabric.ErrNoPlace) }
