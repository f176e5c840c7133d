package syncset

import (
	"context"
	"time"

	"domicile/api"
	"domicile/regions"
)

// View is a log, home or copy, as readers and mirrors outside the sync set see it: up to
// what is common, and nothing while that is not known. Safe for concurrent use.
type View struct {
	log  regions.Log
	mark *Mark
}

// NewView shows log up to mark.
func NewView(log regions.Log, mark *Mark) *View { return &View{log: log, mark: mark} }

// ID is the log's address.
func (v *View) ID() api.LogID { return v.log.ID() }

// Head is the log's head, or its last common record if that is earlier. Records and Bytes
// are the log's: what it holds, not what is shown.
func (v *View) Head() regions.Head {
	h := v.log.Head()
	_, _, known := v.mark.Get()
	h.Unsure = !known
	h.Sequence, h.Time = v.mark.Within(h.Sequence, h.Time)
	return h
}

// Changed returns a channel that is closed when the shown head may have moved past
// sequence after: look at Head again.
func (v *View) Changed(after uint64) <-chan struct{} {
	changes := v.mark.changes() // before the look, so that nothing is missed between
	if v.log.Head().Sequence <= after {
		return v.log.Changed(after)
	}
	if v.Head().Sequence > after {
		return v.log.Changed(after) // closed already
	}
	return changes
}

// After is the last shown sequence whose ingest time is before t.
func (v *View) After(ctx context.Context, t time.Time) (uint64, error) {
	after, err := v.log.After(ctx, t)
	return min(after, v.Head().Sequence), err
}

// Reader opens a reader that gives nothing beyond the shown head.
func (v *View) Reader(ctx context.Context, after uint64) (regions.Reader, error) {
	r, err := v.log.Reader(ctx, after)
	if err != nil {
		return nil, err
	}
	return &reader{view: v, inner: r, read: after}, nil
}

// reader holds back what is not common yet.
type reader struct {
	view  *View
	inner regions.Reader
	read  uint64         // last sequence handed out
	held  []regions.Item // read and not handed out, at most one batch
}

// Next returns the items that follow and are common.
func (r *reader) Next(ctx context.Context, limit regions.ReadLimit) ([]regions.Item, error) {
	end := r.view.Head().Sequence
	if end <= r.read {
		return nil, nil
	}
	if len(r.held) == 0 {
		var err error
		if r.held, err = r.inner.Next(ctx, limit); err != nil {
			return nil, err
		}
	}
	n, bytes := 0, 0
	for n < len(r.held) && r.held[n].Sequence <= end && n < max(limit.Records, 1) {
		if bytes += r.held[n].Size(); n > 0 && bytes > limit.Bytes {
			break
		}
		n++
	}
	out := r.held[:n:n]
	r.held = r.held[n:]
	if n > 0 {
		r.read = out[n-1].Sequence
	}
	return out, nil
}

// Close frees what the reader holds.
func (r *reader) Close() { r.inner.Close() }
