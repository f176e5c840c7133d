package fabric

import (
	"context"

	"domicile/api"
	"domicile/regions"
)

// Holding is what a store has of a log, as the log's own markers say it.
type Holding struct {
	Role        regions.Role
	Incarnation string    // "": of a copy that never was a home, only its records tell it
	Epoch       api.Epoch // of its last ownership marker; zero: it has none
	Latest      api.Epoch // that the marker tells of; zero: of none
	Ended       bool      // the epoch was fenced here: nothing of it is appended again
}

// Held says what this store holds of a log that is not open. ok is false for a log that it
// never had, or that was deleted.
func (f *Fabric) Held(ctx context.Context, id api.LogID) (h Holding, ok bool, err error) {
	stream, err := streamName(id)
	if err != nil {
		return Holding{}, false, err
	}
	if _, err := f.claim(stream, id); err != nil {
		return Holding{}, false, err
	}
	defer f.unclaim(stream)
	f.mu.Lock()
	e, known := f.known[stream]
	f.mu.Unlock()
	if !known || e.State != "" {
		return Holding{}, false, nil
	}
	ctx, cancel := context.WithTimeout(ctx, f.cfg.Pace.Of(AppendDeadline))
	defer cancel()
	l := newStore(f, LogConfig{ID: id, MaxBytes: 1}, e.Kind, stream)
	if err := l.lookUp(ctx); err != nil {
		return Holding{}, false, l.readFailed(err)
	}
	meta := l.admin.CachedInfo().Config.Metadata
	l.made, l.incarnation = meta[metaKind], meta[metaIncarnation]
	info, err := l.state(ctx)
	if err == nil {
		err = l.readTenure(ctx, info)
	}
	if err != nil {
		return Holding{}, false, err
	}
	h = Holding{Role: regions.Role(l.heldAs()), Incarnation: l.lineage()}
	if t := l.tail.owner; t != nil {
		h.Epoch, h.Latest, h.Ended = t.Epoch, t.Latest(), t.ended(t.Epoch)
	}
	return h, true, nil
}
