package fabric

import (
	"context"
	"errors"
	"fmt"
	"time"

	"domicile/regions"
)

// bounds is what the log is kept within now: the LogConfig it was opened or last
// altered with.
func (l *store) bounds() *LogConfig { return l.limits.Load() }

// Alter gives an open log the bounds of cfg: MaxBytes, MaxAge, Hold, Safe and Waits. When it
// returns, room that was added is there; retention takes what is too much from now on.
// It fails with CONFIG_INVALID, changing nothing, when the store has no room for more.
func (f *Fabric) Alter(ctx context.Context, cfg LogConfig) error {
	l, err := f.opened(cfg.ID, "alter log")
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, f.cfg.Pace.Of(AppendDeadline))
	defer cancel()
	l.sweeping.Lock()
	defer l.sweeping.Unlock()
	before := l.bounds()
	l.mu.Lock()
	kept := l.kept
	l.mu.Unlock()
	l.limits.Store(l.told(cfg))
	l.lookAgain = time.Time{}
	if err := l.fitStream(ctx); err != nil {
		l.limits.Store(before)
		l.mu.Lock()
		l.kept = kept
		l.mu.Unlock()
		return err
	}
	f.kickSweep()
	return nil
}

// fitStream gives the broker's stream the room and the metadata that the log needs. It
// never has less than it holds: what is too much is taken by retention, with its range
// on record.
func (l *store) fitStream(ctx context.Context) error {
	want := l.streamConfig(l.incarnation)
	want.MaxBytes = max(want.MaxBytes, l.bytes.Load()+headroom)
	if l.reserved == want.MaxBytes && l.noted == noted(want.Metadata) {
		return nil
	}
	b, err := l.f.running()
	if err != nil {
		return err
	}
	err = l.change(ctx, func(ctx context.Context) error {
		_, err := b.js.UpdateStream(ctx, want)
		return err
	})
	if err != nil {
		return l.f.refused(ctx, l.cfg.ID, want.MaxBytes, err)
	}
	l.reserved, l.noted = want.MaxBytes, noted(want.Metadata)
	return l.f.flush(ctx)
}

// noted is what of a stream's metadata changes while the log lives.
func noted(meta map[string]string) string { return meta[metaPurged] + "\n" + meta[metaKeeps] }

// refit undoes what a change of a former holder of the seat did that reached the broker late:
// changes of a stream expect nothing, so they can't be fenced like an append.
func (l *store) refit(ctx context.Context) error {
	if l.f.cfg.Cluster == nil {
		return nil
	}
	info, err := l.info(ctx)
	if err != nil {
		return err
	}
	l.reserved, l.noted = info.Config.MaxBytes, noted(info.Config.Metadata)
	return l.fitStream(ctx)
}

// Room is what the logs may take of the store together.
type Room struct {
	Limit    int64 // MaxStore
	Reserved int64 // what all logs may grow to, those that are not open included
	Used     int64 // what they hold
}

// Room asks the broker what is reserved and used. It may take as long as ctx lets it.
func (f *Fabric) Room(ctx context.Context) (Room, error) {
	r := Room{Limit: f.cfg.MaxStore}
	b, err := f.running()
	if err != nil {
		return r, err
	}
	streams := b.js.ListStreams(ctx)
	for info := range streams.Info() {
		r.Reserved += max(0, info.Config.MaxBytes)
		r.Used += int64(info.State.Bytes)
	}
	return r, streams.Err()
}

// Need is what a log of this many bytes takes of the store's room.
func Need(maxBytes int64) int64 { return maxBytes + headroom }

// change asks the broker to make or change the log's stream until it answers: a request
// that meets no leader is lost. Asked twice, the change is the same one.
func (l *store) change(ctx context.Context, try func(context.Context) error) error {
	var refused error
	began := time.Now()
	err := l.f.insist(ctx, func(ctx context.Context) error {
		err := try(ctx)
		switch brokerCode(err) {
		case noRoomCode:
			refused = err
			return nil
		case noPeersCode:
			if time.Since(began) >= l.f.placeWithin() {
				refused = err
				return nil
			}
		}
		return err
	})
	return errors.Join(refused, err)
}

func (r Room) refusal(log string, need int64) error {
	return refuse("max_store", regions.Size(r.Limit).String(), fmt.Sprintf("%s needs %s and that does not fit: %s are reserved for what the logs may grow to, %s of it are used, and %s are free; lower a max_bytes or raise max_store",
		log, regions.Bytes(need), regions.Bytes(r.Reserved), regions.Bytes(r.Used), regions.Bytes(max(0, r.Limit-r.Reserved))), nil)
}

// Fits refuses with CONFIG_INVALID when logs that may grow by more bytes in all do not
// fit into the store. It names what is reserved, used and free.
func (f *Fabric) Fits(ctx context.Context, more int64) error {
	r, err := f.Room(ctx)
	if err != nil || more <= 0 || r.Reserved+more <= r.Limit {
		return err
	}
	return r.refusal("what is declared", more)
}
